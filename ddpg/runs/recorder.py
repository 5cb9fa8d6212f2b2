"""Writing a run directory while an agent learns: tables, TensorBoard events, evaluations, checkpoints."""

import collections
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.agents.callbacks import Callback
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.experience.interaction import Episode
from ddpg.runs import directory
from ddpg.runs.environments import make_env
from ddpg.runs.evaluation import evaluate
from ddpg.storage import checkpoint, place

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

    It evaluates and saves where every environment is about to be reset: a single one at the end of the episode that
    is under way when the evaluation is due (cut short if it lasts for another interval), a vector at once. The next
    episodes' seed then depends on the run's seed and on the step alone, in a run that goes on as in one that is
    resumed there: so both are the same to the last bit.

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
        self._run, self._folder = run, run / "checkpoints"
        self._interval = document["evaluation_interval"]
        self._episodes = document["evaluation_episodes"]
        self._log_interval = max(1, document["total_timesteps"] // 200)
        self._env = make_env(document["env_id"])
        self._seed = document["seed"] + 1_000_000  # not an episode that training sees
        keep = resumed_at if resumed_at or (run / "checkpoints" / "0").exists() else None
        columns = ["timesteps", "seconds", *self._tags]
        self._metrics = directory.Table(run / "metrics.csv", columns, keep)
        self._episode_table = directory.Table(run / "episodes.csv", ["timesteps", "return", "length"], keep)
        self._evaluations = directory.Table(run / "evaluations.csv", ["timesteps", *_EVALUATION_COLUMNS], keep)
        self._events = directory.Events(run, keep)
        rows = directory.read_table(run / "evaluations.csv")
        self._best = max((float(row["mean_return"]) for row in rows), default=-np.inf)
        metrics = directory.read_table(run / "metrics.csv")
        self._seconds_before = float(metrics[-1]["seconds"]) if metrics else 0.0
        past = directory.read_table(run / "episodes.csv")[-100:]
        self._keep_best(agent, rows)
        self._recent = collections.deque(((float(row["return"]), int(row["length"])) for row in past), maxlen=100)
        self._updates: list[dict[str, float]] = []
        self._aside_seconds = 0.0
        self._logged = self._evaluated = resumed_at
        self._due = self._next_due(resumed_at)
        self._vector = isinstance(agent.env, gym.vector.VectorEnv)
        self._episode_ended_at = -1

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Start the clock; leave something to resume from."""
        if not self._folder.exists():
            self._save(agent)
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Write the episode down."""
        self._recent.append((episode.episode_return, episode.length))
        self._episode_ended_at = agent.num_timesteps
        self._episode_table.add(
            {"timesteps": agent.num_timesteps, "return": episode.episode_return, "length": episode.length}
        )

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        """Keep the metrics for the next row."""
        self._updates.append(metrics)

    def on_step(self, agent: OffPolicyAgent) -> None:
        """Log where its interval is over; evaluate where it is due and every environment can be reset."""
        now = agent.num_timesteps
        if now - self._logged >= self._log_interval:
            self._log(agent)
        if now < self._due:
            return
        if self._vector or now == self._episode_ended_at or now >= self._due + self._interval:
            self._evaluate(agent)

    def _next_due(self, timesteps: int) -> int:
        """Return the next multiple of the interval: evaluations stay on their grid, whatever came between."""
        return (timesteps // self._interval + 1) * self._interval

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
            returns, lengths = zip(*self._recent, strict=True)
            row |= {"ep_rew_mean": float(np.mean(returns)), "ep_len_mean": float(np.mean(lengths))}
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
        if self._logged < agent.num_timesteps:
            self._log(agent)
        start = time.perf_counter()
        self._evaluated, self._due = agent.num_timesteps, self._next_due(agent.num_timesteps)
        summary = evaluate(agent, self._env, self._episodes, self._seed).summary()
        self._evaluations.add({"timesteps": agent.num_timesteps, **summary})
        self._events.add(
            agent.num_timesteps, {tag: summary[name] for name, tag in _EVALUATION_TAGS.items() if name in summary}
        )
        self._events.flush()
        agent.abandon_episode()
        self._save(agent)
        if summary["mean_return"] > self._best:
            self._best = summary["mean_return"]
            agent.save(self._folder / "best", replay=False)
        self._aside_seconds += time.perf_counter() - start

    def _keep_best(self, agent: OffPolicyAgent, rows: list[dict[str, str]]) -> None:
        """Save the best where a kill came between its evaluation and its being saved."""
        if not rows or max(rows, key=lambda row: float(row["mean_return"]))["timesteps"] != str(agent.num_timesteps):
            return
        best = self._folder / "best"
        if not best.exists() or checkpoint.read(best, only=set())[0]["num_timesteps"] != agent.num_timesteps:
            agent.save(best, replay=False)

    def _save(self, agent: OffPolicyAgent) -> None:
        """Write a checkpoint to resume from, and let go of the oldest."""
        agent.save(self._folder / str(agent.num_timesteps))
        for path in directory.checkpoints(self._run)[:-KEEP_CHECKPOINTS]:
            place.remove(path)


_EVALUATION_COLUMNS = [
    *("episodes", "mean_return", "std_return", "ci95_low", "ci95_high", "min_return", "max_return"),
    *("mean_length", "clipped_actions", "success_rate"),
]
_EVALUATION_TAGS = {
    "mean_return": "eval/mean_reward",
    "mean_length": "eval/mean_ep_length",
    "clipped_actions": "eval/clipped_actions",
    "success_rate": "eval/success_rate",
}
