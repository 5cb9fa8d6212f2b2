"""Docstrings: ``Raises:`` states the condition under which an error is raised."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from conftest import module_at

ROOT = Path(__file__).parents[1]
MODULES = [path for folder in ("ddpg", "envs") for path in sorted((ROOT / folder).rglob("*.py"))]
ITEM = re.compile(r"    (?P<error>[A-Za-z]\w*(?:\.\w+)*): (?P<text>.*(?:\n {8,}.*)*)")


def raised(module):
    """Yield (line, error, text) for every item below a ``Raises:`` in a module's docstrings."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            docstring = inspect.cleandoc(ast.get_docstring(node))
            for section in re.findall(r"^Raises:\n((?: {4,}.*\n?)+)", docstring, re.MULTILINE):
                for item in ITEM.finditer(section):
                    yield getattr(node, "lineno", 1), item["error"], item["text"]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_raises_states_the_condition(module):
    for line, error, text in raised(module):
        assert re.match(r"(if|when|unless|as|the same|in every case)\b", text), f"{module}:{line}: {error}: {text}"


def test_the_pattern_finds_the_items():
    assert sum(len(list(raised(module))) for module in MODULES) > 300


def test_an_entry_for_several_names_is_whole_for_each_on_the_site():
    extension = module_at(ROOT / "docs" / "extensions" / "docstrings.py")
    lines = ["Attributes:", "    actor, critic: the networks; call them", "        in a session.", "    replay: rows."]
    network = "the networks; call them", "        in a session."
    assert extension.tables_and_bars(lines) == [
        *("Attributes:", f"    actor: {network[0]}", network[1], f"    critic: {network[0]}", network[1]),
        "    replay: rows.",
    ]
