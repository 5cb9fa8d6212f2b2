"""The committed notebooks were run as they are; ``pytest --nbmake notebooks`` runs them again."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = [
    "1_quickstart",
    "2_where_gradients_stop",
    "3_output_delta",
    "4_chain_rule_or_direct",
    "5_ema_targets",
    "6_inverting_gradients",
    "7_minimize",
]


def path_of(name):
    return FOLDER / f"{name}.ipynb"


@pytest.fixture(params=NAMES)
def notebook(request):
    return json.loads(path_of(request.param).read_text(encoding="utf-8"))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell["outputs"]]


def markdown(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def test_these_are_all_notebooks():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


def test_executed_from_top_to_bottom(notebook):
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_no_error_and_no_start_up_notices_in_the_outputs(notebook):
    assert [output for output in outputs(notebook) if output["output_type"] == "error"] == []
    assert [output for output in outputs(notebook) if output.get("name") == "stderr"] == []


def test_opens_with_a_question(notebook):
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert "?" in markdown(notebook)[0]


def test_shows_a_picture(notebook):
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_ends_with_what_to_use_when(notebook):
    assert notebook["cells"][-1]["cell_type"] == "markdown"
    headings = [line for line in markdown(notebook)[-1].splitlines() if line.startswith("## ")]
    assert headings[-1] == "## What to use when"


@pytest.mark.parametrize("name", NAMES)
def test_small_enough_to_read_in_a_browser(name):
    assert path_of(name).stat().st_size < 400_000


def test_metadata_says_nothing_of_a_machine(notebook):
    assert notebook["metadata"] == {
        "execution": {"timeout": 300},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
