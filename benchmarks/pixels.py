"""Learn to point as a needle in a small picture does, with and without the options for images.

    python -m benchmarks.pixels [--seeds 0 1 2 3 4] [--steps 6000] [--csv benchmarks/results/pixels.csv]
    python -m benchmarks.pixels --write    # writes results/pixels.csv into docs/how_to/images.md

A picture has 16 x 16 grey pixels, and shows a needle of a random direction at a random place. The action is its
direction, (right, down), and the reward the negative distance to it; an episode is one step. So the place does not
matter, and a few hundred pictures do not show every direction at every place. An evaluation is 200 episodes without
noise, the same ones for all runs. All runs are in one process, with one thread. ``cpu_seconds`` are those of a run,
evaluations and the compilation of updates included. The actor's learning rate was chosen on seed 100; with the default
of 1e-3, a run without the options and one with random_shift had learned nothing after 2,000 steps.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks import marks

RESULTS = Path(__file__).parent / "results" / "pixels.csv"
PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "images.md"
SIDE, LENGTH, FARTHEST = 16, 6.0, 3.0  # pixels
EPISODES = 200
VARIANTS: dict[str, dict[str, Any]] = {
    "neither": {},
    "random_shift=2": {"random_shift": 2},
    "shared_encoder": {"shared_encoder": True},
    "both": {"random_shift": 2, "shared_encoder": True},
}
OPTIONS: dict[str, Any] = {
    "network": "conv",
    "hidden": (64,),
    "batch_size": 32,
    "actor_learning_rate": 2e-4,
    "learning_starts": 200,
    "buffer_size": 10_000,
    "noise_scale": 0.2,
    "threads": 1,
}


class Needle(gym.Env):
    """A white needle on black: a line from a point near the middle, 6 pixels long."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self._direction = np.array([np.cos(angle), np.sin(angle)])
        place = self.np_random.uniform(-FARTHEST, FARTHEST, 2)
        down, right = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
        from_start = np.stack([right - place[0], down - place[1]], axis=-1)
        along = np.clip(from_start @ self._direction, 0, LENGTH)
        distance = np.linalg.norm(from_start - along[..., None] * self._direction, axis=-1)
        self._image = (255 * np.clip(1.5 - distance, 0, 1)).astype(np.uint8)
        return self._image, {}

    def step(self, action):
        return self._image, -float(np.linalg.norm(action - self._direction)), True, False, {}


def run(variant: str, seed: int, steps: int) -> list[dict[str, Any]]:
    """Return the mean returns of one run, after half of the steps and after all."""
    from ddpg import DDPG, DDPGConfig, evaluate

    rows, start = [], time.process_time()
    with DDPG(Needle(), DDPGConfig(**OPTIONS, **VARIANTS[variant]), seed=seed) as agent:
        for _ in range(2):
            agent.learn(steps // 2)
            found = np.mean(evaluate(agent, Needle(), EPISODES, seed=1_000).returns)
            row = {"variant": variant, "seed": seed, "steps": agent.num_timesteps, "return": f"{found:.3f}"}
            rows.append(row | {"cpu_seconds": f"{time.process_time() - start:.0f}"})
    return rows


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--csv", type=Path, help="write the rows to this file, after every run")
    parser.add_argument("--write", action="store_true", help="write the committed results into the page")
    options = parser.parse_args(words)
    if options.write:
        marks.write(PAGE, tables())
        return
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[name] = "1"
    rows = []
    for seed in options.seeds:
        for variant in VARIANTS:
            rows += run(variant, seed, options.steps)
            print(rows[-1], file=sys.stderr)
            if options.csv:
                with options.csv.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
    print(table(rows))


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a results file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"pixels": table(read(RESULTS))}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page's table: the returns of all seeds, their means, and the processor time of a run."""
    steps = sorted({int(row["steps"]) for row in rows})
    lines = []
    for variant in VARIANTS:
        own, cells = [row for row in rows if row["variant"] == variant], []
        for step in steps:
            found = [float(row["return"]) for row in own if int(row["steps"]) == step]
            cells.append(f"{statistics.mean(found):.2f} ({', '.join(f'{value:.2f}' for value in found)})")
        seconds = [float(row["cpu_seconds"]) for row in own if int(row["steps"]) == steps[-1]]
        name = variant if variant in ("neither", "both") else f"`{variant}`"
        lines.append([name, *cells, f"{statistics.median(seconds):.0f}"])
    heads = ["options", *(f"{step:,} steps" for step in steps), "CPU seconds"]
    return marks.table(heads, lines, len(heads) - 1)


if __name__ == "__main__":
    main()
