"""The sampler of random mutants: its mutations, each of which changes one place."""

import ast
import functools

import mutations
import pytest
import random_mutants

SOURCE = '''
"""A docstring: 1 + 1."""
import os
LIMIT = 3
NAME: str = "key"

class Box(Base, size=2):
    """Another."""

    low: int = -1

    def width(self, scale: float = 0.5) -> "int":
        """One more."""
        if self.low < 0 and not scale:
            raise ValueError(f"a text for people: {scale + 1:.3f}")
        self.note("prose is left alone", scale)
        return (self.high - self.low) * scale

    def nothing(self):
        return None
'''


def described_mutations(source):
    """Return every mutation of a source with its description."""
    found = [
        one
        for around, statement in mutations.statements(ast.parse(source))
        for one in mutations.mutations(around, statement)
    ]
    return {mutation: mutations.described(source, mutation) for mutation in found}


def test_mutations_by_hand():
    rows = sorted((one.function, one.kind, text) for one, text in described_mutations(SOURCE).items())
    assert rows == sorted(
        [
            ("", "drop", "LIMIT = 3 -> pass"),
            ("", "constant", "3 -> 4"),
            ("", "constant", "3 -> 2"),
            ("", "constant", "'key' -> 'key_'"),
            ("", "constant", "2 -> 3"),
            ("", "constant", "2 -> 1"),
            ("Box", "sign", "-1 -> 1"),
            ("Box", "constant", "1 -> 2"),
            ("Box", "constant", "1 -> 0"),
            ("Box", "constant", "0.5 -> 1.0"),
            ("Box", "constant", "0.5 -> 0.25"),
            ("Box.width", "condition", "self.low < 0 and (not scale) -> not (self.low < 0 and (not scale))"),
            ("Box.width", "and/or", "self.low < 0 and (not scale) -> self.low < 0 or not scale"),
            ("Box.width", "comparison", "self.low < 0 -> self.low <= 0"),
            ("Box.width", "comparison", "self.low < 0 -> self.low >= 0"),
            ("Box.width", "constant", "0 -> 1"),
            ("Box.width", "constant", "0 -> -1"),
            ("Box.width", "not", "not scale -> scale"),
            ("Box.width", "drop", "raise ValueError(f'a text for people: {scale + 1:.3f}') -> pass"),
            ("Box.width", "operator", "scale + 1 -> scale - 1"),
            ("Box.width", "constant", "1 -> 2"),
            ("Box.width", "constant", "1 -> 0"),
            ("Box.width", "drop", "self.note('prose is left alone', scale) -> pass"),
            (
                "Box.width",
                "arguments",
                "self.note('prose is left alone', scale) -> self.note(scale, 'prose is left alone')",
            ),
            ("Box.width", "return", "return (self.high - self.low) * scale -> return"),
            ("Box.width", "operator", "(self.high - self.low) * scale -> (self.high - self.low) / scale"),
            ("Box.width", "operator", "self.high - self.low -> self.high + self.low"),
        ]
    )


def test_the_assignment_of_a_variable_that_an_inner_function_declares_nonlocal_stays():
    """Removing the outer assignment would break compilation; the inner ones can be removed."""
    source = """
def outer():
    count = 0
    other = count
    def inner():
        nonlocal count
        count = 1
        def innermost():
            nonlocal count
            count = 2
"""
    dropped = {(one.function, text) for one, text in described_mutations(source).items() if one.kind == "drop"}
    assert dropped == {
        ("outer", "other = count -> pass"),
        ("outer.inner", "count = 1 -> pass"),
        ("outer.inner.innermost", "count = 2 -> pass"),
    }
    for mutation in described_mutations(source):
        compile(mutations.mutated(source, mutation), "source", "exec")


