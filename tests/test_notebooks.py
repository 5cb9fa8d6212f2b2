"""The committed notebooks are executed, and executing them again gives the same outputs (``execute.py --check``)."""

import copy
import json
import os
import re
import subprocess
import symtable
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pytest
from conftest import module_at

FOLDER = Path(__file__).parents[1] / "notebooks"
TAGS = {"varies", "training"}  # those that notebooks/compare.py knows
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


def test_the_list_of_notebooks_is_complete():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


def test_executed_from_top_to_bottom(notebook):
    counts = [cell["execution_count"] for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_a_cell_run_again_leaves_the_names_that_other_cells_read(notebook):
    """A name that two cells assign would have the value of the one that ran last, in any cell that only reads it."""
    assigned, read = Counter(), set()
    for cell in code_cells(notebook):
        scopes = [symtable.symtable("".join(cell["source"]), "cell", "exec")]
        own = {symbol.get_name() for symbol in scopes[0].get_symbols() if symbol.is_assigned()}
        own |= {child.get_name() for child in scopes[0].get_children()}
        assigned.update(own)
        for scope in scopes:
            scopes.extend(scope.get_children())
            module = scope is scopes[0]
            read |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (module or s.is_global())} - own
    assert {name for name in read if assigned[name] > 1} == set()


def test_outputs_have_no_errors_and_no_start_up_notices(notebook):
    assert [output for output in outputs(notebook) if output["output_type"] == "error"] == []
    assert [output for output in outputs(notebook) if output.get("name") == "stderr"] == []


def test_opens_with_a_question(notebook):
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert "?" in markdown(notebook)[0]


def test_shows_an_image(notebook):
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_ends_with_what_to_use_when(notebook):
    assert notebook["cells"][-1]["cell_type"] == "markdown"
    headings = [line for line in markdown(notebook)[-1].splitlines() if line.startswith("## ")]
    assert headings[-1] == "## What to use when"


@pytest.mark.parametrize("name", NAMES)
def test_small_enough_to_read_in_a_browser(name):
    assert path_of(name).stat().st_size < 400_000


def test_metadata_contain_nothing_about_the_machine_but_its_kind_of_processor(notebook):
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


