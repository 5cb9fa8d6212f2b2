"""``DDPG``: the object a user holds."""

from collections.abc import Callable

import numpy as np

from ddpg import spaces
from ddpg.config import DDPGConfig
from ddpg.errors import UsageError
from ddpg.interaction import spaces_of
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.critic import CriticNetwork
from ddpg.networks.layers import mlp
from ddpg.noise import make_noise
from ddpg.off_policy import OffPolicyAgent
from ddpg.update import DDPGUpdate


class DDPG(OffPolicyAgent):
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971).

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are
    untouched. Trains in a [-1, 1] action space and rescales at the environment: every action that goes
    in or out of a public method is in env units.

    :meth:`update` returns ``critic_loss`` (mean squared TD error), ``q_value`` (mean Q of the minibatch),
    ``actor_loss`` (−mean Q(s, μ(s))) and ``action_gradient_norm`` (mean ‖∇ₐQ‖ at μ(s), before bounding).

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
        action_space = spaces_of(env)[1]
        self._scaling = spaces.ActionScaling(action_space)
        self._action_size = spaces.flat_size(action_space)
        self._networks = actor_network, critic_network
        super().__init__(env, config, seed)
        self._start_exploring(1)

    def _build(self) -> tuple[DDPGUpdate, ActorNetwork]:
        config, unit_space = self.config, self._scaling.unit_space
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
            deterministic: μ(s); otherwise with exploration noise, drawn afresh (no OU memory).

        Returns:
            Actions in env units, in the action space's shape and dtype, inside its bounds.

        Raises:
            UsageError: another shape, or NaN in the observation.
        """
        observations, single = spaces.as_batch(self.observation_space, observation, "observation")
        actions = self._policy(observations)
        if not deterministic:
            scale = np.float32(self.config.noise_scale)
            actions = actions + scale * self._exploration_rng.standard_normal(actions.shape, np.float32)
        actions = self._scaling.to_env(actions)
        return (actions[0] if single else actions), None

    def _explore(self, observations: np.ndarray) -> np.ndarray:
        shape = (len(observations), self._action_size)
        if self.num_timesteps < self.config.learning_starts:
            return self._exploration_rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        noisy = self._policy(observations) + self._noise.sample(self._exploration_rng)
        return np.minimum(np.maximum(noisy, np.float32(-1)), np.float32(1))

    def _start_exploring(self, count: int) -> None:
        config = self.config
        shape = (count, self._action_size)
        self._noise = make_noise(config.noise, config.noise_scale, shape, config.noise_theta, config.noise_dt)

    def _episode_ended(self, index: int) -> None:
        self._noise.reset(index)

    def _to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._scaling.to_env(actions)

    def _from_env(self, action) -> np.ndarray:
        actions, _ = spaces.as_batch(self.action_space, action, "action")
        if len(actions) != 1:
            raise UsageError("observe stores one transition; call it once for each")
        actions = self._scaling.to_unit(actions)
        if np.abs(actions).max() > 1 + 1e-5:
            raise UsageError(
                f"action {np.asarray(action).tolist()} is outside the action space {self.action_space}; "
                "store the action that was sent to the environment, clipped to its bounds"
            )
        return actions

    def _scale_learning_rates(self, factor: float) -> None:
        with self.session.as_default():
            self.actor.set_learning_rate(factor * self.config.actor_learning_rate)
            self.critic.set_learning_rate(factor * self.config.critic_learning_rate)
