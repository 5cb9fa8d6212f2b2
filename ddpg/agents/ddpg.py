"""``DDPG``: the object a user holds."""

from collections.abc import Callable

import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.acting.noise import make_noise
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config import DDPGConfig
from ddpg.experience import spaces
from ddpg.experience.actions import actions_of, first
from ddpg.experience.interaction import spaces_of
from ddpg.gradients.bounding import tanh_head
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.critic import CriticNetwork
from ddpg.networks.layers import mlp
from ddpg.updates.ddpg import DDPGUpdate


class DDPG(OffPolicyAgent):
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971).

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are
    untouched. Trains in a flat [-1, 1] action space and translates at the environment: every action that
    goes in or out of a public method is in env units. Parameterised actions, ``Tuple(Discrete(n),
    Tuple(Box, ...))`` or ``OneOf(Box, ...)``, are n scores and all parameters (:mod:`ddpg.experience.actions`).

    :meth:`update` returns ``critic_loss`` (mean squared TD error), ``q_value`` (mean Q of the minibatch),
    ``actor_loss`` (−mean Q(s, μ(s))), and of the numbers that make up μ(s) ``actions_outside`` (share
    outside [-1, 1]), ``actions_saturated`` (share in the outer hundredth of the range, or outside),
    ``action_gradient_norm`` (mean ‖∇ₐQ‖, before clipping and bounding) and ``bounded_gradient_norm`` (after).

    Args:
        env: a gymnasium ``Env``, a ``VectorEnv``, or a pair ``(observation_space, action_space)`` for a
            loop of one's own.
        config: the options; :class:`ddpg.DDPGConfig` by default.
        seed: of initial weights, exploration, replay sampling and the first reset; ``None``: random.
        actor_network: hidden layers of one's own, ``states [B, ...] -> features``.
        critic_network: hidden layers of one's own, ``(states [B, ...], actions [B, A]) -> features``.

    Attributes:
        actor, critic: the networks, in :attr:`graph`; run them inside ``with agent.session.as_default():``.
        replay: the replay memory.
        num_timesteps: environment steps taken or observed.
        num_updates: gradient updates made.
        num_clipped_actions: steps, since this object was made, whose action with noise left the box and was
            clipped to it.
        num_clipped_predictions: the same for actions that :meth:`predict` returned.

    Raises:
        UsageError: a space or an option that cannot work.
    """

    config_class = DDPGConfig

    def __init__(
        self,
        env,
        config: DDPGConfig | None = None,
        seed: int | None = None,
        *,
        actor_network: Callable | None = None,
        critic_network: Callable | None = None,
    ):
        self._actions = actions_of(spaces_of(env)[1])
        self._action_size = self._actions.size
        self._networks = actor_network, critic_network
        self.num_clipped_actions = self.num_clipped_predictions = 0
        super().__init__(env, config, seed)
        self._start_exploring(1)

    def _build(self) -> tuple[DDPGUpdate, ActorNetwork]:
        config = self.config
        unit_space = gym_spaces.Box(-1.0, 1.0, (self._action_size,), np.float32)
        actor_network, critic_network = self._networks
        layers = {"activation": config.activation, "norm": config.norm}
        self.actor = ActorNetwork(
            self.observation_space,
            unit_space,
            network=actor_network or mlp(config.hidden, **layers),
            bounding=config.bounding,
            policy_gradient=config.policy_gradient,
            learning_rate=config.actor_learning_rate,
            tau=config.tau,
            action_gradient_clip=config.action_gradient_clip,
        )
        self.critic = CriticNetwork(
            self.observation_space,
            unit_space,
            network=critic_network or mlp(config.hidden, **layers, action_layer=config.action_layer),
            td_target=config.td_target,
            learning_rate=config.critic_learning_rate,
            tau=config.tau,
            clip_delta=config.clip_delta,
        )
        return DDPGUpdate(self.actor, self.critic, config.gamma), self.actor

    def predict(self, observation, state=None, episode_start=None, deterministic: bool = True):
        """Return ``(action, None)`` for one observation or a batch (Stable-Baselines3's protocol).

        Args:
            observation: the observation space's shape, or flat; or a batch ``[B, ...]`` of them.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: μ(s); otherwise with exploration noise, drawn afresh (no OU memory), and with the
                current share ε of uniform random actions.

        Returns:
            Actions in env units, in the action space's shape and dtype, inside its bounds; for a batch as a
            vector environment takes them.

        Raises:
            UsageError: another shape, or NaN in the observation.
        """
        observations, single = spaces.as_batch(self.observation_space, observation, "observation")
        actions = self._policy(observations)
        if not deterministic:
            scale = np.float32(self.config.noise_scale)
            noise = scale * self._exploration_rng.standard_normal(actions.shape, np.float32)
            actions = self._mix_in_random(actions + noise)
        if not deterministic or self.actor.bounding.head is not tanh_head:
            self.num_clipped_predictions += _outside(actions)
        actions = self._actions.to_env(actions)
        return (first(actions) if single else actions), None

    @property
    def counts(self) -> dict[str, int]:
        """``clipped_actions``: see :attr:`num_clipped_actions`."""
        return {"clipped_actions": self.num_clipped_actions}

    @property
    def _exploration_range(self) -> tuple[float, float]:
        chosen = self.config.exploration_initial, self.config.exploration_final
        usual = (1.0, 0.1) if self._actions.scores else (0.0, 0.0)
        return tuple(ours if theirs is None else theirs for theirs, ours in zip(chosen, usual, strict=True))

    def _explore(self, observations: np.ndarray) -> np.ndarray:
        if self.num_timesteps < self.config.learning_starts:
            return self._random(len(observations))
        noisy = self._policy(observations) + self._noise.sample(self._exploration_rng)
        actions = self._mix_in_random(noisy)
        self.num_clipped_actions += _outside(actions)
        return np.minimum(np.maximum(actions, np.float32(-1)), np.float32(1))

    def _mix_in_random(self, actions: np.ndarray) -> np.ndarray:
        if self.exploration == 0:
            return actions
        explores = self._exploration_rng.random((len(actions), 1)) < self.exploration
        return np.where(explores, self._random(len(actions)), actions)

    def _random(self, count: int) -> np.ndarray:
        # Scores too: the largest of equally distributed ones is any of them alike.
        return self._exploration_rng.uniform(-1.0, 1.0, (count, self._action_size)).astype(np.float32)

    def _start_exploring(self, count: int) -> None:
        config = self.config
        shape = (count, self._action_size)
        self._noise = make_noise(config.noise, config.noise_scale, shape, config.noise_theta, config.noise_dt)

    def _episode_ended(self, index: int) -> None:
        self._noise.reset(index)

    def _to_env(self, actions: np.ndarray):
        return self._actions.to_env(actions)

    def _from_env(self, action) -> np.ndarray:
        return self._actions.to_flat(action)

    def _scale_learning_rates(self, factor: float) -> None:
        with self.session.as_default():
            self.actor.set_learning_rate(factor * self.config.actor_learning_rate)
            self.critic.set_learning_rate(factor * self.config.critic_learning_rate)


def _outside(actions: np.ndarray) -> int:
    """Return how many of the actions ``[N, A]`` leave [-1, 1] in some number."""
    return int((np.abs(actions) > 1).any(axis=1).sum())
