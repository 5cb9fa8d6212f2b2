"""Estimate how far rounding alone can move outputs: runtimes that sum in another order may differ by that much."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ddpg.exports.policy_graph import ActingPolicy, inputs_and_outputs

v1 = tf.compat.v1

TRIALS = 8
_UNIT = 2.0**-24  # of float32: the largest relative error of one rounding
_AMPLIFIED = 64  # the perturbations, in units: above the session's own rounding, and far below what bends a network


class Rounding:
    """The agent's outputs with every weight and every observed number moved at random by a few units of rounding.

    A layer that normalises by a small deviation amplifies what the layers before it rounded, so no fixed tolerance fits
    every network. Monte Carlo arithmetic (Parker 1997) measures the amplification: perturbed inputs of every
    operation, propagated by the network itself.

    Args:
        acting: the parts of the agent that act.
        observations: ``[B, ...]`` float32, in env units.

    Attributes:
        outputs: the unperturbed outputs ``[B, A]``.
    """

    def __init__(self, acting: ActingPolicy, observations: np.ndarray):
        states, outputs = inputs_and_outputs(acting)
        reads = _reads(outputs)
        values = acting.session.run(reads)
        rng = np.random.default_rng(0)

        def perturbed(array: np.ndarray) -> np.ndarray:
            return (array * (1 + _AMPLIFIED * _UNIT * rng.choice((-1.0, 1.0), array.shape))).astype(np.float32)

        feeds = [
            {states: perturbed(observations)} | dict(zip(reads, map(perturbed, values), strict=True))
            for _ in range(TRIALS)
        ]
        self.outputs = acting.session.run(outputs, {states: observations})
        self._perturbed = [acting.session.run(outputs, feed) for feed in feeds]
        # Summing n numbers, each rounding independent of the others, errs by about √n units (Higham & Mary 2019).
        sums = max((value.size // value.shape[-1] for value in values if value.ndim > 1), default=1)
        self._factor = 2 * np.sqrt(sums) / _AMPLIFIED

    def bound(self, meaning: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return by how much rounding may change ``meaning(outputs)``, number by number: two standard deviations."""
        expected = meaning(self.outputs)
        squares = [np.square(meaning(outputs) - expected) for outputs in self._perturbed]
        return self._factor * np.sqrt(np.mean(squares, axis=0))


def _reads(output: tf.Tensor) -> list[tf.Tensor]:
    """Return the values of the variables that a tensor is computed from."""
    found: list[tf.Tensor] = []
    seen, waiting = set(), [output.op]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "ReadVariableOp":
            found.append(op.outputs[0])
        else:
            waiting.extend(tensor.op for tensor in op.inputs)
    return found
