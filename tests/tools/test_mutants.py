"""The list of mutants goes with the source: every text to replace is there, once. Nothing is run."""

import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
mutants = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)
MUTANTS = mutants.listed()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_not_stale(mutant):
    assert mutants.stale(mutant) is None
    assert mutant.old != mutant.new
    source = (mutants.ROOT / mutant.file).read_text(encoding="utf-8")
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")
    file, _, test = mutant.tests.partition("::")
    assert f"def {test.partition('[')[0]}" in (mutants.ROOT / file).read_text(encoding="utf-8")


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 100


def test_staleness_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("one = 1\ntwo = 1\n")
    for old, problem in [
        ("one", None),
        ("= 1", "'= 1' occurs 2 times in a.py"),
        ("six", "'six' occurs 0 times in a.py"),
    ]:
        assert mutants.stale(mutants.Mutant("x", "a.py", old, "", "t"), tmp_path) == problem
    assert "does not exist" in mutants.stale(mutants.Mutant("x", "b.py", "", "", "t"), tmp_path)


def test_list_and_unknown_names(capsys):
    assert mutants.main(["--list", "--only", "best-is"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["best-is-worst", "best-is-latest"]
    with pytest.raises(SystemExit):
        mutants.main(["--only", "nothing-of-the-kind"])
