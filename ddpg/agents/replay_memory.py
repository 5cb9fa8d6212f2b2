"""An agent's replay memory: its replay buffer with priorities, sampler and running statistics."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError, brief
from ddpg.interaction.transitions import Transitions
from ddpg.replay.buffer import ReplayBuffer
from ddpg.replay.hindsight import make_hindsight
from ddpg.replay.minibatch import stored_dtype
from ddpg.replay.normalizers import ObservationNormalizer, RewardNormalizer
from ddpg.replay.priorities import Priorities
from ddpg.replay.random_shift import RandomShift
from ddpg.replay.sampling import Sampler

DEMONSTRATIONS = -1  # environment index of transitions that were recorded elsewhere; real environments count from 0


def cloning_weight_of(config: AgentConfig) -> Callable[[int], float] | None:
    """Return the weight of TD3+BC's cloning term as a function of the agent's own steps; ``None`` if it stays 1.

    After n steps it is f^min(1, n/N), where f is ``bc_final`` and N is ``bc_steps`` (Beeson & Montana 2022, arXiv
    2211.11802, section 4).
    """
    final, steps = getattr(config, "bc_final", 1.0), getattr(config, "bc_steps", 1)
    return None if final == 1 else lambda own: final ** min(1.0, own / steps)


class ReplayMemory:
    """The replay buffer, its sampler, and the running statistics of what is stored.

    Args:
        config, space, action_size: the options, the space of observations, and A, the numbers in a stored action.
        env: the environment, for ``hindsight``.

    Attributes:
        replay, sampler: the replay buffer, and what draws minibatches from it.
        observations: statistics that normalise observations; ``None`` without ``normalize_observations``.
        rewards: statistics that scale rewards; ``None`` without ``normalize_rewards``.

    Raises:
        UsageError: if images are to be normalised, observations to be shifted are no images, or ``hindsight`` is set
            and the environment has no goals.
    """

    def __init__(self, config: AgentConfig, space: gym.spaces.Box, action_size: int, env: Any = None):
        dtype = stored_dtype(space)
        if config.normalize_observations and dtype == np.uint8:
            raise UsageError(
                f"normalize_observations is for numbers, and {brief(space)} is one of images, which are stored and "
                "learned from as bytes; leave it off"
            )
        self.replay = ReplayBuffer(config.buffer_size, space.shape, action_size, dtype)
        priorities = None
        if config.prioritised is not None:
            priorities = Priorities(config.prioritised, config.priority_exponent, config.buffer_size)
        relabel = make_hindsight(env, self.replay, config.hindsight) if config.hindsight else None
        self.sampler = Sampler(
            self.replay,
            config.n_steps,
            config.discount,
            priorities,
            relabel,
            config.dataset_share,
            cloning_weight_of(config),
            RandomShift(config.random_shift, space) if config.random_shift else None,
        )
        self.observations = ObservationNormalizer(space.shape) if config.normalize_observations else None
        self.rewards = RewardNormalizer(config.discount) if config.normalize_rewards else None

    def store(self, transitions: Transitions, ended: np.ndarray | None = None) -> None:
        """Store transitions, and update the running statistics with them.

        After those that ``ended``, ``[N]``, by default the terminated or truncated ones, their environment's running
        return restarts at 0.
        """
        if self.rewards is not None:
            self._end_returns(self.rewards, transitions)
        self.replay.store(transitions)
        if self.observations is not None:
            self.observations.update(transitions.observations)
        if self.rewards is not None:
            ended = transitions.terminated | transitions.truncated if ended is None else ended
            self.rewards.update(transitions.rewards, ended, transitions.env_indices)

    def _end_returns(self, rewards: RewardNormalizer, transitions: Transitions) -> None:
        """Restart the running return of each environment whose first transition here does not continue its episode."""
        first: dict[int, int] = {}
        for row, env_index in enumerate(transitions.env_indices):
            first.setdefault(env_index, row)
        for env_index, row in first.items():
            if not self.replay.observations.continues_episode(env_index, transitions.observations[row]):
                rewards.end_episodes(env_index)

    def end_episodes(self, env_index: int | None = None) -> None:
        """Start a new episode with the next transition of one environment, or of all."""
        self.replay.end_episodes(env_index)
        if self.rewards is not None:
            self.rewards.end_episodes(env_index)

    # -- saving ---------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, np.ndarray]:
        """Return the running statistics as arrays by name; empty if nothing is normalised."""
        return {
            f"{name}.{field}": array
            for name, normaliser in self._normalisers().items()
            for field, array in normaliser.state().items()
        }

    def restore_statistics(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays of :meth:`statistics`; raise UsageError if needed ones are missing or invalid."""
        for name, normaliser in self._normalisers().items():
            own = {n.removeprefix(f"{name}."): array for n, array in arrays.items() if n.startswith(f"{name}.")}
            if not own:
                raise UsageError(
                    f"normalize_{name}=True, but the checkpoint has no statistics of {name}, since it was saved "
                    f"without normalize_{name}; load it without this option"
                )
            normaliser.restore(own)

    def _normalisers(self) -> dict[str, ObservationNormalizer | RewardNormalizer]:
        both = {"observations": self.observations, "rewards": self.rewards}
        return {name: normaliser for name, normaliser in both.items() if normaliser is not None}
