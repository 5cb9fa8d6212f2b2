"""Learning from data sets of our own agents: behaviour cloning, TD3+BC, and fine-tuning in the environment.

    OMP_NUM_THREADS=1 python -m benchmarks.learning.offline Pendulum-v1    # into benchmarks/results/offline.csv
    python -m benchmarks.learning.offline --write                          # from there into docs/offline.md

Four data sets of an environment: of uniformly random actions; of a medium and of an expert agent, which act with the
noise they learned with; and a mixture, a third of each. Everything is seeded; agents and data are made by their own
seeds, which no run that is reported has. What the CSV has is not run again.
"""

import argparse
import csv
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import ddpg
from benchmarks import marks
from ddpg.config.options import from_toml
from ddpg.config.presets import read_recipe
from ddpg.progress import format_number
from ddpg.runs import run_directory
from ddpg.runs.dataset import KEYS
from ddpg.studies.study_report import iqm_over_seeds

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "offline.csv"
PAGE = ROOT / "docs" / "offline.md"
DATA = ("random", "medium", "expert", "mixture")
METHODS = {"behaviour cloning": {"bc_alpha": 0.0, "bc_only": True}, "TD3+BC": {}}
FINE_TUNED = "fine-tuned"
AGENT_SEEDS = {"medium": 9_001, "expert": 9_002}
EPISODES = 20  # of an evaluation


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much is made and learned in an environment.

    Attributes:
        medium, expert: environment steps that these agents learn, with the environment's preset.
        transitions: of a data set.
        updates: of a run.
        steps: in the environment afterwards.
        changes: options that differ from the recipe ``td3_bc``.
    """

    medium: int
    expert: int
    transitions: int
    updates: int
    steps: int
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)


SETTINGS = {
    "Pendulum-v1": Setting(5_000, 10_000, 10_000, 10_000, 5_000, {"hidden": (64, 64)}),
    "Hopper-v5": Setting(30_000, 200_000, 200_000, 200_000, 50_000),
    "HalfCheetah-v5": Setting(10_000, 100_000, 200_000, 200_000, 50_000),
}
SEEDS = (0, 1, 2)


class Row(NamedTuple):
    """One measured return: a method's on a data set, beside that of the data."""

    env_id: str
    data: str
    method: str
    seed: int
    timesteps: int
    mean_return: float
    data_return: float