# Left out, since the kernel must compute as it does for a reader.
SET_BY_CONFTEST = ("DDPG_CACHE", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")


@pytest.mark.slow  # the two tests below execute a small notebook, and the first of these with fewer steps
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_as_committed(name):
    environment = {key: value for key, value in os.environ.items() if key not in SET_BY_CONFTEST}
    command = [sys.executable, str(FOLDER / "execute.py"), "--check", str(path_of(name))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{name}.ipynb: as committed\n", 0), done.stdout + done.stderr


def test_a_notebook_is_executed_and_its_outputs_are_compared(tmp_path, capsys, monkeypatch):
    """Written by ``execute.py`` they are as committed; with another committed number they are not."""
    monkeypatch.syspath_prepend(FOLDER)  # it imports the other
    execute, path = module_at(FOLDER / "execute.py"), tmp_path / "small.ipynb"
    cell = nbformat.v4.new_code_cell("import sys\nprint('about', 6 * 7)\nprint('a notice', file=sys.stderr)")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    assert execute.main([str(path)]) == 0
    written = nbformat.read(path, as_version=4)
    (output,) = written.cells[0].outputs
    assert (output.text, written.cells[0].execution_count) == ("about 42\n", 1)
    assert execute.main(["--check", str(path)]) == 0
    assert capsys.readouterr().out == "small.ipynb: as committed\n"
    output.text = "about 44\n"  # one unit of the last place is allowed
    nbformat.write(written, path)
    assert execute.main(["--check", str(path)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert nbformat.read(path, as_version=4) == written


# -- the comparison ------------------------------------------------------------------------------------


compare = module_at(FOLDER / "compare.py")


def notebook_with(text, source="", tags=(), processor="znver5"):
    """Return a notebook of a code cell that printed ``text``, and a markdown cell."""
    output = {"output_type": "stream", "name": "stdout", "text": text}
    code = {"cell_type": "code", "source": "", "metadata": {"tags": [*tags]}, "outputs": [output]}
    cells = [code, {"cell_type": "markdown", "source": source, "metadata": {}}]
    return {"cells": cells, "metadata": {"execution": {"processor": processor}}}


def test_texts_quote_the_outputs(notebook):
    assert compare.unsupported(notebook) == []


def test_a_changed_number_is_found_in_every_notebook(notebook):
    """Each printed number of at least 1 is increased by a third, one at a time, in the cells that are compared."""
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
def test_numbers_and_words_are_compared(committed, executed, same):
    assert (compare.differences(notebook_with(committed), notebook_with(executed)) == []) == same


def test_tags_exclude_cells_from_the_comparison():
    assert compare.differences(notebook_with("13 times", tags=["varies"]), notebook_with("9 times, or so")) == []
    training = notebook_with("return -119", tags=["training"])
    assert len(compare.differences(training, notebook_with("return -300"))) == 1
    assert compare.differences(training, notebook_with("return -300", processor="apple-m3")) == []
    assert len(compare.differences(training, notebook_with("loss -119", processor="apple-m3"))) == 1
    assert len(compare.differences(notebook_with("loss 0.50"), notebook_with("loss 0.60", processor="apple-m3"))) == 1


@pytest.mark.parametrize(
    ("text", "quoted", "found"),
    [
        ("about −180", "-180", True),
        ("about −190", "-190", False),
        ("off by 0.69", "0.69", True),
        ("off by 0.68", "0.68", False),
        ("off by 0.69", "0.7", False),  # not the text's digits
        ("8,200 and 0.69", "8,200, 0.69", True),
    ],
)
def test_a_quote_is_an_output_rounded_to_the_texts_digits(text, quoted, found):
    notebook = notebook_with("returns [-181, -173], 0.687, 8,245", f"{text}\n<!-- quoted: {quoted} -->")
    assert (compare.unsupported(notebook) == []) == found


@pytest.mark.parametrize(
    ("name", "cells", "changes", "printed"),
    [
        (
            *("1_quickstart", range(8)),
            {"10_000": "1_000", "episodes=10": "episodes=2", "episodes=20": "episodes=1", "range(15)": "range(1)"},
            "1000 environment steps, 0 gradient updates",
        ),
        (
            *("4_chain_rule_or_direct", (0, 2)),
            *({"[-1.0, 0.5]": "[-1.0, 0.5, 0.0]", "[3.0, 1.0]": "[3.0, 1.0, 2.0]"}, "Jacobians: (50, 3, 31)"),
        ),
        ("5_ema_targets", (0, 1, 2), {"tau = 0.1": "tau = 0.5"}, "after one update with τ = 0.5: "),
        ("7_minimize", (0, 1), {"initializer=10.0": "initializer=3.0"}, "apply_gradients: 2.4 = 3 − 0.1 · 6"),
    ],
)
def test_what_is_printed_follows_a_number_that_a_reader_changes(name, cells, changes, printed, capsys, monkeypatch):
    monkeypatch.setattr(plt, "show", plt.close)
    notebook = json.loads(path_of(name).read_text(encoding="utf-8"))
    code = "\n".join("".join(code_cells(notebook)[cell]["source"]) for cell in cells)
    for number, other in changes.items():
        assert code.count(number) == 1
        code = code.replace(number, other)
    exec(code, {})
    assert printed in capsys.readouterr().out


# -- pages of the site: notebooks are copied before a build, and their links are adapted -----------------


notebook_pages = module_at(FOLDER.parent / "docs" / "extensions" / "notebook_pages.py")


def test_links_of_pages_lead_to_the_notebooks_pages():
    text = (
        "[one](../notebooks/1_quickstart.ipynb) [two](../../notebooks/7_minimize.ipynb) [other](../notebooks/README.md)"
    )
    assert notebook_pages.with_links_to_pages(text) == (
        "[one](/notebooks/1_quickstart.ipynb) [two](/notebooks/7_minimize.ipynb) [other](../notebooks/README.md)"
    )


def test_links_of_notebooks_lead_to_pages():
    assert notebook_pages.as_page("![a](../docs/a.png) [b](../docs/faq.md)") == "![a](../a.png) [b](../faq.md)"


def test_every_notebook_is_copied_once_and_stale_copies_are_deleted(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "0_gone.ipynb").write_text("{}")
    app = SimpleNamespace(srcdir=tmp_path)
    notebook_pages._copy(app, None)
    copied = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "notebooks").iterdir()}
    assert {*copied} == {path.name for path in FOLDER.glob("*.ipynb")}
    notebook_pages._copy(app, None)  # unchanged files are not written, which keeps builds incremental
    assert copied == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "notebooks").iterdir()}
