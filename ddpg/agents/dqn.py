"""``DQN``: the agent for discrete actions, on the same networks, TD paths, replay memory and learner as ``DDPG``."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.config.algorithm_options import DQNConfig
from ddpg.interaction import spaces
from ddpg.interaction.action_mask import check_mask_kept, check_masked, check_masks, has_masked_observations
from ddpg.interaction.actions import Actions, DiscreteActions
from ddpg.interaction.transitions import Transitions
from ddpg.policies.exploration import DiscreteExploration
from ddpg.policies.schedules import interpolate


class DQN(OffPolicyAgent):
    """Deep Q-network (Mnih et al. 2015), with EMA or periodic targets and the double-Q option.

    It is used like :class:`ddpg.DDPG`. :meth:`update` returns ``loss`` (the mean squared TD error, unless
    ``critic_loss`` selects another loss) and ``q_value`` (mean Q of the minibatch).

    Args:
        env: a gymnasium ``Env`` or ``VectorEnv`` with a ``Discrete`` action space, or a pair of spaces. For masked
            actions, an environment wrapped in :class:`ddpg.ActionMask`, or a vector of these.
        config: the options; :class:`ddpg.DQNConfig` by default.
        seed: of initial weights, exploration, replay sampling and the first reset; ``None``: random.
        q_network: your own hidden layers, ``states [B, ...] -> features``.

    Attributes:
        q: the :class:`QNetwork`, in :attr:`graph`.
        replay: the replay memory.
        num_timesteps: environment steps taken or observed.
        num_updates: gradient updates made.

    Raises:
        UsageError: if a space or an option cannot work, a wrapper hides an action mask, or a keyword is unknown.
    """

    config_class = DQNConfig
    update_class = DQNUpdate
    config: DQNConfig

    def __init__(
        self,
        env: Any,
        config: DQNConfig | None = None,
        seed: int | None = None,
        *,
        q_network: Callable | None = None,
        **unknown: Any,
    ):
        if config is None or isinstance(config, DQNConfig):
            if has_masked_observations(env):
                config = (DQNConfig() if config is None else config).replace(action_mask=True)
            else:
                check_mask_kept(env, given=config is not None and config.action_mask)
        super().__init__(env, config, seed, {"q_network": q_network}, unknown)
        assert isinstance(self.symbolic_update, DQNUpdate)
        self.q = self.symbolic_update.network

    def _check_masks(self, transitions: Transitions) -> None:
        if self.config.action_mask:
            check_masked(transitions, int(spaces.check_discrete_space(self.action_space).n))

    def _check_observation_masks(self, observation: npt.ArrayLike) -> None:
        if self.config.action_mask:
            observations, _ = spaces.as_batch(self.observation_space, observation, "observation")
            check_masks(observations, int(spaces.check_discrete_space(self.action_space).n))

    def _make_actions(self, space: gym.Space) -> tuple[Actions, gym.Space]:
        space = spaces.check_discrete_space(space)
        return DiscreteActions(space), space

    def make_behaviour(self, rng: np.random.Generator, config: DQNConfig) -> DiscreteExploration:
        """Return an ε-greedy behaviour policy."""
        return DiscreteExploration(
            rng,
            config.learning_starts,
            partial(interpolate, config.exploration_initial, config.exploration_final, config.exploration_steps),
            choices=int(spaces.check_discrete_space(self.action_space).n),
            masked=config.action_mask,
        )
