"""``DQN``: the discrete sibling, on the same networks, TD paths, replay and learner."""

from collections.abc import Callable

import numpy as np

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config import DQNConfig
from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.experience.interaction import spaces_of
from ddpg.networks.layers import conv, mlp
from ddpg.networks.q_network import QNetwork
from ddpg.updates.dqn import DQNUpdate

__all__ = ["DQN", "QNetwork"]


class DQN(OffPolicyAgent):
    """Deep Q-network (Mnih et al. 2015), with EMA or periodic targets and the double-Q option.

    Used as :class:`ddpg.DDPG` is; :meth:`update` returns ``loss`` (mean squared TD error) and ``q_value``
    (mean Q of the minibatch).

    Args:
        env: a gymnasium ``Env`` or ``VectorEnv`` with a ``Discrete`` action space, or a pair of spaces.
        config: the options; :class:`ddpg.DQNConfig` by default.
        seed: of initial weights, exploration, replay sampling and the first reset; ``None``: random.
        q_network: hidden layers of one's own, ``states [B, ...] -> features``.

    Attributes:
        q: the :class:`QNetwork`, in :attr:`graph`.
        replay: the replay memory.
        num_timesteps: environment steps taken or observed.
        num_updates: gradient updates made.

    Raises:
        UsageError: a space or an option that cannot work.
    """

    config_class = DQNConfig
    _action_size = 1

    def __init__(
        self, env, config: DQNConfig | None = None, seed: int | None = None, *, q_network: Callable | None = None
    ):
        self._discrete = spaces.check_discrete_space(spaces_of(env)[1])
        self._q_network = q_network
        super().__init__(env, config, seed)

    def _build(self) -> tuple[DQNUpdate, QNetwork]:
        config = self.config
        if self._q_network is not None:
            network = self._q_network
        elif config.network == "conv":
            network = conv(dense=config.hidden, activation=config.activation)
        else:
            network = mlp(config.hidden, config.activation, config.norm)
        self.q = QNetwork(
            self.observation_space,
            self._discrete,
            network=network,
            td_target=config.td_target,
            learning_rate=config.learning_rate,
            tau=config.tau,
            clip_delta=config.clip_delta,
        )
        return DQNUpdate(self.q, config.gamma, config.double_q, config.target_update_interval), self.q

    def predict(self, observation, state=None, episode_start=None, deterministic: bool = True):
        """Return ``(action, None)`` for one observation or a batch (Stable-Baselines3's protocol).

        Args:
            observation: the observation space's shape, or flat; or a batch ``[B, ...]`` of them.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: argmax Q(s, ·); otherwise ε-greedy with the current ε.

        Returns:
            Actions of the environment: an integer, or ``[B]`` of them.

        Raises:
            UsageError: another shape, or NaN in the observation.
        """
        observations, single = spaces.as_batch(self.observation_space, observation, "observation")
        actions = self._policy(observations).argmax(axis=1)[:, None]
        if not deterministic:
            actions = self._mix_in_random(actions)
        actions = self._to_env(actions)
        return (actions[0] if single else actions), None

    @property
    def _exploration_range(self) -> tuple[float, float]:
        return self.config.exploration_initial, self.config.exploration_final

    def _explore(self, observations: np.ndarray) -> np.ndarray:
        if self.num_timesteps < self.config.learning_starts:
            return self._random(len(observations))
        return self._mix_in_random(self._policy(observations).argmax(axis=1)[:, None])

    def _mix_in_random(self, actions: np.ndarray) -> np.ndarray:
        explores = self._exploration_rng.random((len(actions), 1)) < self.exploration
        return np.where(explores, self._random(len(actions)), actions).astype(np.float32)

    def _random(self, count: int) -> np.ndarray:
        return self._exploration_rng.integers(0, self.q.actions, (count, 1)).astype(np.float32)

    def _to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions[:, 0].astype(self._discrete.dtype) + self._discrete.start

    def _from_env(self, action) -> np.ndarray:
        if not self._discrete.contains(action):
            raise UsageError(f"action {action!r} is outside the action space {self._discrete}")
        return np.asarray([[action - self._discrete.start]], np.float32)

    def _scale_learning_rates(self, factor: float) -> None:
        with self.session.as_default():
            self.q.set_learning_rate(factor * self.config.learning_rate)
