"""Draw ``docs/compiler.png``: the compiler's stages, from a TensorFlow graph to threads.

python docs/draw_compiler.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

STAGES = [
    ("graph", "TensorFlow ops", ["an update:", "forward, backward,", "optimizer"], []),
    ("IR", "nodes and writes", ["fixed shapes,", "constants folded,", "equal nodes are one"], ["lowering", "ir"]),
    ("schedule", "kernels", ["order, fusion,", "store or", "compute again"], ["schedule"]),
    ("memory plan", "offsets", ["one block; dead", "values give up", "their place"], ["memory_plan"]),
    ("LLVM", "functions", ["loops, register-", "tiled products,", "float flags"], ["codegen", "codegen_gemm", "jit"]),
    ("threads", "machine code", ["rows are split,", "barriers only", "where needed"], ["parallel", "thread_pool"]),
]
ROOM = Path(__file__).resolve().parents[1] / "ddpg" / "compiler"


def draw(path: Path) -> None:
    """Draw the stages from left to right, each with its files; every file named here must exist."""
    figure, axes = plt.subplots(figsize=(12, 3.2))
    for index, (name, result, decisions, files) in enumerate(STAGES):
        x = index * 2.0
        axes.add_patch(FancyBboxPatch((x, 1), 1.4, 0.9, boxstyle="round,pad=0.06", fc="#e8eef7", ec="#34506b"))
        axes.text(x + 0.7, 1.6, name, ha="center", va="center", fontsize=13, weight="bold", color="#1d2f42")
        axes.text(x + 0.7, 1.2, result, ha="center", va="center", fontsize=9)
        axes.text(x + 0.7, 0.82, "\n".join(decisions), ha="center", va="top", fontsize=8.5, color="#444444")
        missing = [file for file in files if not (ROOM / f"{file}.py").exists()]
        if missing:
            raise FileNotFoundError(f"{ROOM} has no {missing}")
        names = "\n".join(f"{file}.py" for file in files)
        axes.text(x + 0.7, 2.1, names, ha="center", va="bottom", fontsize=8, family="monospace", color="#34506b")
        if index:
            arrow = FancyArrowPatch(
                (x - 0.52, 1.45), (x - 0.08, 1.45), arrowstyle="-|>", mutation_scale=14, color="#6b7f94"
            )
            axes.add_patch(arrow)
    axes.set_xlim(-0.2, 11.6)
    axes.set_ylim(0.1, 2.9)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).with_name("compiler.png"))
