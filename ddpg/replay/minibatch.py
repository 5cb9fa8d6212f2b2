"""The minibatch type, which is drawn from the replay buffer and read by an update. NumPy only."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Batch:
    """A minibatch of transitions. Leading axes ``[...]`` are ``[B]``, or ``[K, B]`` for K minibatches.

    | field | shape | units |
    |---|---|---|
    | observations | [..., *observation shape] | env |
    | actions | [..., A] | [-1, 1] |
    | rewards | [..., 1] | env; with n-step returns, Σ γ^k·r over the next m ≤ n steps |
    | next_observations | [..., *observation shape] | env; after these m steps; the true last one at an episode's end |
    | terminated | [..., 1] | 1.0 if ``next_observations`` is terminal, else 0.0 |
    | discounts | [..., 1] | γ^m; ``None``: every m is 1, and the update uses its own γ |
    | weights | [..., 1] | weight of each transition in the critic's loss; ``None``: 1 |
    | cloning | [..., 1] | weight of each transition in TD3+BC's behaviour-cloning term; ``None``: 1 |
    | noise | [..., A] | standard normal numbers for an update that needs noise; ``None``: it draws its own |

    Iterating yields the fields that are not ``None``, in this order.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminated: Any
    discounts: Any = None
    weights: Any = None
    cloning: Any = None
    noise: Any = None

    def __iter__(self) -> Iterator[Any]:
        return iter([value for value in vars(self).values() if value is not None])

    def named(self) -> dict[str, Any]:
        """Return the fields that are not ``None``, by name, in the order of the class."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def map(self, function: Callable[[Any], Any]) -> "Batch":
        """Return a batch with ``function`` applied to each field."""
        return Batch(**{name: function(value) for name, value in self.named().items()})

    def replace(self, **changes: Any) -> "Batch":
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_observations(self, function: Callable[[Any], Any] | None) -> "Batch":
        """Return a copy with ``function`` applied to both fields of observations; this batch for ``None``."""
        if function is None:
            return self
        return self.replace(
            observations=function(self.observations), next_observations=function(self.next_observations)
        )

    def padded(self, length: int) -> "Batch":
        """Return the K minibatches, followed by minibatches of zeros up to ``length``."""
        return self.map(lambda field: np.pad(field, [(0, length - len(field))] + [(0, 0)] * (field.ndim - 1)))


def stored_dtype(space) -> np.dtype:
    """Return how observations of a Box are stored: bytes (images) as bytes, everything else as float32."""
    return np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
