"""TD3 (Fujimoto, van Hoof & Meger 2018, arXiv 1802.09477): its three changes to DDPG, each with its own option.

| option | what changes | in the paper |
|---|---|---|
| ``n_critics`` | y uses the minimum of the critics' values; each critic learns from the same y | section 4.2, eq. 10 |
| ``policy_delay`` | actor and target networks are updated in every d-th update only | section 5.2, Algorithm 1 |
| ``target_policy_noise`` | noise, clipped to ±``target_noise_clip``, is added to μ′(s′) in y | section 5.3 |

As in the paper, the actor follows the first critic, ∇ₐQ₁. With ``target_critics="mean"`` y uses the mean of the
critics' values instead of the minimum.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ddpg.algorithms import ddpg
from ddpg.algorithms.base import TD_ERRORS, Metrics, Spaces, UpdateCounter, bootstrap
from ddpg.algorithms.random_numbers import standard_normal
from ddpg.networks.critic import CriticNetwork
from ddpg.networks.value import Prediction
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class TD3Update(ddpg.DDPGUpdate):
    """The update of one actor and one or more critics: ``critic``, which the actor follows, and ``further_critics``."""

    further_critics: tuple[CriticNetwork, ...] = ()

    _count: UpdateCounter = dataclasses.field(init=False)
    _last_metrics: tf.Variable = dataclasses.field(init=False)

    def __post_init__(self):
        super().__post_init__()
        with self.actor.graph.as_default(), v1.variable_scope("td3", use_resource=True):
            object.__setattr__(self, "_count", UpdateCounter("updates"))
            nothing = tf.zeros([len(ddpg.ACTOR_METRICS)])
            last = v1.get_variable("actor_metrics", initializer=nothing, trainable=False)
            object.__setattr__(self, "_last_metrics", last)

    @staticmethod
    def is_enabled(config: Any) -> bool:
        """Whether any of TD3's options is on."""
        names = {"n_critics": 1, "policy_delay": 1, "target_policy_noise": 0.0}
        return any(getattr(config, name, off) != off for name, off in names.items())

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> "TD3Update":
        """See :meth:`ddpg.algorithms.base.Update.build`."""
        actor, (first, *further) = ddpg.make_networks(config, spaces, config.n_critics)
        return cls(actor, first, config, tuple(further))

    @property
    def count(self) -> UpdateCounter:
        """See :attr:`ddpg.algorithms.base.Update.count`."""
        return self._count

    def noise(self, shape: Sequence[int] | tf.Tensor, made: tf.Tensor) -> tf.Tensor | None:
        """Return ε of :meth:`target`, generated from the graph's seed."""
        return standard_normal(shape, self.actor.graph.seed or 0, made) if self.config.target_policy_noise else None

    @property
    def critics(self) -> tuple[CriticNetwork, ...]:
        """All critics; the actor follows the first."""
        return self.critic, *self.further_critics

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·minᵢ Q′ᵢ(s′, ã), or with the mean over i, ``[B, 1]``.

        With ã = clip(clip(μ′(s′), low, high) + h·clip(ε, ±c), low, high), ε ~ N(0, σ²), h half the box's range.

        The minimum counters the overestimation that the maximisation by μ builds into one critic; the noise
        makes close actions have close values. σ and c are in half-ranges.
        """
        actions = self._smoothed(ddpg.next_actions(self.actor, batch, self.online), batch)
        successors = [ddpg.next_prediction(critic, batch, actions, self.online) for critic in self.critics]
        return self._from_critics(batch, successors)

    def critic_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Move every critic towards the same y; the metrics are means over the critics."""
        return mean_metrics([ddpg.critic_step(critic, batch, y, self.config.prioritised) for critic in self.critics])

    def actor_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Update the actor in every d-th update; in between, report the metrics of its last step (0 before the first).

        In between no part of the step runs, so Adam's moments and powers of β do not change either.
        """
        if self.config.policy_delay == 1:
            return super().actor_step(batch, y)

        def step() -> tf.Tensor:
            metrics = ddpg.actor_step(self.actor, self.critic, batch)
            values = tf.stack([metrics[name] for name in ddpg.ACTOR_METRICS])
            with tf.control_dependencies([self._last_metrics.assign(values, read_value=False)]):
                return tf.identity(values)

        values = self._count.every(self.config.policy_delay, step, self._last_metrics.read_value)
        return dict(zip(ddpg.ACTOR_METRICS, tf.unstack(values), strict=True))

    def update_targets(self) -> tf.Operation:
        """Move all targets, and the averaged actor, in every d-th update; count the update."""
        return self._count.advance(self.config.policy_delay, super().update_targets)

    def _from_critics(self, batch: Batch, successors: Sequence[Prediction]) -> tf.Tensor:
        successor = _mean(successors) if self.config.target_critics == "mean" else functools.reduce(_least, successors)
        return self.critic.td_target(functools.partial(bootstrap, batch, self.config.discount), successor)

    def _smoothed(self, actions: tf.Tensor, batch: Batch) -> tf.Tensor:
        sigma, clip = self.config.target_policy_noise, self.config.target_noise_clip
        if sigma == 0:
            return actions
        noise: Any = self.noise(tf.shape(actions), self._count.made()) if batch.noise is None else batch.noise
        half_range = (self.actor.high - self.actor.low) / 2
        disturbed = actions + tf.clip_by_value(sigma * noise, -clip, clip) * half_range
        return tf.clip_by_value(disturbed, self.actor.low, self.actor.high)


def _least(one: Prediction, other: Prediction) -> Prediction:
    """Return for each sample the smaller value, or the distribution with the smaller mean."""
    q = tf.minimum(one.q, other.q)
    return Prediction(q, q if one.output is one.q else tf.where(one.q <= other.q, one.output, other.output))


def _mean(predictions: Sequence[Prediction]) -> Prediction:
    """Return for each sample the mean of the values; of distributions, the mixture, whose mean that is."""
    q = tf.add_n([prediction.q for prediction in predictions]) / len(predictions)
    if all(prediction.output is prediction.q for prediction in predictions):
        return Prediction(q, q)
    probabilities = [tf.nn.softmax(prediction.output) for prediction in predictions]
    return Prediction(q, tf.math.log(tf.add_n(probabilities) / len(predictions)))


def mean_metrics(steps: Sequence[Metrics]) -> Metrics:
    """Return the mean of each metric over the critics; for TD errors the maximum, as TD3 with LAP does."""
    measured = {name: tf.add_n([step[name] for step in steps]) / len(steps) for name in steps[0] if name != TD_ERRORS}
    errors = [step[TD_ERRORS] for step in steps if TD_ERRORS in step]
    return measured | ({TD_ERRORS: functools.reduce(tf.maximum, errors)} if errors else {})
