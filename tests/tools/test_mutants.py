"""The list of mutants matches the source: every node to replace is in its function. No mutant is run."""

import ast
import functools

import mutants
import pytest

MUTANTS = sorted(mutants.listed(), key=lambda mutant: mutant.file)  # a source is parsed once


@functools.cache
def text_of(path):
    return (mutants.ROOT / path).read_text(encoding="utf-8")


def dump_of(source):
    return ast.dump(ast.parse(source.strip("\n")))


def outermost_change(source, changed):
    """Return the statement of the module in which they differ; to compile all of it would take most of the time."""
    lines, others = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = 1 + next(number for number, (one, other) in enumerate(zip(lines, others, strict=False)) if one != other)
    node = next(node for node in mutants._parsed(source).body if node.end_lineno >= first)
    start = min(one.lineno for one in (node, *getattr(node, "decorator_list", ()))) - 1
    return "".join(others[start : node.end_lineno + len(others) - len(lines)])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_not_stale(mutant):
    source = text_of(mutant.file)
    changed = mutants.broken(mutant, source)  # raises LookupError if it is stale
    assert changed != source
    if mutant.file.endswith(".py"):
        compile(outermost_change(source, changed), mutant.file, "exec")
        before, after = (mutant.node, mutant.becomes) if mutant.node else (source, changed)
        assert dump_of(after) != dump_of(before)
    file, _, test = mutant.tests.partition("::")
    assert f"def {test.partition('[')[0]}" in text_of(file)


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 100


SOURCE = """
def one():
    if a:
        return f(a) + f(a)
    b()


class C:
    def one(self):
        b()
        c = (1,
             2)
        return c
"""


@pytest.mark.parametrize(
    ("function", "node", "becomes", "occurrence", "expected"),
    [
        ("one", "a", "x", 1, "    if (x):"),
        ("one", "f(a)", "2", 2, "        return f(a) + (2)"),
        ("one", "b()", "pass", 1, "    pass"),
        ("C.one", "b()\nc = (1, 2)", "c = ()", 1, "        c = ()\n        return c"),
        ("C.one", "(1, 2)", "3", 1, "        c = (3)"),
    ],
)
def test_a_node_in_its_function_is_replaced(function, node, becomes, occurrence, expected):
    mutant = mutants.Mutant("x", "a.py", "t", function, node, becomes, occurrence)
    changed = mutants.broken(mutant, SOURCE)
    assert expected in changed
    compile(changed, "a.py", "exec")


def test_stale_mutants_are_reported(tmp_path):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "a.toml").write_text("one = 1\ntwo = 1\n")

    def problem(file="a.py", **fields):
        return mutants.stale(mutants.Mutant("x", file, "t", **fields), tmp_path)

    assert problem(function="one", node="b()", becomes="pass") is None
    assert "0 times" in problem(function="one", node="d()", becomes="pass")
    assert "1 times" in problem(function="one", node="b()", becomes="pass", occurrence=2)
    assert "no function two" in problem(function="two", node="b()")
    assert problem("a.toml", old="one", new="six") is None
    assert "2 times" in problem("a.toml", old="= 1", new="")
    assert "does not exist" in problem("b.py")


def test_list_and_unknown_names(capsys):
    assert mutants.main(["--list", "--only", "best-is"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["best-is-worst", "best-is-latest"]
    with pytest.raises(SystemExit):
        mutants.main(["--only", "nothing-of-the-kind"])
