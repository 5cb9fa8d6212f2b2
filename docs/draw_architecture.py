"""Draw ``docs/architecture.png``: the subpackages, and which imports which, read from the source.

python docs/draw_architecture.py
"""

import ast
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
LEVELS = [
    ["cli"],
    ["studies"],
    ["runs", "laboratory"],
    ["workers"],
    ["agents"],
    ["learners"],
    ["algorithms", "exports"],
    ["networks"],
    ["config"],
    ["policies"],
    ["replay"],
    ["gradients", "interaction", "checkpoints", "compiler"],
]
LEFT_OF_CENTRE = {"workers", "config"}  # arrows between others pass where these would be


def imports_of(package: str) -> dict[str, int]:
    """Return how many imports in ``package`` are of each other subpackage."""
    found: dict[str, int] = defaultdict(int)
    for path in (ROOT / "ddpg" / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddpg."):
                target = (node.module or "").split(".")[1]
                if target != package and (ROOT / "ddpg" / target).is_dir():
                    found[target] += 1
    return found


def without_detours(arrows: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Leave out the arrows to subpackages that are also reached through a third one."""

    def reached(package: str) -> set[str]:
        return {further for target in arrows[package] for further in (target, *reached(target))}

    return {
        package: {
            target: count
            for target, count in targets.items()
            if not any(target in reached(other) for other in targets if other != target)
        }
        for package, targets in arrows.items()
    }


def draw(path: Path) -> None:
    """Draw the picture; the width of an arrow grows with the number of imports."""
    figure, axes = plt.subplots(figsize=(9, 11))
    places = {}
    for level, rooms in enumerate(LEVELS):
        for index, package in enumerate(rooms):
            alone = 3.4 if package in LEFT_OF_CENTRE else 5
            x = alone if len(rooms) == 1 else 1 + index / (len(rooms) - 1) * 8
            places[package] = (x, -level * 1.5)
    for package, (x, y) in places.items():
        modules = [file for file in (ROOT / "ddpg" / package).glob("*.py") if file.name != "__init__.py"]
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in modules)
        axes.add_patch(
            FancyBboxPatch((x - 0.8, y - 0.3), 1.6, 0.6, boxstyle="round,pad=0.05", fc="#e8eef7", ec="#34506b")
        )
        axes.text(x, y + 0.09, package, ha="center", va="center", fontsize=11, weight="bold", color="#1d2f42")
        axes.text(x, y - 0.17, f"{lines / 1000:.1f} thousand lines", ha="center", va="center", fontsize=7)
    for package, targets in without_detours({package: imports_of(package) for package in places}).items():
        x, y = places[package]
        for target, count in targets.items():
            to_x, to_y = places[target]
            bend = 0.0 if abs(to_y - y) < 2 else 0.2 * (1 if to_x < x else -1)
            axes.add_patch(
                FancyArrowPatch(
                    (x, y - 0.35),
                    (to_x, to_y + 0.35),
                    connectionstyle=f"arc3,rad={bend}",
                    arrowstyle="-|>",
                    mutation_scale=9,
                    lw=0.5 + 0.12 * min(count, 16),
                    color="#6b7f94",
                    alpha=0.8,
                    zorder=0,
                )
            )
    axes.set_title(
        "ddpg: which package imports which\n(thicker: more imports; left out where a third package leads there too)",
        fontsize=12,
    )
    axes.set_xlim(-0.2, 10.2)
    axes.set_ylim(-1.5 * (len(LEVELS) - 1) - 0.6, 0.6)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).with_name("architecture.png"))
