"""What prioritised replay changes about a critic's step: each sample's weight, and the TD errors it reports."""

import tensorflow as tf

from ddpg.experience.batch import Batch
from ddpg.gradients.weighting import huber_weights, weighted
from ddpg.networks.value import ValueNetwork

TD_ERRORS = "td_errors"  # among a step's metrics: |y − q| of each sample, [B, 1]


def td_errors(q: tf.Tensor, y: tf.Tensor, prioritised: str | None) -> dict[str, tf.Tensor]:
    """Return what a step with priorities measures besides: |y − q| as :data:`TD_ERRORS`."""
    return {} if prioritised is None else {TD_ERRORS: tf.abs(y - q)}


def emphasised(
    network: ValueNetwork, batch: Batch, q: tf.Tensor, y: tf.Tensor, prioritised: str | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return q and y for the network's TD path, so that its gradient weighs the samples as ``prioritised`` wants.

    ``proportional``: by the batch's importance-sampling weights (Schaul et al. 2016, section 3.4). ``lap``: by those
    that make the loss Huber's, which draws as unevenly as it weighs (Fujimoto et al. 2020). Where y is differentiated
    too, it is weighed alike.
    """
    if prioritised is None:
        return q, y
    weights = huber_weights(q, y) if prioritised == "lap" else batch.weights
    through = network.td_path.bootstraps_online
    return weighted(q, weights), weighted(y, weights) if through else y
