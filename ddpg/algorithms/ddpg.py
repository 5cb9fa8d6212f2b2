"""One DDPG update as TensorFlow ops: Algorithm 1 of Lillicrap et al. 2015 after the minibatch is drawn.

| symbol | shape | meaning |
|---|---|---|
| batch | [B, ...] | replayed transitions (s, a, r, s′, terminated): :class:`ddpg.replay.minibatch.Batch` |
| y | [B, 1] | the TD target |
| q | [B, 1] | Q(s, a), the prediction |

The parts are separate functions so that a learner can run them one by one in a session, to see the values in between,
or chained by :meth:`ddpg.algorithms.base.Update.update_op` and fused into one compiled call.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import tensorflow as tf

from ddpg.algorithms.base import (
    Metrics,
    OptimizerSpec,
    OptimizerStep,
    Spaces,
    Update,
    apply_and_report,
    bootstrap,
    network_options,
    td_errors,
    weight_samples,
)
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import UsageError
from ddpg.gradients.policy import apply_path
from ddpg.gradients.td import GradientsAndVariables, check_gradients
from ddpg.networks.actor import ActorNetwork, AveragedActor
from ddpg.networks.base import Network
from ddpg.networks.critic import CategoricalCritic, CriticNetwork, DistributionalCritic
from ddpg.networks.layers import ConvolutionalLayers, hidden_layers
from ddpg.networks.own_layers import own_layers
from ddpg.networks.value import Prediction
from ddpg.policies.network_policy import ActingNetwork
from ddpg.replay.minibatch import Batch

ACTOR_METRICS = ("actor_loss", "action_gradient_norm", "bounded_gradient_norm", "actions_outside", "actions_saturated")

SATURATED = 0.99  # half-ranges from the middle, where tanh passes on 2 % of the gradient


def td_target(
    actor: ActorNetwork, critic: CriticNetwork, batch: Batch, gamma: float, online: bool = False
) -> tf.Tensor:
    """y = r + γ(1 − terminated)·Q′(s′, μ′(s′)), ``[B, 1]``; for n steps see :func:`ddpg.algorithms.base.bootstrap`.

    Only *terminated* masks the bootstrap: if a time limit cut the episode, s′ still has a value. μ′(s′) is clipped to
    the action space before Q′ sees it: a linear actor (inverting, zeroing) can leave it, and Q′ was never trained
    there. With ``online``, Q and μ replace Q′ and μ′; ``residual_gradient`` always uses them, since only then does y
    depend on the weights with respect to which it is differentiated.
    """
    online = online or critic.td_path.bootstraps_online
    successor = next_prediction(critic, batch, next_actions(actor, batch, online), online)
    return critic.td_target(functools.partial(bootstrap, batch, gamma), successor)


def next_actions(actor: ActorNetwork, batch: Batch, online: bool) -> tf.Tensor:
    """Return μ′(s′), or μ(s′) if ``online``, clipped to the box, ``[B, A]``."""
    policy = actor if online else actor.target
    return tf.clip_by_value(policy(batch.next_observations), actor.low, actor.high)


def next_prediction(critic: CriticNetwork, batch: Batch, actions: tf.Tensor, online: bool) -> Prediction:
    """Return the prediction of the target critic, or of the critic if ``online``, for s′ and ``actions`` ``[B, A]``."""
    if online:
        return critic.prediction(batch.next_observations, actions, training=False)
    return critic.target_prediction(batch.next_observations, actions)


def critic_step(critic: CriticNetwork, batch: Batch, y: tf.Tensor, prioritised: str | None = None) -> Metrics:
    """Move Q(s, a) towards y by one optimiser step; the metrics are ready when it is done.

    ``critic_loss`` is the unweighted mean, also where samples are weighted.
    """
    return regression_step(critic, critic.prediction(batch.observations, batch.actions), batch, y, prioritised)


def regression_step(
    critic: CriticNetwork, prediction: Prediction, batch: Batch, y: tf.Tensor, prioritised: str | None = None
) -> Metrics:
    """Same as :func:`critic_step`, from the critic's prediction for (s, a)."""
    metrics = {"critic_loss": critic.td_path.loss(prediction.output, y), "q_value": tf.reduce_mean(prediction.q)}
    metrics |= td_errors(prediction.q, y, prioritised)
    gradients = critic.td_gradients(*weight_samples(critic, batch, prediction, y, prioritised))
    return apply_and_report(critic, gradients, metrics)


