"""List the policies of the zoo, and show the card of one, for ``ddpg zoo``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.config.algorithm_options import CONFIGS
from ddpg.exports import zoo
from ddpg.progress import format_number
from ddpg.runs.evaluation import Evaluation
from ddpg.runs.listing import table
from ddpg.runs.versions import format_versions

ZOO_COLUMNS = ("name", "mean return", "95 % interval", "steps", "recipe", "size")


def list_zoo(folder: Path = zoo.FOLDER) -> list[dict[str, Any]]:
    """Return a summary of every policy.

    Returns:
        For each policy: ``name``, ``env_id``, ``algorithm``, ``recipe``, ``timesteps``, ``bytes``, and the fields of
        :meth:`Evaluation.summary` of its card.
    """
    entries = [zoo.read_entry(name, folder) for name in zoo.names(folder)]
    return [
        {
            "name": entry.name,
            "env_id": entry.card.env_id,
            "algorithm": entry.card.algorithm,
            "recipe": entry.card.recipe,
            "timesteps": entry.card.timesteps,
            "bytes": entry.size,
            **evaluation_of(entry.card).summary(),
        }
        for entry in entries
    ]


def zoo_rows(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of each policy's row, as text, in the order of :data:`ZOO_COLUMNS`."""
    return [
        (
            row["name"],
            format_number(row["mean_return"]),
            f"{format_number(row['ci95_low'])} to {format_number(row['ci95_high'])}",
            f"{row['timesteps']:,}",
            row["recipe"] or "",
            f"{row['bytes'] / 1000:,.0f} kB",
        )
        for row in rows
    ]


def zoo_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the policies as a table for people, with the command that shows the first one."""
    lines = table([ZOO_COLUMNS, *zoo_rows(rows)], numbers=("mean return", "95 % interval", "steps", "size"))
    return lines + "\n" + (f"Watch one: ddpg watch {zoo.PREFIX}{rows[0]['name']}" if rows else "none yet")


def evaluation_of(card: zoo.Card) -> Evaluation:
    """Return the evaluation recorded in a card."""
    found = card.evaluation
    successes = None if found.successes is None else np.array(found.successes)
    return Evaluation(np.array(found.returns), np.array(found.lengths), successes=successes)


def card_text(entry: zoo.Entry) -> str:
    """Return a card as Markdown."""
    card = entry.card
    usual = CONFIGS[card.algorithm]().to_json() if card.algorithm in CONFIGS else {}
    options = [f"- `{name} = {value!r}`" for name, value in card.options.items() if usual.get(name) != value]
    return "\n".join(
        [
            f"# zoo:{entry.name}",
            "",
            f"- environment: {card.env_id}",
            f"- returns: {evaluation_of(card)}, seed {card.evaluation.seed}",
            f"- evaluated with: {format_versions(card.evaluation.versions)}",
            f"- training: {card.algorithm}, {card.timesteps:,} steps, seed {card.seed}, `{card.command}`",
            f"- trained with: {format_versions(card.versions)}",
            f"- license: {card.license}",
            f"- size: {entry.size:,} bytes",
            "",
            "Options that differ from the defaults:",
            "",
            *options,
        ]
    )
