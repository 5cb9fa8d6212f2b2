"""A network as a float64 NumPy function of its weights: a reference no automatic differentiation takes part in."""

from collections.abc import Callable

import tensorflow as tf

from ddpg.acting.mirror import mirror
from ddpg.errors import UsageError
from ddpg.networks.base import Network


def float64_function(network: Network) -> Callable:
    """Return ``function(weights, *inputs) -> output``, the network computed in float64.

    Args:
        network: an actor or a critic.

    Returns:
        A function of float64 arrays in the order of ``network.variables`` (or of ``network.target_variables``,
        which makes it the target), and of the network's inputs ``[B, ...]``, float64.

    Raises:
        UsageError: the network has an op that NumPy cannot mirror, or learns otherwise than it acts: normalised over
            the batch.
    """
    with network.graph.as_default(), tf.name_scope("reference"):
        inputs = network.placeholders()
        output = network(*inputs)
    mirrored = mirror(output, *inputs)
    averages = len(network.variables) - len(network.trainable_variables)  # over batches
    if mirrored is None or averages:
        raise UsageError(
            f"the network of the {network.name} has ops without a NumPy counterpart (normalisation over the batch, "
            "convolutions, activations of one's own); give it fully connected layers with norm none or layer and "
            "one of tflearn's activations"
        )
    program, handles = mirrored
    places = {variable.handle.name: place for place, variable in enumerate(network.variables)}
    order = [places[handle.name] for handle in handles]

    def function(weights, *inputs):
        program.load([weights[place] for place in order])
        return program(*inputs)

    return function
