"""CrossQ (Bhatt et al. 2024, arXiv 1902.05605): a critic update without target networks, by one joint forward pass.

(s, a) and (s′, a′) go through the critic in one forward pass, so that its batch renormalisation sees both: replayed
actions and the policy's have different distributions, and the statistics of one alone would not fit the other. This
makes it stable to compute y with the online critic; no gradient flows through y. The paper's settings are
``critic_norm="renorm"``, ``n_critics=2``, ``policy_delay=3`` and ``adam_beta1=0.5``; the policy here is deterministic.

With ``target="joint_ema"`` y comes from a second joint pass, through the moving averages of the critics' weights (XQC:
Palenicek et al. 2025, arXiv 2509.25174). That pass normalises by the batch's statistics too, and a′ comes from the
online actor: there is no target actor.
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
    """The update of one actor and its critics; y comes from a joint pass through the critics or their averages."""

    @staticmethod
    def is_enabled(config: Any) -> bool:
        """Whether the options select the joint pass."""
        return config.joint_pass

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> TD3Update:
        """See :meth:`ddpg.algorithms.base.Update.build`.

        Raises:
            UsageError: if the critics' layers are the user's own and have no moving statistics: a joint pass needs
                layers that normalise by the statistics of both halves.
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
        """False: :meth:`critic_step` itself waits for y."""
        return False

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·minᵢ Qᵢ(s′, μ(s′)), or with the mean, from the joint forward pass, ``[B, 1]``.

        Without averages the joint pass is built here and again in the critics' step, on the same weights; compilers
        merge the two. Only the critics' step updates the moving statistics.
        """
        with frozen_statistics():
            averages = self.config.target == "joint_ema"
            return self._from_critics(batch, [successor for _, successor in self._joint(batch, averages)])

    def critic_step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Move every critic's prediction for (s, a), from the joint pass, towards y."""
        with tf.control_dependencies([y]):  # y's pass must read the moving statistics before this pass updates them
            predictions = [prediction for prediction, _ in self._joint(batch)]
        pairs = zip(self.critics, predictions, strict=True)
        return mean_metrics([ddpg.regression_step(*pair, batch, y, self.config.prioritised) for pair in pairs])

    def _joint(self, batch: Batch, averages: bool = False) -> list[tuple[Prediction, Prediction]]:
        actions = tf.stop_gradient(self._smoothed(ddpg.next_actions(self.actor, batch, online=True), batch))
        rows = batch.observations, batch.actions, batch.next_observations, actions
        return [critic.joint(*rows, averages=averages) for critic in self.critics]
