"""Learning curves of many runs: group them by configuration, and compute statistics over seeds.

:func:`holding` measures whether a run keeps its performance: how far its last evaluation is below its best, and how
often its evaluations dip. It normalizes returns to levels: (return − floor) / (best − floor), so the best evaluation
has level 1. The floor is the return of the first evaluation or 0, whichever is lower. If all returns are positive, the
levels are plain ratios, such as last / best. If the first return is negative, the levels are shares of the improvement
since then; a constant added to every return does not change them as long as the first return stays negative.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpg.config.algorithm_options import NETWORKS
from ddpg.errors import UsageError, printable
from ddpg.interaction.validation import validate_choice
from ddpg.policies.schedules import RATE_SCHEDULES
from ddpg.progress import print_to_stderr
from ddpg.runs.env_source import words_of
from ddpg.runs.found_runs import Run

LEARNED, DIPPED = 0.8, 0.6  # levels: a run has learned once it reaches the first, and dips when below the second
AGAINST = ("steps", "seconds")
MEASURES = {"iqm": "interquartile mean", "mean": "mean"}
_POINTS = 2000  # of a curve over several seeds, at most: more than a picture has columns of pixels
_RESAMPLES = 2000
# Fields of config.json that are not options of the agent, but change the measured returns or seconds.
_RUN_SETTINGS = (
    *("evaluation_episodes", "n_envs", "vectorization", "collector", "workers"),
    *("dataset", "offline_timesteps"),
)
# Options that describe the supplied hidden layers.
_LAYERS = ("hidden", "critic_hidden", "activation", "norm", "critic_norm", "block", "action_layer", "network")


@dataclasses.dataclass(frozen=True)
class Curve:
    """The learning curve of one configuration in one environment, over its seeds.

    Attributes:
        env_id: the environment's id.
        label: how the configuration differs from the others.
        seeds: number of runs.
        times: steps or seconds, ``[T]``.
        centre: the mean or interquartile mean of the seeds' returns, ``[T]``.
        low, high: its 95 % bootstrap interval over seeds, ``[T]``; with one seed, the curve itself.
    """

    env_id: str
    label: str
    seeds: int
    times: np.ndarray
    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray


def learning_curves(
    runs: Sequence[Run], against: str = "steps", measure: str = "iqm", names: Sequence[str] | None = None
) -> list[Curve]:
    """Return a curve for every environment and configuration among ``runs``; runs without an evaluation are left out.

    Without ``names``, if several runs have the same configuration and seed, only the one that was evaluated last
    counts. Lines on stderr name the runs that are left out, and why, and the run whose end is that of its curve though
    other seeds were evaluated later.

    A curve covers the times that all of its seeds have reached, with linear interpolation between the evaluations of
    each seed. Seeds that share no time with most of the others are left out; if every seed has a single evaluation, the
    curve is a point at the last of them. The interval is the percentile bootstrap over seeds (Agarwal et al. 2021,
    arXiv 2108.13264), which never leaves the range of their returns.

    Args:
        runs: the runs, from :func:`ddpg.runs.found_runs.find_runs`.
        against: ``"steps"`` or ``"seconds"``.
        measure: ``"iqm"``, the mean without the lowest and the highest quarter of the seeds, or ``"mean"``.
        names: the label of each run's configuration; by default the options in which it differs from the others.

    Raises:
        UsageError: if a name is unknown, or no run has an evaluation.
    """
    validate_choice(against, "against", AGAINST)
    validate_choice(measure, "measure", MEASURES)
    groups: dict[tuple[str, str], list[Run]] = {}
    evaluated = [run for run in runs if run.rows]
    known = labels(evaluated) if names is None else [n for n, run in zip(names, runs, strict=True) if run.rows]
    for run, label in zip(evaluated, known, strict=True):
        groups.setdefault((run.env_id, label), []).append(run)
    without = [f"{run.path}: {_no_evaluation(run)}" for run in runs if not run.rows]
    if not groups:
        raise UsageError(f"there is nothing to draw: {printable('; '.join(without))}")
    if names is None:
        for one in without:
            print_to_stderr(printable(f"left out: {one}"))
    curves = []
    for (env_id, label), members in groups.items():
        what = f"{env_id}, {label}"
        seeds = _with_common_time(what, _newest_per_seed(what, members) if names is None else members, against)
        if names is None:
            _print_earlier_end(what, seeds, against)
        curves.append(_curve(env_id, label, seeds, against, measure))
    return curves


def labels(runs: Sequence[Run]) -> list[str]:
    """Return for each run a label that names the settings in which the runs of its environment differ.

    Settings are the algorithm, its options, the environment's wrappers and keyword arguments, the number and kind of
    environments and workers, the data set and the timesteps that learn from it alone, the episodes of an evaluation,
    and ``total_timesteps`` where a learning-rate schedule ends there; the seed is none of them. If nothing differs, the
    label is the algorithm.

    A run whose algorithm lacks an option does not make that option part of the other runs' labels.
    """
    found = []
    settings = [_settings(run) for run in runs]
    for run, own in zip(runs, settings, strict=True):
        others = [other for other, of in zip(settings, runs, strict=True) if of.env_id == run.env_id]
        differing = [name for name in own if any(other.get(name, own[name]) != own[name] for other in others)]
        told = {name: _short(own[name], [other.get(name) for other in others]) for name in differing}
        words = [f"{name}={text}" for name, text in told.items() if name != "algorithm"]
        if "algorithm" in differing or not words:
            words.insert(0, str(own["algorithm"]))
        found.append(", ".join(words))
    return found


def format_option(value: Any) -> str:
    """Return an option's value as short text."""
    if isinstance(value, list):
        return "×".join(map(str, value))
    if isinstance(value, dict):
        return str(value.get("custom", value))
    if value is None:
        return "none"
    return str(value) if isinstance(value, str) else json.dumps(value)


