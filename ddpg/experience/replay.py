"""Replay memory: a ring of transitions in NumPy. No TensorFlow here."""

from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.errors import UsageError
from ddpg.experience.batch import Batch as Batch
from ddpg.experience.batch import stored_dtype as stored_dtype
from ddpg.experience.linked import LinkedObservations
from ddpg.experience.replay_state import check_rows, check_successors
from ddpg.experience.returns import n_step_returns


class ReplayBuffer:
    """The last ``capacity`` transitions, observations as float32 (images: bytes), sampled uniformly with replacement.

    Every observation is stored once (:mod:`ddpg.experience.linked`).
    A transition takes 4·(numbers of s and a) + 10 bytes, and an episode one s more: about 102 for HalfCheetah-v5.
    ``truncated`` is stored apart from ``terminated`` and never masks a bootstrap; it marks where
    episodes were cut, for whoever reads trajectories out of the buffer.

    Memory is claimed lazily by the operating system, so a large capacity costs only what is filled.

    Attributes:
        capacity: transitions it can hold.
        added: transitions stored so far, overwritten ones too.
        observations: theirs, and which follows which.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_size: int, observation_dtype=np.float32
    ):
        if capacity < 1:
            raise UsageError(f"replay capacity {capacity} must be at least 1 transition")
        self.capacity = capacity
        self.added = 0
        self.observations = LinkedObservations(capacity, observation_shape, observation_dtype)
        self._actions = np.zeros((capacity, action_size), np.float32)
        self._rewards = np.zeros((capacity, 1), np.float32)
        self._terminated = np.zeros((capacity, 1), np.uint8)
        self._truncated = np.zeros((capacity, 1), np.uint8)
        self._position = self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes that hold something."""
        others = sum(field[0].nbytes for name, field in self._fields().items() if name != "observations")
        return self.observations.nbytes(self._size) + self._size * others

    # -- storing --------------------------------------------------------------------------------------

    def add(
        self,
        observations,
        actions,
        rewards,
        next_observations,
        terminated,
        truncated,
        lanes: Sequence[int] | None = None,
    ) -> None:
        """Store N transitions, overwriting the oldest: arrays ``[N, ...]``, the scalars as ``[N]``.

        A Ctrl-C meanwhile is raised once they are stored, all of them; what is stored next begins new episodes then.

        Args:
            observations: s.
            actions: a, as the networks see them.
            rewards: r.
            next_observations: s′: the true one, also where the episode ended.
            terminated: s′ is terminal.
            truncated: the episode was cut at s′.
            lanes: of each transition, the environment that made it, or another number; in a lane, transitions whose
                s is the s′ of the one before are one episode, until it ends. 0 to N - 1 by default.
        """
        count = len(rewards)
        lanes = range(count) if lanes is None else lanes
        fields = observations, actions, rewards, next_observations, terminated, truncated, lanes
        if count > self.capacity:
            for start in range(0, count, self.capacity):
                self.add(*(array[start : start + self.capacity] for array in fields))
            return
        before = self._position, self._size, self.added
        try:
            self._store(*fields)
        except KeyboardInterrupt:  # a row may be half one transition and half another
            self._position, self._size, self.added = before
            self.observations.mend(self._size)
            self._store(*fields)
            raise

    def _store(self, observations, actions, rewards, next_observations, terminated, truncated, lanes) -> None:
        count = len(rewards)
        rows: slice | np.ndarray
        if self._position + count <= self.capacity:
            rows = slice(self._position, self._position + count)
        else:
            rows = np.arange(self._position, self._position + count) % self.capacity
        self.observations.rows[rows] = observations
        self._actions[rows] = actions
        self._rewards[rows, 0] = rewards
        self._terminated[rows, 0] = terminated
        self._truncated[rows, 0] = truncated
        for index, lane in enumerate(lanes):
            ended = terminated[index] or truncated[index]
            self.observations.connect((self._position + index) % self.capacity, lane, next_observations[index], ended)
        self._position = (self._position + count) % self.capacity
        self._size = min(self._size + count, self.capacity)
        self.added += count

    def end_episodes(self, lane: int | None = None) -> None:
        """Let what is stored next, in one lane or in all, begin new episodes."""
        self.observations.end_episodes(lane)

    # -- drawing --------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, updates: int, batch_size: int) -> Batch:
        """Draw ``updates`` minibatches at once: a :class:`Batch` with leading axes ``[K, B]``.

        Raises:
            UsageError: the buffer is empty.
        """
        return self.gather(self.draw(rng, updates, batch_size))

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int) -> np.ndarray:
        """Draw the rows ``[K, B]`` of ``updates`` minibatches.

        Raises:
            UsageError: the buffer is empty.
        """
        if self._size == 0:
            raise UsageError("the replay buffer is empty; store transitions before sampling")
        return rng.integers(0, self._size, size=(updates, batch_size))

    def gather(self, rows: np.ndarray, n_steps: int = 1, gamma: float = 1.0) -> Batch:
        """Return the transitions of ``rows`` ``[...]``, or the returns that begin there (:func:`n_step_returns`).

        Args:
            rows: numbers of rows, below ``len(self)``.
            n_steps: n.
            gamma: γ; read where n > 1 only.
        """
        last, rewards, discounts = rows, self._rewards.take(rows, axis=0), None
        if n_steps > 1:
            last, rewards, discounts = n_step_returns(self._rewards, self.observations, rows, n_steps, gamma)
        return Batch(
            self.observations.before(rows),
            self._actions.take(rows, axis=0),
            rewards,
            self.observations.after(last),
            self._terminated.take(last, axis=0).astype(np.float32),
            discounts,
        )

    def newest(self, count: int) -> np.ndarray:
        """Return the rows of the last ``count`` transitions, the oldest first."""
        return np.arange(self._position - count, self._position) % self.capacity

    # -- reading and saving ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the filled part by field name, in storage order, and ``position`` of the next write."""
        size = self._size
        return {name: field[:size] for name, field in self._fields().items()} | {
            "next_observations": self.observations.after(np.arange(size)),
            "position": np.asarray(self._position),
        }

    def _fields(self) -> dict[str, np.ndarray]:
        return {
            "observations": self.observations.rows,
            "actions": self._actions,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` takes: the rows, and by row the number of its successor or -1 for none.

        The s′ of those with none are ``last_observations``, in the rows' order.
        """
        arrays = self.arrays()
        del arrays["next_observations"]
        return arrays | self.observations.state(self._size)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Take back what :meth:`state` returned; what is stored next begins new episodes.

        Returns:
            By how many rows they were rolled, so that row i is row i less that now.

        Raises:
            UsageError: more transitions than this buffer holds, or none that it could have returned.
        """
        size, position = len(arrays["rewards"]), int(arrays["position"])
        if size > self.capacity:
            raise UsageError(f"{size} stored transitions do not fit a replay buffer of {self.capacity}")
        fields = self._fields()
        check_rows(arrays, fields)
        check_successors(arrays)
        # A full ring keeps its order, so that a resumed run draws the same rows. One that was full at a
        # smaller capacity is unrolled: its oldest row first, the next write behind its newest.
        unroll = position if size < self.capacity and position < size else 0
        for name, field in fields.items():
            field[:size] = np.roll(arrays[name], -unroll, axis=0)
        self.observations.restore(arrays, size, unroll)
        self._size = self.added = size
        self._position = position % self.capacity if size == self.capacity else size
        return unroll
