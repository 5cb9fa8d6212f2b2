"""Replay memory: a ring of transitions in NumPy. No TensorFlow here."""

from typing import NamedTuple

import numpy as np

from ddpg.errors import UsageError


class Batch(NamedTuple):
    """Transitions. Leading axes ``[...]`` are ``[B]``, or ``[K, B]`` for K minibatches.

    | field | shape | units |
    |---|---|---|
    | observations | [..., *observation shape] | env |
    | actions | [..., A] | [-1, 1] |
    | rewards | [..., 1] | env |
    | next_observations | [..., *observation shape] | env; the true last one where an episode ended |
    | terminated | [..., 1] | 1.0 where the episode reached a terminal state, else 0.0 |
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray

    def padded(self, length: int) -> "Batch":
        """Return the K minibatches, and rows of zeros after them up to ``length``."""
        return Batch(*(np.pad(field, [(0, length - len(field))] + [(0, 0)] * (field.ndim - 1)) for field in self))


def stored_dtype(space) -> np.dtype:
    """Return how observations of a Box are stored: bytes (images) as bytes, everything else as float32."""
    return np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)


class ReplayBuffer:
    """The last ``capacity`` transitions, float32 (images: bytes), sampled uniformly with replacement.

    ``truncated`` is stored apart from ``terminated`` and never masks a bootstrap; it marks where
    episodes were cut, for whoever reads trajectories out of the buffer.

    Memory is claimed lazily by the operating system, so a large capacity costs only what is filled.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_size: int, observation_dtype=np.float32
    ):
        if capacity < 1:
            raise UsageError(f"replay capacity {capacity} must be at least 1 transition")
        self.capacity = capacity
        self._fields = Batch(
            observations=np.zeros((capacity, *observation_shape), observation_dtype),
            actions=np.zeros((capacity, action_size), np.float32),
            rewards=np.zeros((capacity, 1), np.float32),
            next_observations=np.zeros((capacity, *observation_shape), observation_dtype),
            terminated=np.zeros((capacity, 1), np.float32),
        )
        self._truncated = np.zeros((capacity, 1), np.float32)
        self._position = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, observations, actions, rewards, next_observations, terminated, truncated) -> None:
        """Store N transitions, overwriting the oldest: arrays ``[N, ...]``, the scalars as ``[N]``."""
        count = len(rewards)
        rows: slice | np.ndarray
        if self._position + count <= self.capacity:
            rows = slice(self._position, self._position + count)
        else:
            rows = np.arange(self._position, self._position + count) % self.capacity
        fields = self._fields
        fields.observations[rows] = observations
        fields.actions[rows] = actions
        fields.rewards[rows, 0] = rewards
        fields.next_observations[rows] = next_observations
        fields.terminated[rows, 0] = terminated
        self._truncated[rows, 0] = truncated
        self._position = (self._position + count) % self.capacity
        self._size = min(self._size + count, self.capacity)

    def sample(self, rng: np.random.Generator, updates: int, batch_size: int) -> Batch:
        """Draw ``updates`` minibatches at once: a :class:`Batch` with leading axes ``[K, B]``.

        Raises:
            UsageError: the buffer is empty.
        """
        if self._size == 0:
            raise UsageError("the replay buffer is empty; store transitions before sampling")
        rows = rng.integers(0, self._size, size=(updates, batch_size))
        return Batch(*(field.take(rows, axis=0) for field in self._fields))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the filled part by field name, in storage order, and ``position`` of the next write."""
        filled = {name: field[: self._size] for name, field in self._fields._asdict().items()}
        return filled | {"truncated": self._truncated[: self._size], "position": np.asarray(self._position)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what :meth:`arrays` returned.

        Raises:
            UsageError: more transitions than this buffer holds, or other shapes or dtypes.
        """
        stored = [*self._fields._asdict().items(), ("truncated", self._truncated)]
        size = len(arrays["rewards"])
        if size > self.capacity:
            raise UsageError(f"{size} stored transitions do not fit a replay buffer of {self.capacity}")
        for name, field in stored:
            if arrays[name].shape != (size, *field.shape[1:]):
                raise UsageError(
                    f"replay field {name} has shape {arrays[name].shape}, expected {(size, *field.shape[1:])}"
                )
            if arrays[name].dtype != field.dtype:
                raise UsageError(f"replay field {name} has dtype {arrays[name].dtype}, expected {field.dtype}")
        position = int(arrays["position"])
        # A full ring keeps its order, so that a resumed run draws the same rows. One that was full at a
        # smaller capacity is unrolled: its oldest row first, the next write behind its newest.
        unroll = position if size < self.capacity and position < size else 0
        for name, field in stored:
            field[:size] = np.roll(arrays[name], -unroll, axis=0)
        self._size = size
        self._position = position % self.capacity if size == self.capacity else size
