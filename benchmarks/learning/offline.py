"""Measure learning from data sets of our own agents: behaviour cloning, TD3+BC, and fine-tuning in the environment.

    OMP_NUM_THREADS=1 python -m benchmarks.learning.offline Pendulum-v1    # into benchmarks/results/offline.csv
    python -m benchmarks.learning.offline --write                          # from there into docs/offline.md

Returns are means over 100 episodes that no choice used, the same episodes for all policies of a seed.

An environment has four data sets: uniformly random actions; a medium and an expert agent, which act with the noise of
their training; and a mixture, a third of each. An expert can be a policy of the zoo, with noise of 0.1. Everything is
seeded; agents and data have seeds that no reported run has. Runs that the CSV has are not repeated.
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
from ddpg.runs.dataset import KEYS
from ddpg.runs.evaluation import final_seed
from ddpg.studies.comparison import estimate

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "offline.csv"
PAGE = ROOT / "docs" / "offline.md"
DATA = ("random", "medium", "expert", "mixture")
# Changes to the recipe in every run, chosen on other seeds and data of Pendulum (7101, 7102; agents 7201, 7202).
CHANGES: dict[str, Any] = {"bc_alpha": 1.0, "critic_norm": "layer"}
METHODS = {"behaviour cloning": {"bc_alpha": 0.0, "bc_only": True}, "TD3+BC": {}}
FINE_TUNED, BETTER = "fine-tuned", "better"
BC_FINAL = 0.3  # weight of cloning at the end of fine-tuning, chosen like CHANGES
AGENT_SEEDS = {"medium": 9_001, "expert": 9_002}
EPISODES = 100  # per mean return


@dataclasses.dataclass(frozen=True)
class Setting:
    """The sizes of data sets and runs in one environment.

    Attributes:
        medium, expert: environment steps for which these agents train, with the environment's preset; 0 for the
            expert means the zoo's policy.
        transitions: size of a data set.
        updates: number of updates from the data set.
        steps: environment steps of fine-tuning after the updates.
        seeds: seeds of the runs.
        changes: options that differ from the recipe ``td3_bc`` and :data:`CHANGES`.
        changes_by_data: more of them, for one data set each.
    """

    medium: int
    expert: int
    transitions: int
    updates: int
    steps: int
    seeds: Sequence[int]
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    changes_by_data: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def fine_tuning(self) -> dict[str, Any]:
        """Options that change for fine-tuning in the environment."""
        return {"dataset_share": 0.5, "bc_final": BC_FINAL, "bc_steps": self.steps}


# With CHANGES alone the mixture of HalfCheetah was not learned. Chosen on seed 7101, with agents 7201 and 7202; the
# tries are in docs/offline.md.
MIXED = {"mixture": {"bc_alpha": 10.0, "n_steps": 10}}
SETTINGS = {
    "Pendulum-v1": Setting(5_000, 10_000, 10_000, 10_000, 5_000, range(7001, 7006), changes={"hidden": (64, 64)}),
    "HalfCheetah-v5": Setting(10_000, 0, 20_000, 20_000, 5_000, range(7001, 7004), changes_by_data=MIXED),
    "Hopper-v5": Setting(30_000, 0, 20_000, 20_000, 5_000, range(7001, 7004)),
}


class Row(NamedTuple):
    """The return of a method on a data set, with the mean return of the data."""

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
    """Return the arrays of a data set: episodes, cut to ``transitions`` in total; only the first reset is seeded."""
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
    """Return the mean return of a data set's episodes; the last one may be cut short."""
    ends = np.flatnonzero(arrays["terminations"] | arrays["truncations"])
    return float(np.mean([part.sum() for part in np.split(arrays["rewards"], ends + 1)[:-1]]))


