"""Compare the returns of the zoo's policies in C with float32 and with int8 weights, in the same episodes.

    python -m benchmarks.int8            # writes benchmarks/results/int8.csv; needs gcc
    python -m benchmarks.int8 --write    # writes its table into docs/export.md

Both are compiled from ``ddpg export --format c`` and called from Python, so only the rounding of the weights differs.
Episode i of an environment begins with the same reset for both; differences are paired by episode.
"""

import argparse
import csv
import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks import marks
from ddpg.progress import format_number
from ddpg.runs.saved_policy import export_saved

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "int8.csv"
PAGE = ROOT / "docs" / "export.md"
ENVIRONMENTS = (
    *("Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Reacher-v5", "InvertedPendulum-v5"),
    *("InvertedDoublePendulum-v5", "HalfCheetah-v5"),
)
WEIGHTS = {"float32": None, "int8": "int8"}
SEEDS = range(50_000, 50_100)
RESAMPLES = 10_000

Act = Callable[[np.ndarray], "np.ndarray | int"]


class Episode(NamedTuple):
    """The returns of one episode with float32 weights and with int8 weights."""

    env_id: str
    seed: int
    float32: float
    int8: float


def compiled(folder: Path, space: gym.Space, compiler: str = "gcc") -> Act:
    """Compile ``policy.c`` in ``folder`` and return it as a function of one observation."""
    library = folder / "policy.so"
    flags = ["-std=c99", "-O2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "policy.c", "-lm", "-o", library], cwd=folder, check=True)
    function = ctypes.CDLL(str(library)).policy_act
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    box = isinstance(space, gym.spaces.Box)
    action = np.zeros(space.shape or (1,), np.float32 if box else np.intc)

    def act(observation: np.ndarray) -> "np.ndarray | int":
        numbers = np.ascontiguousarray(observation, np.float32)
        if function(numbers.ctypes.data, action.ctypes.data):
            raise FloatingPointError(f"{folder}: no action for {observation}")
        return action.copy() if box else int(action[0])

    return act


def episode_return(env: gym.Env, act: Act, seed: int) -> float:
    """Return the return of the episode that begins with a reset by ``seed``."""
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        total += float(reward)
        ended = terminated or truncated
    return total


def measure(env_id: str, seeds: Sequence[int] = SEEDS, compiler: str = "gcc") -> list[Episode]:
    """Return the episodes of an environment, one for each seed."""
    with gym.make(env_id) as env, tempfile.TemporaryDirectory() as folder:
        returns = []
        for name, quantize in WEIGHTS.items():
            path = Path(folder) / name
            export_saved(f"zoo:{env_id}", "c", path, quantize=quantize)
            act = compiled(path, env.action_space, compiler)
            returns.append([episode_return(env, act, seed) for seed in seeds])
    return [Episode(env_id, *numbers) for numbers in zip(seeds, *returns, strict=True)]


def interval(differences: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean."""
    rng = np.random.default_rng(0)
    means = rng.choice(differences, (RESAMPLES, len(differences))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"int8 table": table(read())}


def table(episodes: Iterable[Episode]) -> str:
    """Return the page's table: mean returns, and the mean paired difference with its interval."""
    lines = []
    for env_id, group in itertools.groupby(episodes, key=lambda episode: episode.env_id):
        float32, int8 = np.array([(episode.float32, episode.int8) for episode in group]).T
        low, high = map(format_number, interval(int8 - float32))
        mean, share = (int8 - float32).mean(), (int8 - float32).mean() / abs(float32.mean())
        *means, difference = map(format_number, (float32.mean(), int8.mean(), mean))
        lines.append([env_id, *means, f"{difference} ({low} to {high})", f"{share:+.2%}"])
    return marks.table(["environment", "float32", "int8", "int8 − float32", "relative difference"], lines)


def read() -> list[Episode]:
    """Return the episodes of the CSV."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return [Episode(one[0], int(one[1]), float(one[2]), float(one[3])) for one in list(csv.reader(file))[1:]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.int8", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table into docs/export.md")
    if parser.parse_args(arguments).write:
        marks.write(PAGE, tables())
        return
    episodes = []
    for env_id in ENVIRONMENTS:
        episodes += measure(env_id)
        print(table(episodes).splitlines()[-1], flush=True)
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Episode._fields)
        writer.writerows(episodes)


if __name__ == "__main__":
    main()
