"""Training metrics as rows: means of episodes and updates, counts, speed."""

import time

import numpy as np

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.interaction.env_runner import Episode
from ddpg.runs.run_state import RunState

# Stable-Baselines3's TensorBoard tags, so that its users find what they look for.
TAGS = {
    "ep_rew_mean": "rollout/ep_rew_mean",
    "ep_len_mean": "rollout/ep_len_mean",
    "fps": "time/fps",
    "n_updates": "train/n_updates",
}


def tags_of(agent: OffPolicyAgent) -> dict[str, str]:
    """Return the tag of every number in a row of :class:`MetricsTracker`, in the order of columns."""
    return TAGS | {name: f"rollout/{name}" for name in agent.counts} | {name: f"train/{name}" for name in agent.metrics}


class MetricsTracker:
    """Updates the run state of an agent that learns, and times its training.

    Args:
        run_state: the state so far.
        agent: the agent that learns.
    """

    def __init__(self, run_state: RunState, agent: OffPolicyAgent):
        self.run_state = run_state
        self.begin(agent)

    def begin(self, agent: OffPolicyAgent) -> None:
        """Start the clock."""
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps
        self._compiled = agent.compile_seconds or 0.0
        self._aside = 0.0

    def end(self) -> None:
        """Stop the clock, until it is started again."""
        self.run_state.seconds = self.seconds()

    def leave_out(self, seconds: float) -> None:
        """Exclude this many seconds since :meth:`begin` from the training time."""
        self._aside += seconds

    def seconds(self) -> float:
        """Return the seconds of training, including those before :meth:`begin`."""
        return self.run_state.seconds + time.perf_counter() - self._start - self._aside

    def note_episode(self, episode: Episode) -> None:
        """Count an episode that ended."""
        self.run_state.recent.append((episode.episode_return, episode.length))

    def note_update(self, metrics: dict[str, float]) -> None:
        """Add the metrics that one or several updates reported."""
        self.run_state.note_update(metrics)

    def row(self, agent: OffPolicyAgent) -> dict[str, float]:
        """Return the row of metrics since the last one, and begin the next.

        Returns:
            ``seconds``, ``compile_seconds``, ``fps`` (compiling excluded), and those names of :func:`tags_of` that have
            a value.
        """
        run_state, now = self.run_state, agent.num_timesteps
        seconds = self.seconds()
        compiling = (agent.compile_seconds or 0.0) - self._compiled
        row: dict[str, float] = {
            "seconds": seconds,
            "compile_seconds": compiling,
            "fps": (now - self._start_steps) / max(seconds - run_state.seconds - compiling, 1e-9),
        }
        if run_state.recent:
            returns, lengths = zip(*run_state.recent, strict=True)
            row |= {"ep_rew_mean": float(np.mean(returns)), "ep_len_mean": float(np.mean(lengths))}
        row |= {name: count - run_state.counts[name] for name, count in agent.counts.items()}
        if means := run_state.means():
            row |= means | {"n_updates": float(agent.num_updates)}
        run_state.logged, run_state.counts = now, agent.counts
        return row