def test_a_mutation_changes_only_one_statement():
    before = SOURCE.splitlines()
    for mutation in described_mutations(SOURCE):
        changed = mutations.mutated(SOURCE, mutation)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))
        after = changed.splitlines()
        assert len(after) == len(before)
        differing = [number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
        assert differing == [mutation.line]
    with pytest.raises(LookupError):
        mutations.mutated(SOURCE.replace("<", ">"), mutation._replace(line=1))


def test_lines_that_run_a_mutation():
    """A default value belongs to the lines of its function; code that only an import runs is marked."""
    text = "A = 1\n\ndef f(x=2):\n    y = (\n        x + 3\n    )\n    return y\n"
    lines = {
        text: mutations.lines(text_of, one) for text_of in [text] for one, text in described_mutations(text_of).items()
    }
    assert lines["1 -> 2"] == (range(1, 2), True)
    assert lines["2 -> 3"] == (range(3, 8), False)
    assert lines["3 -> 4"] == (range(4, 7), False)


@pytest.mark.slow
def test_a_sample_depends_on_its_seed_and_every_mutant_can_be_made(monkeypatch):
    monkeypatch.setattr(mutations, "all_statements", functools.cache(mutations.all_statements))  # seconds per call
    sample = random_mutants.sample(60, 1)
    assert len({mutant.name for mutant in sample}) == 60
    assert random_mutants.sample(20, 1) == sample[:20]
    assert random_mutants.sample(20, 2) != sample[:20]
    for mutant in sample:
        source = (random_mutants.ROOT / mutant.file).read_text(encoding="utf-8")
        compile(mutations.mutated(source, mutant.mutation), mutant.file, "exec")


def test_tests_of_the_modules_folder_run_first_and_within_the_budget(tmp_path):
    (tmp_path / "a.xml").write_text(
        "<testsuite>"
        '<testcase classname="tests.runs.test_x" name="test_own" time="3"/>'
        '<testcase classname="tests.runs.test_x" name="test_slow" time="50"/>'
        '<testcase classname="tests.runs.test_x" name="test_failed" time="1"><failure/></testcase>'
        '<testcase classname="tests.agents.test_y" name="test_fast" time="1"/>'
        '<testcase classname="tests.agents.test_y" name="test_other" time="1"/>'
        "</testsuite>"
    )
    source = "def f():\n    return 1\n"
    (mutation,) = [one for one, text in described_mutations(source).items() if text == "1 -> 2"]
    covered = random_mutants.Coverage(tmp_path)
    covered.unmeasured = set()
    mutant = random_mutants.Sampled("ddpg/runs/x.py", mutation)
    assert covered.chosen(mutant, source, 30) == []  # no test runs it
    covered.lines["ddpg/runs/x.py"] = {2: {"tests/runs/test_x.py", "tests/agents/test_y.py::test_fast"}}
    assert covered.chosen(mutant, source, 30) == ["tests/runs/test_x.py::test_own", "tests/agents/test_y.py::test_fast"]
    assert len(covered.chosen(mutant, source, 60)) == 3


def test_results_are_read_as_written(tmp_path):
    names = ("mutant", "verdict", "seconds", "tests", "failed", "change")
    rows = [
        dict(zip(names, row, strict=True))
        for row in (["a", "killed", "1", "2", "t", "x, y -> y"], ["b", "survived", "1", "2", "", "z"])
    ]
    random_mutants.write_results(tmp_path / "r.csv", rows)
    assert list(random_mutants.read_results(tmp_path / "r.csv").values()) == rows
    assert random_mutants.report(rows) == "2 mutants: 1 killed, 1 survived; 50.0% killed"
    assert random_mutants.read_results(tmp_path / "none.csv") == {}


def test_only_survivors_have_a_reason():
    """In the committed sample."""
    results = random_mutants.read_results(random_mutants.RESULTS)
    assert len(results) > 100
    assert {row["verdict"] for row in results.values()} <= {"killed", "timeout", "survived", "not run"}
    for name, reason in random_mutants.equivalent().items():
        assert results[name]["verdict"] not in random_mutants.KILLED
        assert reason
