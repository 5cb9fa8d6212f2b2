"""Execute the notebooks in place: ``python notebooks/execute.py [notebook ...]``, all of them by default.

What differs from machine to machine without meaning anything stays out of the files: TensorFlow's
start-up notices on stderr (passed on to this process's), times of execution, and the interpreter's version.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


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