def actor_step(actor: ActorNetwork, critic: CriticNetwork, batch: Batch) -> Metrics:
    """Move μ along ∇θJ by one optimiser step; only the actor's weights change.

    The metrics are computed at the actions at which the gradient was taken. Applying the critic a second time costs
    nothing once compiled: the compilers merge equal expressions.
    """
    states = batch.observations
    policy = policy_gradient(actor, critic, batch)
    actions = actor(states) if policy.actions is None else policy.actions
    gradients = critic.action_gradient(states, actions)
    metrics = {
        "actor_loss": -tf.reduce_mean(critic(states, actions)),
        "action_gradient_norm": _mean_norm(gradients),
        "bounded_gradient_norm": _mean_norm(actor.bound_action_gradient(gradients, actions)),
        "actions_outside": _share(actor, actions, beyond=1.0),
        "actions_saturated": _share(actor, actions, beyond=SATURATED),
    }
    return apply_and_report(actor, policy.gradients, metrics)


class PolicyGradient(NamedTuple):
    """The result of a policy path for a minibatch.

    Attributes:
        gradients: ``[(−∇θJ, variable)]`` for each of the actor's variables.
        actions: the actions μ(s) ``[B, A]`` at which the path took the gradient; ``None`` if it never computed μ(s).
    """

    gradients: GradientsAndVariables
    actions: tf.Tensor | None


def policy_gradient(actor: ActorNetwork, critic: CriticNetwork, batch: Batch) -> PolicyGradient:
    """Apply the actor's policy path to a minibatch, and check its result, since a user's own path may be incomplete.

    Raises:
        UsageError: if the path does not return one gradient for each of the actor's variables, or does not bound ∇ₐQ.
    """
    with actor.record_use(batch.observations) as use:
        pairs = apply_path(actor.policy_gradient, actor, critic, batch)
    name = getattr(actor.policy_gradient, "__name__", repr(actor.policy_gradient))
    check_gradients(pairs, actor.trainable_variables, f"policy_gradient={name}")
    if actor.bounds_gradients and not use.bounded:
        raise UsageError(
            f"policy_gradient={name} leaves out the bounding of the action gradient, so actions would leave their box; "
            "hand the action gradient to actor.policy_gradients(actions, action_gradients), or bound it by "
            "actor.bound_action_gradient(action_gradients, actions)"
        )
    return PolicyGradient(pairs, use.actions)


def target_step(*networks: Network) -> tf.Operation:
    """Move the targets of actor and critics by τ: θ′ ← τθ + (1 − τ)θ′."""
    return tf.group(*[network.target_update() for network in networks])


def actor_layers(config: DDPGConfig, space: gym.spaces.Box) -> Callable:
    """Return the actor's hidden layers: those that ``config`` describes, or the user's own if it holds some."""
    if config.shared_encoder and isinstance(config.actor_network, ConvolutionalLayers):
        raise UsageError(
            "shared_encoder lets the actor read the critic's convolutions, and actor_network has its own; make "
            "actor_network by ddpg.mlp, or leave it out"
        )
    own = own_layers("actor_network", config.actor_network)
    layers = own or hidden_layers(config, space, config.hidden, config.norm)
    return layers.head if config.shared_encoder and isinstance(layers, ConvolutionalLayers) else layers


def critic_layers(config: DDPGConfig, space: gym.spaces.Box) -> Callable:
    """Return a critic's hidden layers; arguments as for :func:`actor_layers`."""
    own = own_layers("critic_network", config.critic_network)
    return own or hidden_layers(config, space, config.hidden_of_critics, config.norm_of_critics, config.action_layer)


def make_networks(config: DDPGConfig, spaces: Spaces, count: int = 1) -> tuple[ActorNetwork, list[CriticNetwork]]:
    """Build the actor and ``count`` critics; further arguments as for :meth:`Update.build`.

    The critics come first if the actor reads the first one's convolutions, else the actor: initial weights depend on
    the order.
    """
    if not config.shared_encoder:
        actor = make_actor(config, spaces)
        return actor, [make_critic(config, spaces) for _ in range(count)]
    critics = [make_critic(config, spaces) for _ in range(count)]
    return make_actor(config, spaces, critics[0]), critics


def make_actor(config: DDPGConfig, spaces: Spaces, encoder: CriticNetwork | None = None) -> ActorNetwork:
    """Build the actor that ``config`` describes; arguments as for :meth:`Update.build`.

    ``encoder`` is the critic whose convolutions the actor reads, if ``shared_encoder`` is set.

    Raises:
        UsageError: if ``shared_encoder`` is set, and the critic's layers are no convolutions of :func:`ddpg.conv`, or
            the actor's own layers are such.
    """
    if config.shared_encoder and encoder is None:
        raise UsageError(
            "shared_encoder: the actor is built without the critic whose convolutions it reads; build both by "
            "ddpg.algorithms.ddpg.make_networks(config, spaces)"
        )
    return ActorNetwork(
        *spaces,
        network=actor_layers(config, spaces[0]),
        encoder=encoder,
        bounding=config.bounding,
        policy_gradient=config.policy_gradient,
        learning_rate=config.actor_learning_rate,
        action_gradient_clip=config.action_gradient_clip,
        pre_activation_penalty=config.pre_activation_penalty,
        **network_options(config, "actor_network"),
    )


