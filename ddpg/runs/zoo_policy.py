"""Evaluate, record, watch, export and list the policies of the zoo. Only export imports TensorFlow."""

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError, did_you_mean
from ddpg.exports import policy_file, zoo
from ddpg.exports.numpy_policy import LoadedPolicy, load_policy
from ddpg.exports.zoo import Card, Entry
from ddpg.interaction import env_calls
from ddpg.progress import format_number
from ddpg.runs import run_config
from ddpg.runs.env_factory import make_env
from ddpg.runs.evaluation import Evaluation, evaluate
from ddpg.runs.video import drawing, record_drawn, watch_drawn

COLUMNS = ("name", "mean return", "95 % interval", "steps", "recipe", "size")
_NUMBERS = ("mean return", "95 % interval", "steps", "size")  # columns to align right


def evaluate_entry(
    name: str, episodes: int, seed: int | None = None, progress_bar: bool = False
) -> tuple[dict[str, Any], str]:
    """Evaluate a policy in its environment.

    With the card's seed, and if :func:`differences_here` is empty, the returns equal the card's first ``episodes``
    returns.

    Args:
        name: ``zoo:NAME``.
        episodes: number of episodes.
        seed: seed of the first reset; by default the card's.
        progress_bar: show one on stderr.

    Returns:
        A dict with ``run``, ``env_id``, ``timesteps``, ``seed``, the fields of :meth:`Evaluation.summary`, and
        ``card_mean_return``: the card's mean over the same episodes, ``None`` if it does not have them. Then the same
        as one line of text.

    Raises:
        UsageError: if there is no such policy, or a package that its environment needs is missing.
        EnvironmentFault: as :func:`~ddpg.runs.evaluation.evaluate`.
    """
    entry = zoo.read_entry(name)
    card = entry.card
    seed = card.evaluation.seed if seed is None else seed
    with env_calls.own_directory():
        env = make_env(card.env_id)
        with env_calls.closing(env):
            policy = _fitting(entry, (env.observation_space, env.action_space))
            result = evaluate(policy, env, episodes, seed, progress_bar=progress_bar)
    known = seed == card.evaluation.seed and episodes <= len(card.evaluation.returns)
    of_card = float(np.mean(card.evaluation.returns[:episodes])) if known else None
    summary = {
        "run": f"{zoo.PREFIX}{entry.name}",
        "env_id": card.env_id,
        "timesteps": card.timesteps,
        "seed": seed,
        **result.summary(),
        "card_mean_return": of_card,
    }
    text = f"{card.env_id} after {card.timesteps:,} steps: {result}"
    if of_card is not None:
        others = differences_here(card)
        text += f"; its card: {format_number(of_card)}" + f" ({others})" * bool(others)
    return summary, text


def record_entry(
    name: str, output: str | Path | None = None, *, episodes: int = 1, seed: int | None = None
) -> dict[str, Any]:
    """Record episodes of a policy.

    Args:
        name: ``zoo:NAME``.
        output: a ``.gif`` or ``.mp4``; by default ``NAME.gif`` in the working directory.
        episodes: number of episodes.
        seed: seed of the first episode; by default the card's.

    Returns:
        ``path``, ``env_id``, ``timesteps``, ``episodes`` and ``seed``.

    Raises:
        UsageError: if there is no such policy, or as :func:`ddpg.record`.
    """
    entry = zoo.read_entry(name)
    seed = entry.card.evaluation.seed if seed is None else seed
    with env_calls.own_directory(), drawing(entry.card.env_id) as drawn:
        path = record_drawn(_fitting(entry, drawn.spaces), drawn, output or f"{entry.name}.gif", episodes, seed)
    return {
        "path": str(path),
        "env_id": entry.card.env_id,
        "timesteps": entry.card.timesteps,
        "seed": seed,
        "episodes": episodes,
    }


def watch_entry(name: str, *, episodes: int = 1, seed: int | None = None) -> None:
    """Show episodes of a policy in a window; arguments and errors as those of :func:`record_entry`."""
    entry = zoo.read_entry(name)
    card = entry.card
    seed = card.evaluation.seed if seed is None else seed
    with env_calls.own_directory(), drawing(card.env_id) as drawn:
        title = f"{card.env_id} after {card.timesteps:,} steps"
        watch_drawn(_fitting(entry, drawn.spaces), drawn, episodes, seed, title)


