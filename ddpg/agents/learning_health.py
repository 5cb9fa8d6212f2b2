"""Measures of whether networks can still learn, from arrays: dormant units, feature rank, step sizes. NumPy only."""

import math
from collections.abc import Sequence

import numpy as np

DORMANT = 0.025  # τ of Sokar et al. 2023
RANK_LEFT_OUT = 0.01  # δ of Kumar et al. 2021
LONGEST_RETURN = 1_000  # steps
NEGLIGIBLE = 0.01  # weight of what follows a return that is long enough


def dormant_share(activations: Sequence[np.ndarray], tau: float = DORMANT) -> float:
    """Return the share of units that are τ-dormant (Sokar et al. 2023, arXiv 2302.12902, definitions 3.1 and 3.2).

    The score of unit i in a layer of H units is its mean absolute activation, divided by the layer's mean of these:

        sᵢ = E|hᵢ(x)| / (1/H Σₖ E|hₖ(x)|),    dormant: sᵢ ≤ τ

    A channel of a convolution is one unit: the mean is over its places, too. In a layer without any activation all are
    dormant.

    Args:
        activations: of each hidden layer, ``[B, ..., n]``, after the activation function.
        tau: τ; 0: units that are never active.

    Returns:
        Dormant units / all units of these layers, in [0, 1].
    """
    dormant = units = 0
    for layer in activations:
        means = np.abs(layer.astype(np.float64)).mean(axis=tuple(range(layer.ndim - 1)))
        dormant += int((means <= tau * means.mean()).sum())
        units += len(means)
    return dormant / units


def feature_rank(features: np.ndarray, left_out: float = RANK_LEFT_OUT) -> int:
    """Return the effective rank of features ``[B, f]``, srank of Kumar et al. 2021 (arXiv 2010.14498, section 3).

        min {k: Σ_{i≤k} σᵢ / Σᵢ σᵢ ≥ 1 − δ},    σ₁ ≥ σ₂ ≥ ... the singular values

    Args:
        features: inputs of the output layer.
        left_out: δ.

    Returns:
        k; 0 if all features are 0.
    """
    singular = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    if not singular.any():
        return 0
    share = np.cumsum(singular) / singular.sum()
    return int(np.argmax(share >= 1 - left_out)) + 1


def total_norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the L2 norm of all numbers in ``arrays`` together."""
    return math.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in arrays))


def effective_learning_rate(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """Return ‖θ₊ − θ‖ / ‖θ‖: how much of its own length the weights move in one optimiser step.

    Where layers are normalised, the length of weights changes nothing but this ratio: growing weights learn ever more
    slowly (Lyle et al. 2024, arXiv 2407.01800). 0 if all weights are 0.

    Args:
        before, after: the weights, layer by layer.
    """
    moved = [new.astype(np.float64) - old for old, new in zip(before, after, strict=True)]
    return total_norm(moved) / (total_norm(before) or math.inf)


def return_steps(gamma: float) -> int:
    """Return after how many steps γ^n ≤ 1 %, so that rewards beyond hardly matter; at most 1,000."""
    if gamma <= NEGLIGIBLE:
        return 1
    if gamma >= NEGLIGIBLE ** (1 / LONGEST_RETURN):
        return LONGEST_RETURN
    return math.ceil(math.log(NEGLIGIBLE) / math.log(gamma))
