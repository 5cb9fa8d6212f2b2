"""``DDPG``: the agent for continuous and parameterised actions."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import UsageError
from ddpg.gradients.bounding import tanh_head
from ddpg.interaction.actions import Actions, BoxActions, make_actions
from ddpg.policies.exploration import BoxExploration, PerturbedExploration, outside_bounds
from ddpg.policies.noise import make_noise
from ddpg.policies.schedules import interpolate


class DDPG(OffPolicyAgent):
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971).

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are
    unaffected. Trains in a flat [-1, 1] action space and translates at the environment: every action that
    goes in or out of a public method is in env units. Parameterised actions, ``Tuple(Discrete(n),
    Tuple(Box, ...))`` or ``OneOf(Box, ...)``, are n scores and all parameters (:mod:`ddpg.interaction.actions`).

    :meth:`update` returns ``critic_loss`` (the mean squared TD error, unless ``critic`` or ``critic_loss`` selects
    another loss; it leaves out the ``critic_l2`` penalty and the sample weights of ``prioritised``, with which the
    critic is trained: importance weights, or for ``lap`` those that make it the Huber loss), ``q_value`` (mean Q of the
    minibatch), ``actor_loss`` (−mean Q(s, μ(s))), ``actions_outside`` (share of the components of μ(s) outside
    [-1, 1]), ``actions_saturated`` (share of them in the outer hundredth of the range, or outside),
    ``action_gradient_norm`` (mean ‖∇ₐQ‖, before clipping and bounding) and ``bounded_gradient_norm`` (after).

    Args:
        env: a gymnasium ``Env``, a ``VectorEnv``, or a pair ``(observation_space, action_space)`` for your own
            training loop.
        config: the options; :class:`ddpg.DDPGConfig` by default.
        seed: of initial weights, exploration, replay sampling and the first reset; ``None``: random.
        actor_network: your own hidden layers, ``states [B, ...] -> features``.
        critic_network: your own hidden layers, ``(states [B, ...], actions [B, A]) -> features``.

    Attributes:
        actor, critic: the networks. Call their numeric methods inside ``with agent.session.as_default():``, their
            symbolic ones inside ``with agent.graph.as_default():``.
        critics: the critic, which the actor follows, and those that ``n_critics`` adds.
        replay: the replay memory.
        num_timesteps: environment steps taken or observed.
        num_updates: gradient updates made.
        num_clipped_actions: steps, since this object was made, whose action with noise left the box and was
            clipped to it.
        num_clipped_predictions: the same for actions that :meth:`predict` returned.

    Raises:
        UsageError: if a space or an option cannot work, or a keyword is unknown.
    """

    config_class = DDPGConfig
    update_class = DDPGUpdate
    config: DDPGConfig

    def __init__(
        self,
        env: Any,
        config: DDPGConfig | None = None,
        seed: int | None = None,
        *,
        actor_network: Callable | None = None,
        critic_network: Callable | None = None,
        **unknown: Any,
    ):
        self.num_clipped_actions = self.num_clipped_predictions = 0
        self._counting = threading.Lock()
        networks = {"actor_network": actor_network, "critic_network": critic_network}
        super().__init__(env, config, seed, networks, unknown)
        assert isinstance(self.symbolic_update, DDPGUpdate)
        self.actor, self.critics = self.symbolic_update.actor, self.symbolic_update.critics
        self.critic = self.symbolic_update.critic
        self._squashed = self.actor.bounding.head is tanh_head
        if self.config.parameter_noise > 0 and self.exploring_policy.in_numpy() is None:
            raise UsageError(
                f"parameter_noise={self.config.parameter_noise} disturbs a NumPy copy of the actor's weights, and this "
                "actor has an op that NumPy has no counterpart for; leave it at 0, or take other layers"
            )

    @property
    def counts(self) -> dict[str, int]:
        """``clipped_actions`` (:attr:`num_clipped_actions`), and ``dropped_transitions`` if they may be dropped."""
        return {"clipped_actions": self.num_clipped_actions, **super().counts}

    def _make_actions(self, space: gym.Space) -> tuple[Actions, gym.Space]:
        actions = make_actions(space)
        return actions, gym.spaces.Box(-1.0, 1.0, (actions.size,), np.float32)

    def make_behaviour(self, rng: np.random.Generator, config: DDPGConfig) -> BoxExploration:
        """Return a behaviour policy that adds noise to actions and, with ``parameter_noise``, to the weights too."""
        kind: Callable[..., BoxExploration]
        usual = (1.0, 0.1) if self.actions.scores else (0.0, 0.0)
        chosen = config.exploration_initial, config.exploration_final
        initial, final = (ours if theirs is None else theirs for theirs, ours in zip(chosen, usual, strict=True))
        kind = BoxExploration
        if config.parameter_noise > 0:
            kind = partial(PerturbedExploration, distance=config.parameter_noise)
        return kind(
            rng,
            config.learning_starts,
            partial(interpolate, initial, final, config.exploration_steps),
            size=self.actions.size,
            make_noise=partial(make_noise, config.noise, config.noise_scale, config.noise_theta, config.noise_dt),
            scale=config.noise_scale,
            share=None
            if config.noise_schedule == "constant"
            else partial(interpolate, 1.0, config.noise_final / config.noise_scale, config.exploration_steps),
            count=getattr(self.env, "num_envs", 1),
        )

    @property
    def _predicted_box(self) -> BoxActions | None:
        box = self.actions if isinstance(self.actions, BoxActions) and self._squashed else None
        return box if box is not None and box.space.dtype == np.float32 else None

    def _count_predicted(self, actions: np.ndarray, deterministic: bool) -> None:
        if not (deterministic and self._squashed):
            count = int(outside_bounds(actions).sum())
            if count:
                with self._counting:  # predict() does not take the agent's lock
                    self.num_clipped_predictions += count

    def _count_clipped(self, count: int) -> None:
        self.num_clipped_actions += count
