"""The joint forward pass: CrossQ (Bhatt et al. 2024, arXiv 1902.05605), a critic's update without target networks.

(s, a) and (s′, a′) go through the critic in one forward pass, so that its batch renormalisation sees both: replayed
actions and the policy's are of different distributions, and statistics of one alone would misjudge the other. With
that, y of the online critic, stopped, is stable. As there: ``critic_norm="renorm"``, ``n_critics=2``,
``policy_delay=3``, ``adam_beta1=0.5``; the policy here is deterministic.

With ``target="joint_ema"`` y is of a second joint pass, through the moving averages of the critics' weights (XQC:
Palenicek et al. 2025, arXiv 2509.25174). Its statistics are the batch's too, and a′ is the actor's own: no average of
the actor is used.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from ddpg.algorithms import ddpg
from ddpg.algorithms.base import Metrics, Spaces
from ddpg.algorithms.td3 import TD3Update, mean_metrics
from ddpg.config.imports import name_of
from ddpg.errors import UsageError
from ddpg.networks.layers import frozen_statistics
from ddpg.networks.value import Prediction
from ddpg.replay.minibatch import Batch


@dataclasses.dataclass(frozen=True)
class CrossQUpdate(TD3Update):
    """The update of one actor and critics whose y is of a joint forward pass: their own, or their averages'."""

    @staticmethod
    def is_asked_for(config: Any) -> bool:
        """Whether the options ask for the joint pass."""
        return config.joint_pass

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> TD3Update:
        """See :meth:`ddpg.algorithms.base.Update.build`.

        Raises:
            UsageError: if the critics are the user's own and have no moving statistics: a joint pass is for layers that
                normalise by statistics of both its halves.
        """
        update = super().build(config, spaces)
        own = config.critic_network
        if own is not None and all(variable.trainable for variable in update.critic.variables):
            raise UsageError(
                f"target={config.target!r} needs batch normalisation in the critics, and "
                f"critic_network={name_of(own)} has none; "
                "set target='ema' (--target ema), take a recipe that does (--recipe td3), or normalise in it: "
                "ddpg.mlp(hidden, norm='renorm')"
            )
        return update

    @property
    def target_reads_online(self) -> bool:
        """False: :meth:`critic_step` itself waits for y where it has to."""
        return False

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·minᵢ Qᵢ(s′, μ(s′)), of the joint forward pass, ``[B, 1]``.

        Without averages the joint pass is built here and again in the critics' step, on the same weights; compilers
        merge the two. The moving statistics are updated there, once.
        """
        with frozen_statistics():
            averages = self.config.target == "joint_ema"
            return self._from_least(batch, [successor for _, successor in self._joint(batch, averages)])

    def critic_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Move every critic's half of the joint pass towards y."""
        with tf.control_dependencies([y]):  # y's own pass reads the statistics before they move
            predictions = [prediction for prediction, _ in self._joint(batch)]
        pairs = zip(self.critics, predictions, strict=True)
        return mean_metrics([ddpg.regression_step(*pair, batch, y, self.config.prioritised) for pair in pairs])

    def _joint(self, batch: Batch, averages: bool = False) -> list[tuple[Prediction, Prediction]]:
        actions = tf.stop_gradient(self._smoothed(ddpg.next_actions(self.actor, batch, online=True), batch))
        rows = batch.observations, batch.actions, batch.next_observations, actions
        return [critic.joint(*rows, averages=averages) for critic in self.critics]
