"""Writing a run directory while an agent learns: tables, TensorBoard events, evaluations, checkpoints."""

import collections
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.agents.callbacks import Callback
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.experience.interaction import Episode
from ddpg.runs import directory
from ddpg.runs.environments import make_env
from ddpg.runs.evaluation import evaluate

# Stable-Baselines3's TensorBoard tags, so that its users find what they look for.
TAGS = {
    "ep_rew_mean": "rollout/ep_rew_mean",
    "ep_len_mean": "rollout/ep_len_mean",
    "fps": "time/fps",
    "n_updates": "train/n_updates",
}

KEEP_CHECKPOINTS = 2


class Recorder(Callback):
    """Writes a run directory while the agent learns.

    Args:
        run: the directory.
        document: its ``config.json``.
        agent: who learns; where it stands tells which rows of a resumed run stay.
    """

    def __init__(self, run: Path, document: dict[str, Any], agent: OffPolicyAgent):
        resumed_at = agent.num_timesteps
        self._tags = (
            TAGS
            | {name: f"rollout/{name}" for name in agent.counts}
            | {name: f"train/{name}" for name in agent.metrics}
        )
        self._counts = agent.counts
        self._run = run
        self._interval = document["evaluation_interval"]
        self._episodes = document["evaluation_episodes"]
        self._log_interval = max(1, document["total_timesteps"] // 200)
        self._env = make_env(document["env_id"])
        self._seed = document["seed"] + 1_000_000  # not an episode that training sees
        keep = resumed_at or None
        columns = ["timesteps", "seconds", *self._tags]
        self._metrics = directory.Table(run / "metrics.csv", columns, keep)
        self._episode_table = directory.Table(run / "episodes.csv", ["timesteps", "return", "length"], keep)
        self._evaluations = directory.Table(run / "evaluations.csv", ["timesteps", *_EVALUATION_COLUMNS], keep)
        self._events = directory.Events(run)
        rows = directory.read_table(run / "evaluations.csv")
        self._best = max((float(row["mean_return"]) for row in rows), default=-np.inf)
        metrics = directory.read_table(run / "metrics.csv")
        self._seconds_before = float(metrics[-1]["seconds"]) if metrics else 0.0
        self._recent: collections.deque[Episode] = collections.deque(maxlen=100)
        self._updates: list[dict[str, float]] = []
        self._aside_seconds = 0.0
        self._logged = self._evaluated = resumed_at

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Start the clock."""
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Write the episode down."""
        self._recent.append(episode)
        self._episode_table.add(
            {"timesteps": agent.num_timesteps, "return": episode.episode_return, "length": episode.length}
        )

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        """Keep the metrics for the next row."""
        self._updates.append(metrics)

    def on_step(self, agent: OffPolicyAgent) -> None:
        """Log and evaluate where their intervals are over."""
        if agent.num_timesteps - self._logged >= self._log_interval:
            self._log(agent)
        if agent.num_timesteps - self._evaluated >= self._interval:
            self._evaluate(agent)

    def conclude(self, agent: OffPolicyAgent) -> None:
        """Log, evaluate and save where the run ended, unless that was just done."""
        if self._logged < agent.num_timesteps:
            self._log(agent)
        if self._evaluated < agent.num_timesteps:
            self._evaluate(agent)

    def close(self) -> None:
        """Close the files."""
        for file in (self._metrics, self._episode_table, self._evaluations, self._events, self._env):
            file.close()

    def _training_seconds(self) -> float:
        return time.perf_counter() - self._start - self._aside_seconds

    def _log(self, agent: OffPolicyAgent) -> None:
        self._logged = agent.num_timesteps
        seconds = self._training_seconds()
        row: dict[str, float] = {"fps": (agent.num_timesteps - self._start_steps) / seconds}
        if self._recent:
            row["ep_rew_mean"] = float(np.mean([episode.episode_return for episode in self._recent]))
            row["ep_len_mean"] = float(np.mean([episode.length for episode in self._recent]))
        counts = agent.counts
        row |= {name: count - self._counts[name] for name, count in counts.items()}
        self._counts = counts
        if self._updates:
            row |= {name: float(np.mean([update[name] for update in self._updates])) for name in agent.metrics}
            row["n_updates"] = float(agent.num_updates)
            self._updates.clear()
        self._metrics.add({"timesteps": agent.num_timesteps, "seconds": self._seconds_before + seconds, **row})
        self._events.add(agent.num_timesteps, {self._tags[name]: value for name, value in row.items()})

    def _evaluate(self, agent: OffPolicyAgent) -> None:
        """Evaluate and save; none of it counts as training time."""
        start = time.perf_counter()
        self._evaluated = agent.num_timesteps
        summary = evaluate(agent, self._env, self._episodes, self._seed).summary()
        self._evaluations.add({"timesteps": agent.num_timesteps, **summary})
        self._events.add(
            agent.num_timesteps, {tag: summary[name] for name, tag in _EVALUATION_TAGS.items() if name in summary}
        )
        folder = self._run / "checkpoints"
        agent.save(folder / str(agent.num_timesteps))
        if summary["mean_return"] > self._best:
            self._best = summary["mean_return"]
            agent.save(folder / "best", replay=False)
        numbered = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
        for steps in numbered[:-KEEP_CHECKPOINTS]:
            shutil.rmtree(folder / str(steps))
        self._aside_seconds += time.perf_counter() - start


_EVALUATION_COLUMNS = [
    *("episodes", "mean_return", "std_return", "ci95_low", "ci95_high", "mean_length"),
    *("clipped_actions", "success_rate"),
]
_EVALUATION_TAGS = {
    "mean_return": "eval/mean_reward",
    "mean_length": "eval/mean_ep_length",
    "clipped_actions": "eval/clipped_actions",
    "success_rate": "eval/success_rate",
}
