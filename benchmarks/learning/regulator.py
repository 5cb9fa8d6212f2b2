"""Compare returns in the linear regulator with the best possible ones in the same episodes, which are known exactly."""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np

import ddpg_envs  # noqa: F401 - registers the environment
from benchmarks import marks
from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import groups, nothing
from ddpg.runs.evaluation import final_seed
from ddpg_envs.lqr import LQREnv

STUDY = "regulator"
EPISODES, STEPS = 1_000, 100  # of the evaluation after training


def table(cells: Sequence[Cell]) -> str:
    """Return a row for each finished run: its return, the best possible one, and the additional cost in percent."""
    done = [cell for group in groups(cells, STUDY) for cell in group if cell.finished]
    if not done:
        return nothing(STUDY)
    lines = []
    for cell in done:
        best = float(np.mean(best_returns(start_states(final_seed(cell.seed)))))
        more = 100 * (cell.final / best - 1)
        lines.append([str(cell.seed), f"{cell.final:.3f}", f"{best:.3f}", f"{more:.1f} %"])
    return marks.table(["seed", "final return", "best possible", "additional cost"], lines)


def start_states(seed: int, episodes: int = EPISODES) -> np.ndarray:
    """Return the states ``[episodes, 2]`` in which the episodes of an evaluation with ``seed`` start."""
    env = gym.make("ddpg_envs/LQR-v0")
    return np.array([env.reset(seed=seed)[0], *(env.reset()[0] for _ in range(episodes - 1))])


def best_returns(states: np.ndarray) -> np.ndarray:
    """Return the largest possible sum of ``STEPS`` rewards from each state ``[N, 2]``, by the Riccati recursion."""
    a, b, q, r = LQREnv.A, LQREnv.B, LQREnv.Q, LQREnv.R
    p = np.zeros((2, 2))
    for _ in range(STEPS):
        gain = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
        p = q + a.T @ p @ (a - b @ gain)
    return -np.einsum("ni,ij,nj->n", states, p, states)
