"""Execute the notebooks in place: ``python notebooks/execute.py [notebook ...]``, all of them by default.

With ``--check`` they are executed but not written. Differences from the committed outputs are printed, and quoted
numbers that no output has (``compare.py``); if there are any, the exit status is 1. The metadata has LLVM's name for
the kind of processor: on another kind, numbers from training are not compared, because different rounding changes them.

The files leave out what differs between machines without meaning: TensorFlow's start-up notices on stderr (which are
passed on to this process's stderr), execution times, and the interpreter's version. Pictures are stored with a palette
of 256 colours, at about a third of their size.
"""

import base64
import io
import sys
from pathlib import Path

import compare
import nbformat
from llvmlite import binding
from nbclient import NotebookClient
from PIL import Image


def with_palette(picture: str) -> str:
    """Return a base64 PNG with 256 colours, or unchanged if that is not smaller."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return min(picture, base64.b64encode(buffer.getvalue()).decode(), key=len)


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a run in a fresh kernel, in its own directory."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    client = NotebookClient(notebook, timeout=600, record_timing=False, coalesce_streams=True, resources=resources)
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            notices = [output for output in cell.outputs if output.get("name") == "stderr"]
            cell.outputs = [output for output in cell.outputs if output not in notices]
            sys.stderr.writelines(output.text for output in notices)
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = with_palette(output.data["image/png"])
            cell.metadata = {"tags": cell.metadata.tags} if "tags" in cell.metadata else {}
    notebook.metadata = {
        "execution": {"processor": binding.get_host_cpu_name(), "timeout": 300},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def check(path: Path) -> list[str]:
    """Return what is stale in a notebook, a line for each finding."""
    committed = nbformat.read(path, as_version=4)
    return compare.unsupported(committed) + compare.differences(committed, executed(path))


def main(arguments: list[str]) -> int:
    """Execute the notebooks, or check them; return the exit status."""
    flags = {argument for argument in arguments if argument.startswith("--")}
    if unknown := flags - {"--check"}:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected --check, and names of notebooks")
    paths = [Path(argument) for argument in arguments if argument not in flags]
    found = 0
    for path in paths or sorted(Path(__file__).parent.glob("*.ipynb")):
        if "--check" not in flags:
            nbformat.write(executed(path), path)
            continue
        stale = check(path)
        found += len(stale)
        print(f"{path.name}: {'as committed' if not stale else ''}", *stale, sep="\n  " if stale else "", flush=True)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
