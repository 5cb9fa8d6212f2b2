"""Read the actions that an environment is given: numbers, or a discrete choice with parameters for each choice."""

import math
import operator
from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError

Bounds = Sequence[tuple[float, float]]


def numbers_in(action) -> np.ndarray:
    """Return the numbers of an action, float64; none, of shape (0,), if it has something else in it."""
    try:
        return np.asarray(action, np.float64)
    except (TypeError, ValueError):
        return np.zeros(0)


class NamedActions:
    """The named actions of an environment: builds their action space, and checks and parses actions.

    The space is ``Tuple(Discrete(n), Tuple(Box, ...))``, one float32 Box per action (Masson et al. 2016).

    Args:
        bounds: (low, high) of each parameter, in env units, by the action's name.
    """

    def __init__(self, bounds: Mapping[str, Bounds]):
        self.names = tuple(bounds)
        boxes = [spaces.Box(*np.array(limits, np.float32).T) for limits in bounds.values()]
        self.space = spaces.Tuple((spaces.Discrete(len(boxes)), spaces.Tuple(boxes)))
        # Taken from the float32 boxes, not from `bounds`, so that a sample of the space never needs clipping.
        self._limits = [list(zip(box.low.tolist(), box.high.tolist(), strict=True)) for box in boxes]

    def read(self, action) -> tuple[int, list[float], bool]:
        """Return the choice, its parameters clipped to their box, and whether clipping changed them.

        The parameters of the other actions are only checked.

        Raises:
            UsageError: if the structure is wrong, the choice is out of range, or a parameter is NaN or infinite.
        """
        try:
            choice, vectors = action
            choice = operator.index(choice)
            vectors = [[float(value) for value in vector] for vector in vectors]
        except (TypeError, ValueError):
            raise self._error(action) from None
        if not 0 <= choice < len(self.names) or [len(v) for v in vectors] != [len(v) for v in self._limits]:
            raise self._error(action)
        for name, vector in zip(self.names, vectors, strict=True):
            if not all(map(math.isfinite, vector)):
                raise UsageError(
                    f"parameters {vector} of action {name!r} are not finite; expected finite numbers, also for actions "
                    "that are not chosen: check whether the policy has diverged to NaN"
                )
        chosen = vectors[choice]
        parameters = [min(max(x, low), high) for x, (low, high) in zip(chosen, self._limits[choice], strict=True)]
        return choice, parameters, parameters != chosen

    def _error(self, action) -> UsageError:
        numbers = ", ".join(f"{name}: {len(limits)}" for name, limits in zip(self.names, self._limits, strict=True))
        return UsageError(
            f"action {action!r} is not (choice, parameters): expected a choice of 0 to {len(self.names) - 1} and, for "
            f"every action, its vector of parameters ({numbers} numbers); see action_space.sample()"
        )
