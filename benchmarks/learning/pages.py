"""Fill the marks ``learning NAME`` on pages with text that is made from the committed CSV."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import marks
from benchmarks.learning import (
    control_suite,
    core_minutes,
    figures,
    gym_published,
    ladder,
    midway,
    paired,
    regulator,
    tables,
)
from benchmarks.learning.long_form import Cell
from ddpg.checkpoints import atomic_write
from ddpg.errors import UsageError

Text = Callable[[Sequence[Cell]], str]
OURS = "learning "  # the prefix of our marks; other modules fill other marks


def _pictured(name: str, title: str, folder: str, *studies: str) -> Text:
    """Return a function that returns the Markdown of a picture if its studies have runs."""
    return lambda cells: f"![{title}]({folder}{name})" if figures.shown(cells, *studies) else ""


_RETURNS = (
    "Evaluation return over environment steps: a panel per environment, a line per recipe, with a band over seeds"
)
_MINUTES = "Evaluation return over seconds of training, for our recipes and Stable-Baselines3's TD3"
_BARS = "The final return of each rung of the ladder, with its interval and every seed"
_ARITHMETIC = (
    "Mean normalised return after 100,000 steps over multiply-adds per step, for ours and six published agents"
)
_CORE_MINUTES = "Evaluation return over core-minutes of training, for ours and algorithms of SBX and Stable-Baselines3"

BLOCKS: dict[str, Text] = {
    "table": lambda cells: tables.table(cells, "table", tables.PEER_STUDY),
    "table picture": _pictured(figures.TABLE, _RETURNS, "", "table", tables.PEER_STUDY),
    "across tasks": tables.across,
    "beside": tables.beside,
    "seconds": tables.seconds,
    "seconds picture": _pictured(figures.SECONDS, _MINUTES, "", tables.PEER_STUDY),
    "core-minutes": core_minutes.table,
    "core-minutes ahead": core_minutes.ahead,
    "core-minutes picture": lambda cells: (
        f"![{_CORE_MINUTES}]({figures.CORE_MINUTES})" if core_minutes.compared(cells) else ""
    ),
    "long": lambda cells: tables.table(cells, *tables.LONG),
    "long picture": _pictured(figures.LONG, _RETURNS, "../", *tables.LONG),
    "ladder": tables.ladder_table,
    "ladder picture": lambda cells: f"![{_BARS}](../{figures.LADDER})" if ladder.environments(cells) else "",
    "holding": lambda cells: tables.holding(cells, "table", *tables.LONG),
    "averaged": paired.averaged,
    "preactivation": paired.preactivation,
    "held": lambda cells: tables.table(cells, "held", "landing"),
    "held holding": lambda cells: tables.holding(cells, "held", "landing"),
    "swimmer": lambda cells: tables.table(cells, "swimmer"),
    "swimmer holding": lambda cells: tables.holding(cells, "swimmer"),
    "walking": lambda cells: tables.table(cells, "walking"),
    "walking holding": lambda cells: tables.holding(cells, "walking"),
    "regulator": regulator.table,
    "million": midway.million_table,
    "of presets": tables.of_presets,
    "others": lambda cells: tables.table(cells, "others", "box2d"),
    "first": lambda cells: tables.by_seed(cells, "first"),
    "others picture": _pictured(figures.OTHERS, _RETURNS, "../", "others", "box2d"),
    "control suite groups": control_suite.by_group,
    "control suite tasks": control_suite.by_task,
    "control suite swing-ups": lambda cells: control_suite.by_task(cells, swing_ups=True),
    "published": gym_published.table,
    "v4": gym_published.v4_table,
    "published picture": lambda cells: f"![{_ARITHMETIC}]({figures.ARITHMETIC})" if gym_published.ours(cells) else "",
    "midway": midway.table,
    "budget": tables.budget,
    "versions of plus": paired.versions,
    "front": tables.front,
    "front midway": midway.sentence,
    "front v4": gym_published.v4_sentence,
    "front picture": _pictured(figures.TABLE, _RETURNS, "docs/", "table", tables.PEER_STUDY),
}
FAMILIES: dict[str, Callable[[Sequence[Cell], str], str]] = {"rung": tables.rung_of, "recipe": tables.recipe_of}


def filled(page: str, cells: Sequence[Cell], where: str) -> str:
    """Return a page with the text of each mark filled in.

    Args:
        page: the page's text.
        cells: the runs.
        where: the page's name, for error messages.

    Raises:
        UsageError: if a mark has an unknown name, occurs twice or has no end.
    """
    for name in marked(page):
        try:
            page = marks.filled(page, OURS + name, _text_of(name, cells))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{where}: {error.args[0]}") from error
    return page


def marked(page: str) -> list[str]:
    """Return the names of our marks on a page."""
    return [name.removeprefix(OURS) for name in marks.names(page) if name.startswith(OURS)]


def _text_of(name: str, cells: Sequence[Cell]) -> str:
    if name in BLOCKS:
        return BLOCKS[name](cells)
    kind, _, which = name.partition(" ")
    if kind in FAMILIES and which:
        return FAMILIES[kind](cells, which)
    known = [*BLOCKS, *(f"{kind} NAME" for kind in FAMILIES)]
    raise KeyError(f"the mark {name!r} is not one of {', '.join(known)}")


def pages_of(root: Path) -> list[Path]:
    """Return the pages that may have marks: README and all pages under docs."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def fill(root: Path, cells: Sequence[Cell]) -> list[Path]:
    """Fill the marks of every page in ``root``; return the pages that changed."""
    changed = []
    for page in pages_of(root):
        text = page.read_text(encoding="utf-8")
        now = filled(text, cells, page.relative_to(root).as_posix())
        if now != text:
            atomic_write.write_text(page, now)
            changed.append(page)
    return changed