def make_data(
    env_id: str, setting: Setting, folder: Path, names: Sequence[str] = DATA
) -> dict[str, tuple[Path, float]]:
    """Write the requested data sets of an environment; return ``{name: (path, mean return)}``."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with gym.make(env_id) as env:
        low, high = env.action_space.low, env.action_space.high
        rng = np.random.default_rng(9_100)
        found["random"] = collect(env, lambda _: rng.uniform(low, high).astype(low.dtype), setting.transitions, 9_100)
        for name, seed in AGENT_SEEDS.items():
            if not {name, "mixture"} & {*names}:
                continue
            steps = getattr(setting, name)
            if not steps:
                found[name] = collect(env, _zoo_policy(env_id, env.action_space, rng), setting.transitions, seed + 100)
                continue
            options: dict[str, Any] = {"seed": seed, "total_timesteps": steps, "root": folder / name}
            run = ddpg.train(env_id, evaluation_interval=steps, progress_bar=False, **options)
            agent = ddpg.DDPG.load(run)
            act = lambda s, agent=agent: agent.predict(s, deterministic=False)[0]  # noqa: E731
            found[name] = collect(env, act, setting.transitions, seed + 100)
            agent.close()
    if "mixture" in names:
        found["mixture"] = _mixed(found, setting.transitions // 3)
    paths = {}
    for name in names:
        path = folder / f"{name}.npz"
        np.savez(path, **found[name])
        paths[name] = path, mean_return(found[name])
    return paths


def _mixed(found: dict[str, dict[str, np.ndarray]], rows: int) -> dict[str, np.ndarray]:
    """Return the first ``rows`` transitions of each data set, concatenated."""
    thirds = [{field: array[:rows] for field, array in found[name].items()} for name in found]
    for part in thirds:  # mark the end of each part as truncated
        part["truncations"] = part["truncations"].copy()
        part["truncations"][-1] |= not part["terminations"][-1]
    return {field: np.concatenate([part[field] for part in thirds]) for field in thirds[0]}


def _zoo_policy(env_id: str, box: gym.spaces.Box, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    policy, half = ddpg.load_policy(f"zoo:{env_id}"), (box.high - box.low) / 2

    def act(observation: np.ndarray) -> np.ndarray:
        noise = 0.1 * half * rng.normal(size=box.shape)
        return np.clip(policy.predict(observation)[0] + noise, box.low, box.high).astype(box.dtype)

    return act


def returns_of(run: Path, goal: int, env_id: str, seed: int, names: Iterable[str]) -> dict[str, float]:
    """Return the mean return of a run's checkpoints, by name, in episodes that were not used in the run.

    Raises:
        SystemExit: if the run was stopped before its goal.
    """
    if ddpg.DDPG.load(run).num_timesteps != goal:
        raise SystemExit(f"{run} stopped before its {goal} timesteps; start again to train it from scratch")
    found = {}
    with gym.make(env_id) as env:
        for which in names:
            agent = ddpg.DDPG.load(run, which=which)
            found[which] = ddpg.evaluate(agent, env, EPISODES, final_seed(seed)).mean_return
            agent.close()
    return found


def cell(
    env_id: str, setting: Setting, data: str, path: Path, data_return: float, method: str, seed: int, root: Path
) -> list[Row]:
    """Return the rows of one run: after its updates and, for TD3+BC, also after fine-tuning in the environment."""
    changes = CHANGES | setting.changes | setting.changes_by_data.get(data, {}) | METHODS[method]
    options = from_toml(ddpg.DDPGConfig, read_recipe("td3_bc"), "td3_bc") | changes
    config, goal = ddpg.DDPGConfig(**options), setting.updates + setting.steps
    run = ddpg.train(
        env_id,
        config,
        dataset=path,
        seed=seed,
        total_timesteps=setting.updates,
        evaluation_interval=setting.updates,
        evaluation_episodes=1,
        root=root,
        progress_bar=False,
    )
    which = {"latest": (method, setting.updates)}
    if method == "TD3+BC":
        ddpg.resume(
            run,
            config=config.replace(**setting.fine_tuning),
            offline_timesteps=setting.updates,
            total_timesteps=goal,
            progress_bar=False,
        )
        which = {"offline": (method, setting.updates), "latest": (FINE_TUNED, goal), "better": (BETTER, goal)}
    found = returns_of(run, max(steps for _, steps in which.values()), env_id, seed, which)
    return [Row(env_id, data, name, seed, steps, found[one], data_return) for one, (name, steps) in which.items()]


def read(path: Path | None = None) -> list[Row]:
    """Return the rows of the CSV, or none if the file does not exist."""
    path = path or RESULTS
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


def write(rows: Iterable[Row], path: Path | None = None) -> None:
    """Write the CSV, in the order of environments, data sets, methods and seeds."""
    methods = [*METHODS, FINE_TUNED, BETTER]
    ordered = sorted(rows, key=lambda row: (row.env_id, DATA.index(row.data), methods.index(row.method), row.seed))
    with (path or RESULTS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(ordered)


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    rows = read()
    return {"offline table": table(rows), "offline seeds": seeds_table(rows)}


def table(rows: Sequence[Row]) -> str:
    """Return the page's table: the mean return of each method on each data set, with its interval over seeds."""
    heads = (
        "environment",
        "data",
        "return of the data",
        *METHODS,
        "fine-tuned: last policy",
        "fine-tuned: better policy",
    )
    lines = []
    for env_id, data in itertools.product(SETTINGS, DATA):
        found = [row for row in rows if (row.env_id, row.data) == (env_id, data)]
        if not found:
            continue
        cells = []
        for method in (*METHODS, FINE_TUNED, BETTER):
            returns = [row.mean_return for row in found if row.method == method]
            cells.append(_with_interval(returns) if returns else "not run")
        lines.append([env_id, data, format_number(found[0].data_return), *cells])
    return marks.table(heads, lines)