def collect(
    env: gym.Env, act: Callable[[np.ndarray], np.ndarray], transitions: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the arrays of a data set: whole episodes, cut after ``transitions``; the first is seeded."""
    rows: list[tuple] = []
    while len(rows) < transitions:
        observation, _ = env.reset(seed=None if rows else seed)
        ended = False
        while not ended and len(rows) < transitions:
            action = act(observation)
            following, reward, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
            cut = truncated or len(rows) + 1 == transitions
            rows.append((observation, action, reward, following, terminated, cut and not terminated))
            observation = following
    return {names[0]: np.array(column) for names, column in zip(KEYS.values(), zip(*rows, strict=True), strict=True)}


def mean_return(arrays: dict[str, np.ndarray]) -> float:
    """Return the mean return of the episodes of a data set; the last one may have been cut."""
    ends = np.flatnonzero(arrays["terminations"] | arrays["truncations"])
    return float(np.mean([part.sum() for part in np.split(arrays["rewards"], ends + 1)[:-1]]))


def make_data(env_id: str, setting: Setting, folder: Path) -> dict[str, tuple[Path, float]]:
    """Write the data sets of an environment; return ``{name: (path, mean return)}``."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with gym.make(env_id) as env:
        low, high = env.action_space.low, env.action_space.high
        rng = np.random.default_rng(9_100)
        found["random"] = collect(env, lambda _: rng.uniform(low, high).astype(low.dtype), setting.transitions, 9_100)
        for name, seed in AGENT_SEEDS.items():
            steps = getattr(setting, name)
            options: dict[str, Any] = {"seed": seed, "total_timesteps": steps, "root": folder / name}
            run = ddpg.train(env_id, evaluation_interval=steps, progress_bar=False, **options)
            agent = ddpg.DDPG.load(run)
            act = lambda s, agent=agent: agent.predict(s, deterministic=False)[0]  # noqa: E731
            found[name] = collect(env, act, setting.transitions, seed + 100)
            agent.close()
    thirds = [{field: array[: setting.transitions // 3] for field, array in found[name].items()} for name in found]
    for part in thirds:  # each is cut where it ends
        part["truncations"] = part["truncations"].copy()
        part["truncations"][-1] |= not part["terminations"][-1]
    found["mixture"] = {field: np.concatenate([part[field] for part in thirds]) for field in thirds[0]}
    paths = {}
    for name, arrays in found.items():
        path = folder / f"{name}.npz"
        np.savez(path, **arrays)
        paths[name] = path, mean_return(arrays)
    return paths


def last_return(run: Path, goal: int) -> float:
    """Return the mean return of a run's evaluation at its goal.

    Raises:
        SystemExit: if the run was stopped before it.
    """
    rows = run_directory.read_table(run / "evaluations.csv")
    if not rows or int(rows[-1]["timesteps"]) != goal:
        raise SystemExit(f"{run} was stopped before its {goal} timesteps; the next start makes it anew")
    return float(rows[-1]["mean_return"])


def cell(
    env_id: str, setting: Setting, data: str, path: Path, told: float, method: str, seed: int, root: Path
) -> list[Row]:
    """Return the rows of one run: after its updates and, of TD3+BC, after the steps in the environment too."""
    options = from_toml(ddpg.DDPGConfig, read_recipe("td3_bc"), "td3_bc") | setting.changes | METHODS[method]
    run = ddpg.train(
        env_id,
        ddpg.DDPGConfig(**options),
        dataset=path,
        seed=seed,
        total_timesteps=setting.updates,
        evaluation_interval=setting.updates,
        evaluation_episodes=EPISODES,
        root=root,
        progress_bar=False,
    )
    rows = [Row(env_id, data, method, seed, setting.updates, last_return(run, setting.updates), told)]
    if method == "TD3+BC":
        goal = setting.updates + setting.steps
        ddpg.resume(run, offline_timesteps=setting.updates, total_timesteps=goal, progress_bar=False)
        rows.append(Row(env_id, data, FINE_TUNED, seed, goal, last_return(run, goal), told))
    return rows


def read(path: Path = RESULTS) -> list[Row]:
    """Return the rows of the CSV; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                one["env_id"], one["data"], one["method"], int(one["seed"]), int(one["timesteps"]), *map(float, numbers)
            )
            for one in csv.DictReader(file)
            for numbers in [(one["mean_return"], one["data_return"])]
        ]


def write(rows: Iterable[Row], path: Path = RESULTS) -> None:
    """Write the CSV, in the order of environments, data sets, methods and seeds."""
    methods = [*METHODS, FINE_TUNED]
    ordered = sorted(rows, key=lambda row: (row.env_id, DATA.index(row.data), methods.index(row.method), row.seed))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(ordered)


def table(rows: Sequence[Row]) -> str:
    """Return the page's table: the mean return of each method on each data set, with its interval over seeds."""
    heads = ("environment", "data", "its return", *METHODS, "TD3+BC, then steps")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for env_id, data in itertools.product(SETTINGS, DATA):
        found = [row for row in rows if (row.env_id, row.data) == (env_id, data)]
        if not found:
            continue
        cells = []
        for method in (*METHODS, FINE_TUNED):
            returns = [row.mean_return for row in found if row.method == method]
            if not returns:
                cells.append("not run")
                continue
            middle, low, high = map(format_number, iqm_over_seeds(returns))
            one = len(returns) == 1
            cells.append(f"{middle}, 1 seed" if one else f"{middle} ({low} to {high}), {len(returns)} seeds")
        lines.append(f"| {env_id} | {data} | {format_number(found[0].data_return)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.offline", description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", metavar="ENV", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--write", action="store_true", help="write the table into docs/offline.md")
    options = parser.parse_args(arguments)
    for env_id in options.environments:
        setting = SETTINGS[env_id]
        with tempfile.TemporaryDirectory() as folder:
            sets = make_data(env_id, setting, Path(folder))
            for seed, data, method in itertools.product(SEEDS, DATA, METHODS):
                rows = read()
                if any((row.env_id, row.data, row.method, row.seed) == (env_id, data, method, seed) for row in rows):
                    continue
                path, told = sets[data]
                new = cell(env_id, setting, data, path, told, method, seed, Path(folder) / "runs")
                print(*new, sep="\n", flush=True)
                write([*rows, *new])
    if options.write:
        marks.write(PAGE, {"offline table": table(read())})


if __name__ == "__main__":
    main()
