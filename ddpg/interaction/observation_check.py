"""Check the observations that environments return, and copy those that are kept."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError
from ddpg.interaction import spaces
from ddpg.interaction.validation import LARGEST, as_float32, validate_numeric


class ObservationReaderProtocol(Protocol):
    """Translates observations as soon as they are returned."""

    def read_one(self, observation: Any) -> Any:
        """Translate the observation of one environment."""

    def read_batch(self, observations: Any) -> Any:
        """Translate those of a vector's N environments."""

    def read_masked(self, observations: Any) -> tuple[Any, set[int]]:
        """Translate what :meth:`read_batch` refuses: zeros for single environments, and which those are."""


class ObservationReader:
    """Checks what ``count`` environments return as observations, and copies it to float32."""

    def __init__(self, space: gym.spaces.Box, count: int):
        self._shape, self._shape_of_all = space.shape, (count, *space.shape)
        self._bytes = space.dtype == np.uint8

    def read_one(self, observation: Any) -> np.ndarray:
        """Return the observation of one environment as ``[1, *shape]``.

        Raises:
            UsageError: another shape, no real numbers, NaN, or what the space's bytes cannot hold.
        """
        return self._read(observation, self._shape)[None]

    def read_batch(self, observations: Any) -> np.ndarray:
        """Return those of all environments, ``[N, *shape]``.

        Raises:
            UsageError: as for :meth:`read_one`.
        """
        return self._read(observations, self._shape_of_all)

    def read_masked(self, observations: Any) -> tuple[np.ndarray, set[int]]:
        """Return those of all environments, zeros for those that hold NaN or more than float32, and which these are.

        Raises:
            UsageError: there is more wrong than that.
        """
        array = np.array(validate_numeric(observations, "observation"))
        if array.shape != self._shape_of_all:
            return self.read_batch(array), set()
        rows = array.reshape(len(array), -1)
        bad = ~(np.abs(rows) <= LARGEST).all(axis=1)
        array[bad] = 0
        return self.read_batch(array), set(np.flatnonzero(bad).tolist())

    def _read(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = validate_numeric(values, "observation")
        if array.shape != shape:
            raise UsageError(
                f"observation has shape {array.shape}; expected {shape}, as the observation space says: "
                "fix the environment, or wrap it in gymnasium.wrappers.ReshapeObservation"
            )
        if self._bytes:
            spaces.check_bytes(array, "observation")
        numbers = as_float32(array, "observation")
        # A copy: an environment may write every observation into the same array.
        return numbers.copy() if numbers is array else numbers


class Passthrough:
    """Leaves observations as they are returned: for whoever looks at them before the next step only.

    Those of a Box are checked all the same.
    """

    def __init__(self, space: gym.Space, count: int):
        self._check = ObservationReader(space, count) if isinstance(space, gym.spaces.Box) else None

    def read_one(self, observation: Any) -> Any:
        """Return ``observation``.

        Raises:
            UsageError: as for :meth:`ObservationReader.read_one`.
        """
        if self._check is not None:
            self._check.read_one(observation)
        return observation

    def read_batch(self, observations: Any) -> Any:
        """Return ``observations``.

        Raises:
            UsageError: as for :meth:`ObservationReader.read_one`.
        """
        if self._check is not None:
            self._check.read_batch(observations)
        return observations

    def read_masked(self, observations: Any) -> tuple[Any, set[int]]:
        """Return which observations are not finite.

        Raises:
            UsageError: there is more wrong than that.
        """
        assert self._check is not None, "nothing is refused that is not checked"
        return self._check.read_masked(observations)
