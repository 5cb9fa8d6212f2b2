"""List runs with their progress and last returns, and the policies of the zoo, for ``ddpg runs`` and ``ddpg zoo``."""

import dataclasses
import functools
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.config.algorithm_options import CONFIGS, AgentConfig, DDPGConfig
from ddpg.config.presets import RECIPES, ddpg_recipe, preset_for
from ddpg.errors import UsageError, printable
from ddpg.exports import zoo
from ddpg.progress import format_number
from ddpg.runs import run_directory
from ddpg.runs.curves import Holding, environment_settings, format_option, holding, used_options
from ddpg.runs.evaluation import Evaluation
from ddpg.runs.found_runs import Run, runs_at
from ddpg.runs.lock import LOG, is_cell_running, is_run_locked
from ddpg.runs.tables import read_table
from ddpg.runs.versions import format_versions

RUN_COLUMNS = ("run", "algorithm", "steps", "last", "best", "kept", "dips", "age", "state", "options")
ZOO_COLUMNS = ("name", "mean return", "95 % interval", "steps", "recipe", "size")


def list_runs(root: str | Path = "runs") -> list[dict[str, Any]]:
    """Return a summary of every run below ``root``; unreadable runs are skipped with a line on stderr.

    Returns:
        For each run: ``run``, ``env_id``, ``algorithm``, ``seed``, ``recipe`` (the one nearest to the run's options;
        ``None`` if no recipe is nearer than the environment's preset), ``options`` (those that differ from the recipe
        or the preset), ``wrappers``, ``env_kwargs``, ``timesteps``, ``total_timesteps``, ``last_return``,
        ``best_return`` (``None`` before the first evaluation), ``kept`` and ``dips`` (:mod:`ddpg.runs.curves`; ``None``
        where they are undefined), ``age_seconds`` since the last write, and ``state``: running, finished, interrupted,
        or unknown without permission to read the lock.

    Raises:
        UsageError: if there is no such directory.
    """
    if not Path(root).is_dir():
        run_directory.refuse_zoo(root)
        raise UsageError(f"no directory {str(root)!r}; train something, or name the one that holds runs")
    return [row for _, row in runs_at(Path(root), _summary)]


def runs_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the runs as a table for people."""
    if not rows:
        return "no runs yet"
    return table([RUN_COLUMNS, *map(_table_row, rows)])


def table(rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """Return rows of cells as lines; the first row names the columns, and those in ``numbers`` are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, cell, width in zip(rows[0], row, widths, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _summary(run: Run) -> dict[str, Any]:
    metrics = read_table(run.path / "metrics.csv")
    steps = [int(float(rows[-1]["timesteps"])) for rows in (metrics, run.rows) if rows]
    steps += [int(path.name) for path in run_directory.checkpoints(run.path)]  # where a run was stopped between rows
    total = run.document["total_timesteps"]
    timesteps = max(steps, default=0)
    # A cell on a cluster locks its run there; on this machine only its log is locked.
    running = True if timesteps < total and is_cell_running(run.path.parent / LOG) else is_run_locked(run.path)
    returns = run.returns.tolist()
    recipe, options = _nearest_recipe(run)
    written = max(path.stat().st_mtime for path in run.path.iterdir() if path.suffix in (".csv", ".json"))
    return {
        "run": str(run.path),
        "env_id": run.env_id,
        "algorithm": run.document["algorithm"],
        "seed": run.document["seed"],
        "recipe": recipe,
        "options": options,
        **{name: run.document[name] for name in ("wrappers", "env_kwargs")},
        "timesteps": timesteps,
        "total_timesteps": total,
        "last_return": returns[-1] if returns else None,
        "best_return": max(returns, default=None),
        **{name: None if np.isnan(value) else value for name, value in holding(returns)._asdict().items()},
        "age_seconds": max(0.0, time.time() - written),
        "state": _state(running, timesteps >= total),
    }


def _state(running: bool | None, reached: bool) -> str:
    if running is None:
        return "unknown"
    return "running" if running else "finished" if reached else "interrupted"


def _nearest_recipe(run: Run) -> tuple[str | None, dict[str, Any]]:
    """Return the recipe nearest to a run's options (``None``: the preset), and the options that differ from it."""
    own, total = run.document["config"], run.document["total_timesteps"]
    kind = options_class(run.document["algorithm"], own)
    if kind is None:
        return None, {}

    def changed(base: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in used_options(own).items() if base.get(name) != value}

    presets = _presets(run.env_id, kind, total)  # type: ignore[arg-type]  # the class has a hash, its objects none
    found: list[tuple[str | None, dict[str, Any]]] = [(None, changed(base)) for base in presets]
    if kind is DDPGConfig:
        found += [(name, changed(_recipe(name))) for name in RECIPES]
    return min(found, key=lambda one: len(one[1]))  # on a tie the preset, which comes first


def options_class(algorithm: str, options: dict[str, Any]) -> type[AgentConfig] | None:
    """Return the class of an algorithm's options; of a custom one the largest built-in class with only such options."""
    if algorithm in CONFIGS:
        return CONFIGS[algorithm]
    kinds = [kind for kind in CONFIGS.values() if {field.name for field in dataclasses.fields(kind)} <= {*options}]
    return max(kinds, key=lambda kind: len(dataclasses.fields(kind)), default=None)


@functools.cache  # runs of an environment share them, and checking their options took two fifths of a listing
def _presets(env_id: str, kind: type[AgentConfig], total: int) -> list[dict[str, Any]]:
    """Return all options of an environment's preset, and of the preset as a run of ``total`` timesteps uses it."""
    preset = preset_for(env_id, kind)
    return [kind(**options).to_json() for options in (preset.options, preset.options_for(kind, total))]


@functools.cache
def _recipe(name: str) -> dict[str, Any]:
    return DDPGConfig(**ddpg_recipe(name)).to_json()


def _table_row(row: dict[str, Any]) -> tuple[str, ...]:
    recipe = {} if row["recipe"] is None else {"recipe": row["recipe"]}
    environment = {name: text for name, text in environment_settings(row).items() if text is not None}
    shown = {**recipe, **row["options"], **environment}
    options = ", ".join(f"{name}={format_option(value)}" for name, value in shown.items())
    steps = f"{row['timesteps']:,}/{row['total_timesteps']:,}"
    returns = ("" if row[name] is None else format_number(row[name]) for name in ("last_return", "best_return"))
    held = ("" if row[name] is None else _percentage(row[name]) for name in Holding._fields)
    cells = row["run"], row["algorithm"], steps, *returns, *held, _age(row["age_seconds"]), row["state"], options
    return tuple(map(printable, cells))


def _percentage(share: float) -> str:
    """Return a share as text; below -1 the number itself is left out, because it can be any, such as -490,000 %."""
    return "<-100%" if share < -1 else f"{share:.0%}"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


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