def _short(value: Any, others: Sequence[Any]) -> str:
    """Return an option's value as text, a number with six digits unless one of ``others`` then reads the same."""
    if not isinstance(value, float):
        return format_option(value)
    alike = any(isinstance(other, float) and other != value and f"{other:g}" == f"{value:g}" for other in others)
    return format_option(value) if alike else f"{value:g}"


def trimmed_mean(values: np.ndarray, cut: float, axis: int) -> np.ndarray:
    """Return the mean along ``axis`` without the share ``cut`` of the smallest and of the largest, each rounded down.

    Same result as ``scipy.stats.trim_mean``, without the half second that importing ``scipy.stats`` takes.
    """
    count = values.shape[axis]
    left_out = int(cut * count)
    return np.sort(values, axis).take(range(left_out, count - left_out), axis).mean(axis)


@np.errstate(over="ignore", invalid="ignore")
def centre_and_interval(values: np.ndarray, measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the measure of ``[seeds, T]`` and the ends of its 95 % bootstrap interval, each ``[T]``.

    Where a value is infinite, the results can be NaN.
    """
    if len(values) == 1:
        return values[0], values[0], values[0]
    cut = 0.25 if measure == "iqm" else 0.0
    chosen = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    parts = np.array_split(values, math.ceil(values.shape[1] / 100), axis=1)  # all resamples at once would be large
    resampled = (trimmed_mean(part[chosen], cut, axis=1) for part in parts)
    low, high = np.concatenate([np.percentile(part, [2.5, 97.5], axis=0) for part in resampled], axis=1)
    return trimmed_mean(values, cut, axis=0), low, high


def _curve(env_id: str, label: str, runs: Sequence[Run], against: str, measure: str) -> Curve:
    times = [run.times(against) for run in runs]
    grid = np.unique(np.concatenate(times))
    grid = grid[(grid >= max(t[0] for t in times)) & (grid <= min(t[-1] for t in times))]
    if len(grid) > _POINTS and len(runs) > 1:
        grid = grid[np.linspace(0, len(grid) - 1, _POINTS).round().astype(int)]
    if not len(grid):  # each seed has a single evaluation, at another time
        grid = np.array([max(t[0] for t in times)])
    values = np.stack([np.interp(grid, t, run.returns) for t, run in zip(times, runs, strict=True)])
    return Curve(env_id, label, len(runs), grid, *centre_and_interval(values, measure))


def used_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's options, without those of the supplied layers if all its networks are the user's own."""
    networks = [name for name in NETWORKS if name in config]
    own = bool(networks) and None not in (config[name] for name in networks)
    return {name: value for name, value in config.items() if not (own and name in _LAYERS)}


def _settings(run: Run) -> dict[str, Any]:
    document = run.document
    options = {"algorithm": document["algorithm"], **used_options(document["config"])}
    if any(options.get(name) not in (None, "constant") for name in RATE_SCHEDULES):
        options["total_timesteps"] = document["total_timesteps"]
    return options | environment_settings(document) | {name: document[name] for name in _RUN_SETTINGS}


def environment_settings(document: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the wrappers and the keyword arguments of a run's environment as text; ``None`` for none."""
    return {
        "wrappers": "+".join(document["wrappers"]) or None,
        "env_kwargs": ", ".join(words_of(document["env_kwargs"])) or None,
    }


def _no_evaluation(run: Run) -> str:
    """Return why a run has no evaluations: its first one is due later, or their table is lost."""
    if not (run.path / "evaluations.csv").exists():
        return "evaluations.csv is missing"
    if (run.path / "checkpoints" / "best").exists():
        return "evaluations.csv has no rows, though the best of its evaluations is among the checkpoints"
    return "not evaluated yet"


def _newest_per_seed(what: str, runs: Sequence[Run]) -> list[Run]:
    """Return for every seed the run that was evaluated last, and print the runs that are left out."""
    seeds: dict[int, list[Run]] = {}
    for run in runs:
        seeds.setdefault(run.document["seed"], []).append(run)
    kept = []
    for seed, same in seeds.items():
        *older, newest = sorted(same, key=lambda run: os.stat(run.path / "evaluations.csv").st_mtime_ns)
        if older:
            others = ", ".join(str(run.path) for run in older)
            told = f"{what}: seed {seed} is counted once, by the newest run, {newest.path}; left out: {others}"
            print_to_stderr(printable(told))
        kept.append(newest)
    return kept


def _with_common_time(what: str, runs: list[Run], against: str) -> list[Run]:
    """Return the largest set of runs that share a time, and print the runs that are left out."""
    spans = [(times[0], times[-1]) for times in (run.times(against) for run in runs)]
    if all(begin == end for begin, end in spans):
        return runs
    common = max((begin for begin, _ in spans), key=lambda time: sum(begin <= time <= end for begin, end in spans))
    kept = []
    for run, (begin, end) in zip(runs, spans, strict=True):
        if begin <= common <= end:
            kept.append(run)
        else:
            told = f"{what}: left out: {run.path}, whose evaluations end before or begin after those of other seeds"
            print_to_stderr(printable(told))
    return kept


def _print_earlier_end(what: str, runs: Sequence[Run], against: str) -> None:
    """Print which run ends before the others of its curve, because the curve ends there, too."""
    ends = [round(float(run.times(against)[-1]), 1) for run in runs]
    first, last = min(ends), max(ends)
    if first < last:
        unit = against.removesuffix("s")
        told = (
            f"{what}: drawn up to {unit} {first:,.10g}, the last evaluation of {runs[ends.index(first)].path}; other "
            f"seeds have evaluations up to {unit} {last:,.10g}"
        )
        print_to_stderr(printable(told))


class Holding(NamedTuple):
    """How well a run keeps its performance, in the levels that the module's docstring defines.

    Attributes:
        kept: the level of the last evaluation, at most 1; NaN if no evaluation is above the floor, or if a level
            overflows float64. Below 0, the run ended worse than it began; how far below is in units of its gain, so it
            can be any number where the run hardly rose above its first evaluation.
        dips: the share of evaluations with a level below :data:`DIPPED`, among those after the first one that reached
            :data:`LEARNED`; NaN if there are none after it.
    """

    kept: float
    dips: float


def holding(returns: Sequence[float] | np.ndarray) -> Holding:
    """Return how well a run keeps its performance, from the mean return of every evaluation, in order (env units)."""
    values = np.asarray(returns, np.float64)
    if not len(values) or not np.isfinite(values).all():
        return Holding(np.nan, np.nan)
    floor = min(0.0, values[0])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        levels = (values - floor) / (values.max() - floor)
    if not np.isfinite(levels).all():
        return Holding(np.nan, np.nan)
    later = levels[int(np.argmax(levels >= LEARNED)) + 1 :]
    return Holding(float(levels[-1]), float(np.mean(later < DIPPED)) if len(later) else np.nan)
