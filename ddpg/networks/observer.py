"""Collect parts of networks while a graph is built: activations, features, gradients of optimiser steps, norms."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


@dataclasses.dataclass
class Observed:
    """What was built inside :func:`observing`, in the order of building.

    Attributes:
        activations: outputs of the hidden layers' activation functions, ``[B, ..., n]``.
        features: inputs of the output layers, ``[B, f]``.
        gradients: by the name of a network's variable scope, the gradients of its optimiser step, before clipping.
        norms: the projections of norms' gains and offsets (:func:`ddpg.networks.projections.note_affine`).
    """

    activations: list[tf.Tensor] = dataclasses.field(default_factory=list)
    features: list[tf.Tensor] = dataclasses.field(default_factory=list)
    gradients: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    norms: list[Any] = dataclasses.field(default_factory=list)


_observed: contextvars.ContextVar[Observed | None] = contextvars.ContextVar("observed", default=None)
observed = _observed.get  # what the innermost context collects; ``None`` outside


@contextlib.contextmanager
def observing() -> Iterator[Observed]:
    """Collect the tensors that networks build in this thread inside the context."""
    found = Observed()
    token = _observed.set(found)
    try:
        yield found
    finally:
        _observed.reset(token)


def note_activation(activation: tf.Tensor) -> tf.Tensor:
    """Note and return the output of a hidden layer's activation function."""
    if (found := observed()) is not None:
        found.activations.append(activation)
    return activation


def note_features(features: tf.Tensor) -> None:
    """Note the input of an output layer."""
    if (found := observed()) is not None:
        found.features.append(features)


def note_gradients(scope: str, gradients: list[Any]) -> None:
    """Note the gradients of a network's optimiser step."""
    if (found := observed()) is not None:
        found.gradients[scope] = gradients
