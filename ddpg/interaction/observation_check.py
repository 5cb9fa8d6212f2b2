"""Check the observations that environments return, and copy those that are kept."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError
from ddpg.interaction import spaces
from ddpg.interaction.validation import LARGEST, as_float32, validate_numeric


class ObservationReaderProtocol(Protocol):
    """Reads the observations that an environment returned, before it can overwrite them."""

    def read_one(self, observation: Any) -> Any:
        """Read the observation of one environment."""

    def read_batch(self, observations: Any) -> Any:
        """Read the observations of a vector's N environments."""

    def read_masked(self, observations: Any) -> tuple[Any, set[int]]:
        """Read what :meth:`read_batch` refuses: zeros for bad environments, and the indices of these."""


class ObservationReader:
    """Checks the observations of ``count`` environments and copies them to float32."""

    def __init__(self, space: gym.spaces.Box, count: int):
        self._shape, self._shape_of_all = space.shape, (count, *space.shape)
        self._bytes = space.dtype == np.uint8

    def read_one(self, observation: Any) -> np.ndarray:
        """Return the observation of one environment as ``[1, *shape]``.

        Raises:
            UsageError: if the shape is wrong, or a value is not a real number, NaN, or outside the space's bytes.
        """
        return self._read(observation, self._shape)[None]

    def read_batch(self, observations: Any) -> np.ndarray:
        """Return the observations of all environments, ``[N, *shape]``.

        Raises:
            UsageError: as for :meth:`read_one`.
        """
        return self._read(observations, self._shape_of_all)

    def read_masked(self, observations: Any) -> tuple[np.ndarray, set[int]]:
        """Return all observations, with zeros for those that hold NaN or exceed float32, and the indices of these.

        Raises:
            UsageError: if something else is wrong.
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
    """Returns observations uncopied, for callers that use them before the next step; checks those of a Box."""

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
        """Return the observations with zeros for those that are not finite, and the indices of these.

        Raises:
            UsageError: if something else is wrong.
        """
        assert self._check is not None, "nothing is refused that is not checked"
        return self._check.read_masked(observations)