def _with_interval(numbers: Sequence[float]) -> str:
    middle, low, high = map(format_number, dataclasses.astuple(estimate(numbers, "iqm")))
    one = len(numbers) == 1
    return f"{middle}, 1 seed" if one else f"{middle} ({low} to {high}), {len(numbers)} seeds"


def seeds_table(rows: Sequence[Row]) -> str:
    """Return the page's table of fine-tuning by seed: returns before and after it, and of the better policy."""
    lines = []
    by_key = {(row.env_id, row.data, row.seed, row.method): format_number(row.mean_return) for row in rows}
    for env_id, data in itertools.product(SETTINGS, DATA):
        for seed in SETTINGS[env_id].seeds:
            keys = [(env_id, data, seed, method) for method in ("TD3+BC", FINE_TUNED, BETTER)]
            if all(key in by_key for key in keys):
                lines.append([env_id, data, str(seed), *(by_key[key] for key in keys)])
    return marks.table(["environment", "data", "seed", "before fine-tuning", "last policy", "better policy"], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the missing runs of the given environments, and write the page if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.offline", description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", metavar="ENV", help=f"environments: {', '.join(SETTINGS)}")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA, help="only these data sets")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/offline.md")
    options = parser.parse_args(arguments)
    for env_id in options.environments:
        setting = SETTINGS[env_id]
        with tempfile.TemporaryDirectory() as folder:
            sets = make_data(env_id, setting, Path(folder), options.data)
            for data, seed, method in itertools.product(reversed(options.data), setting.seeds, METHODS):
                rows = read()
                if any((row.env_id, row.data, row.method, row.seed) == (env_id, data, method, seed) for row in rows):
                    continue
                path, data_return = sets[data]
                new = cell(env_id, setting, data, path, data_return, method, seed, Path(folder) / "runs")
                print(*new, sep="\n", flush=True)
                write([*rows, *new])
    if options.write:
        marks.write(PAGE, tables())


if __name__ == "__main__":
    main()
