"""A training run from start to finish: environment, agent, run directory, evaluations, checkpoints."""

import collections
import contextlib
import importlib.metadata
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.runs import directory
from ddpg.agents.registry import agent_for, load_agent
from ddpg.agents.callbacks import Callback, ProgressBar
from ddpg.config import AgentConfig
from ddpg.runs.environments import id_of, make_env
from ddpg.errors import UsageError
from ddpg.runs.evaluation import evaluate
from ddpg.experience.interaction import Episode
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.runs.plotting import plot_learning_curve
from ddpg.runs.presets import preset_config, preset_for

# Stable-Baselines3's TensorBoard tags, so that its users find what they look for.
TAGS = {
    "ep_rew_mean": "rollout/ep_rew_mean",
    "ep_len_mean": "rollout/ep_len_mean",
    "fps": "time/fps",
    "n_updates": "train/n_updates",
}

KEEP_CHECKPOINTS = 2


def train(
    env_id: str,
    config: AgentConfig | None = None,
    *,
    seed: int | None = None,
    total_timesteps: int | None = None,
    root: str | Path = "runs",
    evaluation_interval: int | None = None,
    evaluation_episodes: int = 10,
    progress_bar: bool = True,
) -> Path:
    """Train in ``env_id`` (DDPG, or DQN where actions are discrete) and leave everything in a new run directory.

    Args:
        env_id: as for ``gymnasium.make``, or ``module:Id``.
        config: the options; the environment's preset by default.
        seed: ``None``: a random one, noted in ``config.json``.
        total_timesteps: environment steps; the preset's by default.
        root: where run directories are kept.
        evaluation_interval: steps between evaluations (and checkpoints); a twentieth of the run by default.
        evaluation_episodes: episodes of each.
        progress_bar: show one on stderr.

    Returns:
        The run directory.

    Raises:
        UsageError: an environment or an option that cannot work.
    """
    env = make_env(env_id)
    name = id_of(env)
    total_timesteps = preset_for(name).total_timesteps if total_timesteps is None else total_timesteps
    if total_timesteps < 1:
        raise UsageError(f"total_timesteps={total_timesteps} must be at least 1")
    kind = agent_for(env.action_space)
    agent = kind(env, config or preset_config(name, kind.config_class), seed)
    run = directory.create(root, name)
    document = {
        "env_id": env_id,
        "algorithm": kind.__name__,
        "seed": agent.seed,
        "total_timesteps": total_timesteps,
        "evaluation_interval": evaluation_interval or max(1, total_timesteps // 20),
        "evaluation_episodes": evaluation_episodes,
        "config": agent.config.to_json(),
        "versions": _versions(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
    directory.write_config(run, document)
    _run(agent, env, run, document, progress_bar)
    return run


def resume(run: str | Path, *, total_timesteps: int | None = None, progress_bar: bool = True) -> Path:
    """Go on with a run from its latest checkpoint, to its goal or to a new one.

    The episode that was under way when the checkpoint was written is not: the environment starts a new one.

    Raises:
        UsageError: not a run directory, no checkpoint, or the goal was reached already.
    """
    run = Path(run)
    document = directory.read_config(run)
    if total_timesteps is not None:
        document["total_timesteps"] = total_timesteps
    env = make_env(document["env_id"])
    agent = load_agent(run, env)
    if agent.num_timesteps >= document["total_timesteps"]:
        raise UsageError(
            f"{run} has reached its {document['total_timesteps']} steps; give --total-timesteps to train longer"
        )
    directory.write_config(run, document)
    _run(agent, env, run, document, progress_bar)
    return run


def _run(agent: OffPolicyAgent, env: gym.Env, run: Path, document: dict[str, Any], progress_bar: bool) -> None:
    recorder = _Recorder(run, document, agent)
    callbacks: list[Callback] = [recorder]
    if progress_bar:
        callbacks.append(ProgressBar(id_of(env)))
    try:
        with _stop_on_interrupt(agent):
            agent.learn(document["total_timesteps"] - agent.num_timesteps, callbacks)
        # Where the run ended, evaluated: at its goal, or where it was interrupted.
        recorder.conclude(agent)
    finally:
        recorder.close()
        env.close()
    plot_learning_curve(run, f"{type(agent).__name__} on {id_of(env)}, seed {agent.seed}")


class _Recorder(Callback):
    """Writes a run directory while the agent learns."""

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
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        self._recent.append(episode)
        self._episode_table.add(
            {"timesteps": agent.num_timesteps, "return": episode.episode_return, "length": episode.length}
        )

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        self._updates.append(metrics)

    def on_step(self, agent: OffPolicyAgent) -> None:
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


@contextlib.contextmanager
def _stop_on_interrupt(agent: OffPolicyAgent) -> Iterator[None]:
    """Let the first Ctrl-C (or SIGTERM) end learning after the current step; a second one acts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number, frame) -> None:
        restore()
        agent.stop()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _versions() -> dict[str, str]:
    packages = ("ddpg-paths", "tensorflow", "tflearn", "gymnasium", "numpy")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