def make_critic(config: DDPGConfig, spaces: Spaces) -> CriticNetwork:
    """Build a critic as ``config`` describes it; arguments as for :meth:`Update.build`."""
    options: dict[str, Any] = {
        "network": critic_layers(config, spaces[0]),
        "td_target": config.td_target,
        "learning_rate": config.critic_learning_rate,
        "clip_delta": config.clip_delta,
        "l2": config.critic_l2,
        **network_options(config, "critic_network"),
    }
    if config.critic != "scalar":
        options |= {"atoms": config.atoms, "v_min": config.v_min, "v_max": config.v_max, "spread": config.target_spread}
        kind = CategoricalCritic if config.critic == "categorical" else DistributionalCritic
        return kind(*spaces, **options)
    return CriticNetwork(*spaces, loss=config.critic_loss, **options)


def _mean_norm(gradients: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.norm(gradients, axis=1))


def _share(actor: ActorNetwork, actions: tf.Tensor, beyond: float) -> tf.Tensor:
    """Return the share of the numbers in ``actions`` more than ``beyond`` half-ranges from the middle."""
    distance = tf.abs(actions - (actor.high + actor.low) / 2) / ((actor.high - actor.low) / 2)
    return tf.reduce_mean(tf.cast(distance > beyond, tf.float32))


@dataclasses.dataclass(frozen=True)
class DDPGUpdate(Update):
    """The update of one actor μ and critic Q by the options in ``config``."""

    actor: ActorNetwork
    critic: CriticNetwork
    config: DDPGConfig

    metrics: ClassVar[tuple[str, ...]] = ("critic_loss", "q_value", *ACTOR_METRICS)

    averaged_actor: AveragedActor | None = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        # Built after the critics, so that their initial weights, which depend on the ops built before, do not change.
        if horizon := self.config.actor_average:
            with self.actor.graph.as_default():
                object.__setattr__(self, "averaged_actor", AveragedActor(self.actor, horizon))

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> "DDPGUpdate":
        """See :meth:`Update.build`."""
        actor, critics = make_networks(config, spaces)
        return cls(actor, critics[0], config)

    @property
    def policy(self) -> ActorNetwork:
        """The actor."""
        return self.actor

    @property
    def greedy_policy(self) -> ActingNetwork:
        """The actor, or the average of it."""
        return self.averaged_actor or self.actor

    @property
    def value(self) -> CriticNetwork:
        """The critic."""
        return self.critic

    @property
    def critics(self) -> tuple[CriticNetwork, ...]:
        """The critic, and any that a variant adds."""
        return (self.critic,)

    @property
    def online(self) -> bool:
        """Whether y is computed by the online networks instead of the target networks."""
        return self.config.target != "ema" or self.critic.td_path.bootstraps_online

    @property
    def target_reads_online(self) -> bool:
        """See :attr:`ddpg.algorithms.base.Update.target_reads_online`."""
        return self.online

    @property
    def learning_rates(self) -> list[OptimizerSpec]:
        """The learning rates of actor and critics."""
        config, shared = self.config, self.config.learning_rate_schedule
        rate, schedule = config.critic_learning_rate, config.critic_learning_rate_schedule or shared
        critics = [OptimizerSpec(critic, rate, schedule) for critic in self.critics]
        schedule = config.actor_learning_rate_schedule or shared
        return [OptimizerSpec(self.actor, config.actor_learning_rate, schedule), *critics]

    @property
    def action_size(self) -> int:
        """A: numbers in a stored action."""
        return self.critic.action_size

    @property
    def steps(self) -> list[OptimizerStep]:
        """The critic's step, then the actor's."""
        return [self.critic_step, self.actor_step]

    def target(self, batch: Batch) -> tf.Tensor:
        """See :func:`td_target`."""
        return td_target(self.actor, self.critic, batch, self.config.discount, self.online)

    @property
    def policy_path(self) -> Callable:
        """The actor's policy path."""
        return self.actor.policy_gradient

    def critic_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """See :func:`critic_step`."""
        return critic_step(self.critic, batch, y, self.config.prioritised)

    def actor_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """See :func:`actor_step`."""
        return actor_step(self.actor, self.critic, batch)

    def update_targets(self) -> tf.Operation:
        """Move the target networks (:func:`target_step`) and the averaged actor, if there are any."""
        networks = {"ema": (self.actor, *self.critics), "joint_ema": self.critics}.get(self.config.target, ())
        moved = [target_step(*networks)] if networks else []
        return tf.group(*moved, *([self.averaged_actor.update()] if self.averaged_actor else []))
