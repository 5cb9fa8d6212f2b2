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
    """Return the tag of every number in a row of :class:`Meter`, in the order of columns."""
    return TAGS | {name: f"rollout/{name}" for name in agent.counts} | {name: f"train/{name}" for name in agent.metrics}


class MetricsTracker:
    """Keeps the ledger of an agent that learns, and its clock.

    Args:
        ledger: what was noted so far.
        agent: who learns.
    """

    def __init__(self, ledger: RunState, agent: OffPolicyAgent):
        self.ledger = ledger
        self.begin(agent)

    def begin(self, agent: OffPolicyAgent) -> None:
        """Start the clock."""
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps
        self._compiled = agent.compile_seconds or 0.0
        self._aside = 0.0

    def end(self) -> None:
        """Stop the clock, until it is started again."""
        self.ledger.seconds = self.seconds()

    def leave_out(self, seconds: float) -> None:
        """Take note that so many seconds since :meth:`begin` were not training."""
        self._aside += seconds

    def seconds(self) -> float:
        """Return the seconds of training, those before :meth:`begin` too."""
        return self.ledger.seconds + time.perf_counter() - self._start - self._aside

    def note_episode(self, episode: Episode) -> None:
        """Take note of an episode that ended."""
        self.ledger.recent.append((episode.episode_return, episode.length))

    def note_update(self, metrics: dict[str, float]) -> None:
        """Take note of the means that an update, or several, reported."""
        self.ledger.note_update(metrics)

    def row(self, agent: OffPolicyAgent) -> dict[str, float]:
        """Return what there is to tell since the last row, and begin the next.

        Returns:
            ``seconds``, ``compile_seconds``, ``fps`` (without them), and of the names of :func:`tags_of` those of which
            something is known.
        """
        ledger, now = self.ledger, agent.num_timesteps
        seconds = self.seconds()
        compiling = (agent.compile_seconds or 0.0) - self._compiled
        row: dict[str, float] = {
            "seconds": seconds,
            "compile_seconds": compiling,
            "fps": (now - self._start_steps) / max(seconds - ledger.seconds - compiling, 1e-9),
        }
        if ledger.recent:
            returns, lengths = zip(*ledger.recent, strict=True)
            row |= {"ep_rew_mean": float(np.mean(returns)), "ep_len_mean": float(np.mean(lengths))}
        row |= {name: count - ledger.counts[name] for name, count in agent.counts.items()}
        if means := ledger.means():
            row |= means | {"n_updates": float(agent.num_updates)}
        ledger.logged, ledger.counts = now, agent.counts
        return row