def export_entry(
    name: str,
    format: str = "numpy",
    output: str | Path | None = None,
    quantize: str | None = None,
    c_name: str = "policy",
) -> dict[str, Any]:
    """Write a policy in another format; imports TensorFlow.

    Args:
        name: ``zoo:NAME``.
        format: one of :data:`ddpg.exports.export.FORMATS`.
        output: the path to write; by default, in the working directory, NAME followed by the format's usual name.
        quantize: as for :func:`ddpg.runs.saved_policy.export_run`.
        c_name: as ``name`` of that function.

    Returns:
        ``path``, ``format``, ``timesteps``, and ``difference`` and ``difference_unit`` as
        :func:`ddpg.runs.saved_policy.export_run`.

    Raises:
        UsageError: if there is no such policy, or as :meth:`ddpg.DDPG.export`.
    """
    entry = zoo.read_entry(name)
    from ddpg.exports.export import FORMATS, NAMES, check_options, export, unit_of_difference
    from ddpg.exports.policy_graph import acting_policy

    if format not in FORMATS:
        raise UsageError(f"format={format!r} is not one of {', '.join(FORMATS)}{did_you_mean(format, FORMATS)}")
    check_options(format, quantize, c_name)
    output = f"{entry.name}_{NAMES[format]}" if output is None else output
    with acting_policy(*policy_file.read(entry.folder)) as parts:
        difference = export(output, format, parts, quantize, c_name)
        unit = unit_of_difference(parts.actions.space)
    return {
        "path": str(output),
        "format": format,
        "timesteps": entry.card.timesteps,
        "difference": difference,
        "difference_unit": unit,
    }


def _fitting(entry: Entry, spaces: tuple[gym.Space, gym.Space]) -> LoadedPolicy:
    """Return the policy, after checking that the environment still has its spaces."""
    policy = load_policy(f"{zoo.PREFIX}{entry.name}")
    for what, here in zip(("observation_space", "action_space"), spaces, strict=True):
        own = getattr(policy, what)
        if own.shape != here.shape or type(own) is not type(here):
            raise UsageError(
                f"{entry.card.env_id} has {what} {here} here, and zoo:{entry.name} is for {own}: it was trained with "
                f"{_listed(entry.card.evaluation.versions)}"
            )
    return policy


def evaluation_of(card: Card) -> Evaluation:
    """Return the evaluation recorded in a card."""
    found = card.evaluation
    successes = None if found.successes is None else np.array(found.successes)
    return Evaluation(np.array(found.returns), np.array(found.lengths), successes=successes)


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
    """Return the cells of each policy's row, as text, in the order of :data:`COLUMNS`."""
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
    cells = [COLUMNS, *zoo_rows(rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
            for column, cell, width in zip(COLUMNS, row, widths, strict=True)
        )
        for row in cells
    ]
    return "\n".join([*lines, f"Watch one: ddpg watch {zoo.PREFIX}{rows[0]['name']}" if rows else "none yet"])


def card_text(entry: Entry) -> str:
    """Return a card as Markdown."""
    card = entry.card
    usual = _defaults(card.algorithm)
    options = [f"- `{name} = {value!r}`" for name, value in card.options.items() if usual.get(name) != value]
    return "\n".join(
        [
            f"# zoo:{entry.name}",
            "",
            f"- environment: {card.env_id}",
            f"- returns: {evaluation_of(card)}, seed {card.evaluation.seed}",
            f"- evaluated with: {_listed(card.evaluation.versions)}",
            f"- training: {card.algorithm}, {card.timesteps:,} steps, seed {card.seed}, `{card.command}`",
            f"- trained with: {_listed(card.versions)}",
            f"- license: {card.license}",
            f"- size: {entry.size:,} bytes",
            "",
            "Options that differ from the defaults:",
            "",
            *options,
        ]
    )


def _defaults(algorithm: str) -> dict[str, Any]:
    from ddpg.config.algorithm_options import CONFIGS

    return CONFIGS[algorithm]().to_json() if algorithm in CONFIGS else {}


def versions_here() -> dict[str, str]:
    """Return the versions that an evaluation depends on, by package; call it after the environment is made.

    ``machine`` is the processor and operating system. ``functions`` is a checksum of NumPy's sines, exponentials and
    similar functions, because the last bits of their results depend on the processor's vector instructions.
    """
    found = {
        name: version
        for name, version in run_config.versions_here().items()
        if name not in ("tensorflow", "tflearn", "llvmlite", "ddpg-paths")
    }
    return {**found, "machine": f"{platform.machine()} {platform.system()}", "functions": _functions()}


def _functions() -> str:
    values = np.linspace(-4, 4, 1001)
    found = [function(values) for function in (np.sin, np.cos, np.tanh, np.exp, np.arctan)]
    found += [np.hypot(values, values[::-1]), np.arctan2(values, values[::-1])]
    return hashlib.sha256(np.stack(found).tobytes()).hexdigest()[:12]


def differences_here(card: Card) -> str:
    """Return the differences between this machine and the card's that can change returns; empty if there are none."""
    before = {name: version for name, version in card.evaluation.versions.items() if name not in ("python", "numpy")}
    return run_config.differences(before, versions_here())


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
