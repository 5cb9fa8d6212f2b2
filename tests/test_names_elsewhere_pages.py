"""The pages for users of Stable-Baselines3 and CleanRL: the names of this package exist, and agree with its hints."""

import dataclasses
import inspect
import re
from pathlib import Path

import gymnasium
import pytest

import ddpg
from ddpg.cli.main import COMMANDS
from ddpg.config import name_hints

PAGES = Path(__file__).parents[1] / "docs" / "how_to"
OPTIONS = {field.name for kind in (ddpg.DDPGConfig, ddpg.DQNConfig) for field in dataclasses.fields(kind)}
ARGUMENTS = {
    name
    for function in (ddpg.train, ddpg.DDPG.learn, ddpg.EvalCallback.__init__)
    for name in inspect.signature(function).parameters
}
FLAGS = {name: {*command.flags()} | (OPTIONS if name == "train" else set()) for name, command in COMMANDS.items()}


def tables(page):
    """Return the rows of a page's tables by their header, each a tuple of cells."""
    found = {}
    for block in re.findall(r"(?:^\|.*\n)+", (PAGES / page).read_text(encoding="utf-8"), flags=re.MULTILINE):
        head, _, *rows = [tuple(cell.strip() for cell in line.strip()[1:-1].split("|")) for line in block.splitlines()]
        found[head] = rows
    return found


def spans(cell):
    return re.findall(r"`([^`]+)`", cell)


def check_exists(span):
    """Fail unless a code span names a command, flag, option, name or attribute of this package."""
    words = span.split()
    if words[0] == "ddpg":
        assert words[1] in COMMANDS, span
    flags = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
    known = FLAGS[words[1]] if words[0] == "ddpg" else set().union(*FLAGS.values())
    assert {*flags} <= known, f"{span}: no such flag"
    if words[0] == "ddpg" or flags or span.isupper():  # WANDB_PROJECT is an environment variable
        return
    owner, _, name = re.match(r"[\w.]+", span)[0].rpartition(".")
    if owner == "ddpg":
        assert name in ddpg.__all__, span
    elif owner in ("agent", "DDPG"):
        assert hasattr(ddpg.DDPG, name) or name == "num_timesteps", span  # of instances
    elif owner == "gym":
        assert hasattr(gymnasium, name), span
    else:
        assert name in OPTIONS | ARGUMENTS | {"learn", *ddpg.__all__}, (
            f"{span}: neither an option nor a name of the package"
        )


HERE = [
    (page, head, row, column)
    for page in ("from_sb3.md", "from_cleanrl.md")
    for head, rows in tables(page).items()
    for row in rows
    for column, title in enumerate(head)
    if "here" in title
]


@pytest.mark.parametrize(("page", "head", "row", "column"), HERE, ids=[f"{one[0]}: {one[2][0]}" for one in HERE])
def test_the_names_here_exist(page, head, row, column):
    for span in spans(row[column]):
        if not span.startswith("rollout/"):
            check_exists(span)


def test_the_pages_have_enough_rows_in_both_directions():
    assert len(HERE) > 80
    for page in ("from_sb3.md", "from_cleanrl.md"):
        heads = [*tables(page)]
        assert any(head[0] == "here" for head in heads)
        assert any("here" in head[1:] for head in heads)


NAMES = [(page, row) for page in ("from_sb3.md", "from_cleanrl.md") for row in next(iter(tables(page).values()))]


@pytest.mark.parametrize(("page", "row"), NAMES, ids=[f"{page}: {row[0]}" for page, row in NAMES])
def test_the_command_lines_hint_is_what_the_page_says(page, row):
    """The name is the same here, or has a hint that is in the row, or advice of its own."""
    here = {
        word.removeprefix("--").replace("-", "_")
        for cell in row[1:]
        for span in spans(cell)
        for word in re.findall(r"--[\w-]+|^\w+", span)
    }
    for span in spans(row[0]):
        name = span.split()[0].removeprefix("--").replace("-", "_")
        if name not in here and name not in name_hints.ADVICE and name not in name_hints.OPTIONS:
            assert name_hints.renamed(name, here), (
                f"{name}: the page says {sorted(here)}, the command line {name_hints.RENAMED.get(name)}"
            )
