"""Execute the notebooks in place: ``python notebooks/execute.py [notebook ...]``, all of them by default.

What differs from machine to machine without meaning anything stays out of the files: TensorFlow's
start-up notices on stderr (passed on to this process's), times of execution, and the interpreter's version.
Pictures are stored with a palette of 256 colours, at about a third of their size.
"""

import base64
import io
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image


def with_palette(picture: str) -> str:
    """Return a base64 PNG with 256 colours, or as it is where that is no smaller."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return min(picture, base64.b64encode(buffer.getvalue()).decode(), key=len)


def execute(path: Path) -> None:
    """Run one notebook in a fresh kernel, in its own directory, and write it back with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": path.parent}}
    client = NotebookClient(notebook, timeout=300, record_timing=False, coalesce_streams=True, resources=resources)
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            notices = [output for output in cell.outputs if output.get("name") == "stderr"]
            cell.outputs = [output for output in cell.outputs if output not in notices]
            sys.stderr.writelines(output.text for output in notices)
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = with_palette(output.data["image/png"])
            cell.metadata = {}
    notebook.metadata = {
        "execution": {"timeout": 300},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(Path(__file__).parent.glob("*.ipynb")):
        execute(Path(name))
