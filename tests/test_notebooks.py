"""The committed notebooks were run as they are; ``notebooks/execute.py --check`` runs them again and compares."""

import copy
import importlib.util
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
TAGS = {"varies", "training"}  # of notebooks/compare.py
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


def test_metadata_say_nothing_of_a_machine_but_the_kind_of_its_processor(notebook):
    processor = notebook["metadata"]["execution"]["processor"]
    assert re.fullmatch(r"[\w.-]+", processor)
    assert notebook["metadata"] == {
        "execution": {"processor": processor, "timeout": 300},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook["cells"]:
        assert cell["metadata"].keys() <= {"tags"}
        assert set(cell["metadata"].get("tags", [])) <= TAGS


# -- the comparison ------------------------------------------------------------------------------------


def load(name):
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


compare = load("compare")


def made(text, source="", tags=(), processor="znver5"):
    """A notebook of a code cell that printed ``text``, and a markdown cell."""
    output = {"output_type": "stream", "name": "stdout", "text": text}
    code = {"cell_type": "code", "source": "", "metadata": {"tags": [*tags]}, "outputs": [output]}
    cells = [code, {"cell_type": "markdown", "source": source, "metadata": {}}]
    return {"cells": cells, "metadata": {"execution": {"processor": processor}}}


def test_texts_quote_what_the_outputs_say(notebook):
    assert compare.unsupported(notebook) == []


def test_a_stale_output_is_found_in_every_notebook(notebook):
    """Each number of at least 1 that is printed, made a third larger, one at a time, in the cells that are compared."""
    assert compare.differences(notebook, notebook) == []
    changed = 0
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code" or "varies" in cell["metadata"].get("tags", []):
            continue
        for place, output in enumerate(cell["outputs"]):
            text = "".join(output.get("text", ""))
            for match in compare.NUMBER.finditer(text):
                number = f"{compare._value(match.group()) * 4 / 3:.1f}"
                if abs(compare._value(match.group())) < 1 or compare.same_number(number, match.group()):
                    continue
                other = copy.deepcopy(notebook)
                other["cells"][index]["outputs"][place]["text"] = text[: match.start()] + number + text[match.end() :]
                assert len(compare.differences(notebook, other)) == 1
                changed += 1
    assert changed >= 1


@pytest.mark.parametrize(
    ("committed", "executed", "same"),
    [
        ("[-15, -240]", "[0, 0]", False),
        ("mean -119", "mean -120", True),
        ("mean -119", "mean -121", False),
        ("mean -119", "mean 119", False),
        ("off by 4.8e-07", "off by 0.0e+00", True),
        ("off by 7.3e-01", "off by 7.4e-01", True),
        ("off by 7.3e-01", "off by 7.5e-01", False),
        ("0.48 (0.43", "0.47  (0.43", True),
        ("8,245 of 15,000", "8,345 of 15,000", False),
        ("a b", "a c", False),
        ("1 2", "1 2 3", False),
    ],
)
def test_numbers_are_compared_and_words(committed, executed, same):
    assert (compare.differences(made(committed), made(executed)) == []) == same


def test_tags_say_what_is_not_compared():
    assert compare.differences(made("13 times", tags=["varies"]), made("9 times, or so")) == []
    training = made("return -119", tags=["training"])
    assert len(compare.differences(training, made("return -300"))) == 1
    assert compare.differences(training, made("return -300", processor="apple-m3")) == []
    assert len(compare.differences(training, made("loss -119", processor="apple-m3"))) == 1
    assert len(compare.differences(made("loss 0.50"), made("loss 0.60", processor="apple-m3"))) == 1


@pytest.mark.parametrize(
    ("text", "quoted", "found"),
    [
        ("about −180", "-180", True),
        ("about −190", "-190", False),
        ("off by 0.69", "0.69", True),
        ("off by 0.68", "0.68", False),
        ("off by 0.69", "0.7", False),  # not what the text says
        ("8,200 and 0.69", "8,200, 0.69", True),
    ],
)
def test_a_text_quotes_an_output_as_it_is_rounded_there(text, quoted, found):
    notebook = made("returns [-181, -173], 0.687, 8,245", f"{text}\n<!-- quoted: {quoted} -->")
    assert (compare.unsupported(notebook) == []) == found
