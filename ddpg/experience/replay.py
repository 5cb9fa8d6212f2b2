"""Replay memory: a ring of transitions in NumPy. No TensorFlow here.

Every observation is stored once. A transition (s, a, r, s′) is a row of the ring, with s; its s′ is the s of the row
that follows it in the same episode, and the row knows which that is. Where no row follows, because the episode ended
or was cut or its next step is yet to come, s′ is stored in addition, in a slot behind the ring. A successor is always
newer than its row, so the ring overwrites the row first, and s′ is never torn off.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.errors import UsageError
from ddpg.experience.batch import Batch as Batch
from ddpg.experience.batch import stored_dtype as stored_dtype
from ddpg.experience.replay_state import ROWS, check_rows, check_successors


class ReplayBuffer:
    """The last ``capacity`` transitions, observations as float32 (images: bytes), sampled uniformly with replacement.

    A transition takes 4·(numbers of s and a) + 10 bytes, and an episode one s more: about 102 for HalfCheetah-v5.
    ``truncated`` is stored apart from ``terminated`` and never masks a bootstrap; it marks where
    episodes were cut, for whoever reads trajectories out of the buffer.

    Memory is claimed lazily by the operating system, so a large capacity costs only what is filled.

    Attributes:
        capacity: transitions it can hold.
        added: transitions stored so far, overwritten ones too.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_size: int, observation_dtype=np.float32
    ):
        if capacity < 1:
            raise UsageError(f"replay capacity {capacity} must be at least 1 transition")
        self.capacity = capacity
        self.added = 0
        # The s of every row, then slots for every s′ that is no row's s: at most one for each row.
        self._observations = np.zeros((2 * capacity, *observation_shape), observation_dtype)
        self._successors = np.zeros(capacity, np.int32 if 2 * capacity <= 2**31 else np.int64)
        self._actions = np.zeros((capacity, action_size), np.float32)
        self._rewards = np.zeros((capacity, 1), np.float32)
        self._terminated = np.zeros((capacity, 1), np.uint8)
        self._truncated = np.zeros((capacity, 1), np.uint8)
        self._position = 0
        self._size = 0
        self._open: dict[int, int] = {}  # by lane, the newest row of an episode that may go on
        self._free: list[int] = []
        self._used = 0  # slots, the free ones too

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes that hold something."""
        slots = (self._size + self._used) * self._observations[0].nbytes
        fields = (self._successors, self._actions, self._rewards, self._terminated, self._truncated)
        return slots + self._size * sum(field[0].nbytes for field in fields)

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
        if count > self.capacity:
            arrays = observations, actions, rewards, next_observations, terminated, truncated, lanes
            for start in range(0, count, self.capacity):
                self.add(*(array[start : start + self.capacity] for array in arrays))
            return
        rows: slice | np.ndarray
        if self._position + count <= self.capacity:
            rows = slice(self._position, self._position + count)
        else:
            rows = np.arange(self._position, self._position + count) % self.capacity
        self._observations[rows] = observations
        self._actions[rows] = actions
        self._rewards[rows, 0] = rewards
        self._terminated[rows, 0] = terminated
        self._truncated[rows, 0] = truncated
        for index, lane in enumerate(lanes):
            ended = terminated[index] or truncated[index]
            self._connect((self._position + index) % self.capacity, lane, next_observations[index], ended)
        self._position = (self._position + count) % self.capacity
        self._size = min(self._size + count, self.capacity)
        self.added += count

    def end_episodes(self, lane: int | None = None) -> None:
        """What is stored next, in one lane or in all, begins new episodes."""
        for ended in [*self._open] if lane is None else [lane]:
            self._open.pop(ended, None)

    def _connect(self, row: int, lane: int, next_observation: np.ndarray, ended: bool) -> None:
        """Make ``row`` the successor of its lane's newest row if it is that, and keep its own s′ in a slot."""
        observations, successors = self._observations, self._successors
        self._release(row)
        previous = self._open.pop(lane, None)
        slot = None if previous is None else int(successors[previous])
        if slot is not None and observations[slot].tobytes() == observations[row].tobytes():
            successors[previous] = row  # what the slot held is the row's s: the slot is free for its s′
        elif self._free:
            slot = self._free.pop()
        else:
            slot = self.capacity + self._used
            self._used += 1
        observations[slot] = next_observation
        successors[row] = slot
        if not ended:
            self._open[lane] = row

    def _release(self, row: int) -> None:
        """Give back the slot of a row that is overwritten, if it has one."""
        slot = int(self._successors[row])
        if slot < self.capacity:
            return
        self._free.append(slot)
        for lane in [lane for lane, newest in self._open.items() if newest == row]:
            del self._open[lane]

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
        """Return the transitions of ``rows`` ``[...]``, or the n-step returns that begin there.

        With r_0, r_1, ... the rewards from a row on, m ≤ n of them until the episode ended, was cut, or is not
        known to go on:  R = Σ_{k<m} γ^k·r_k,  s′ = s_m, and the discount γ^m. The newest rows have shorter returns,
        which are as right, so no row waits to be drawn.

        Args:
            rows: numbers of rows, below ``len(self)``.
            n_steps: n.
            gamma: γ; read where n > 1 only.
        """
        last, rewards, discounts = rows, self._rewards.take(rows, axis=0), None
        if n_steps > 1:
            last, rewards, discounts = self._returns(rows, n_steps, gamma)
        return Batch(
            self._observations.take(rows, axis=0),
            self._actions.take(rows, axis=0),
            rewards,
            self.after(last),
            self._terminated.take(last, axis=0).astype(np.float32),
            discounts,
        )

    def after(self, rows: np.ndarray) -> np.ndarray:
        """Return the s′ of ``rows`` ``[...]``, ``[..., *observation shape]``."""
        return self._observations.take(self._successors.take(rows), axis=0)

    def following(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows after ``rows`` in their episodes, and where there is one; elsewhere the rows themselves."""
        successors = self._successors.take(rows)
        goes_on = successors < self.capacity
        return np.where(goes_on, successors, rows), goes_on

    def newest(self, count: int) -> np.ndarray:
        """Return the rows of the last ``count`` transitions, the oldest first."""
        return np.arange(self._position - count, self._position) % self.capacity

    def _returns(self, rows: np.ndarray, n_steps: int, gamma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the last row of each n-step return, its sum ``[..., 1]`` and its discount ``[..., 1]``."""
        last, goes_on = rows, np.ones(rows.shape, bool)
        sums = self._rewards.take(rows).astype(np.float64)
        discounts = np.full(rows.shape, float(gamma))
        for step in range(1, n_steps):
            last, follows = self.following(last)
            goes_on &= follows
            sums += np.where(goes_on, gamma**step * self._rewards.take(last), 0)
            discounts[goes_on] *= gamma
        return last, sums.astype(np.float32)[..., None], discounts.astype(np.float32)[..., None]

    # -- reading and saving ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the filled part by field name, in storage order, and ``position`` of the next write."""
        size = self._size
        return {
            "observations": self._observations[:size],
            "actions": self._actions[:size],
            "rewards": self._rewards[:size],
            "next_observations": self._observations.take(self._successors[:size], axis=0),
            "terminated": self._terminated[:size],
            "truncated": self._truncated[:size],
            "position": np.asarray(self._position),
        }

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` takes: the rows, and by row the number of its successor or -1 for none.

        The s′ of those with none are ``last_observations``, in the rows' order.
        """
        size, read = self._size, self.arrays()
        successors = self._successors[:size]
        alone = successors >= self.capacity
        del read["next_observations"]
        last = self._observations.take(successors[alone], axis=0)
        return read | {"successors": np.where(alone, np.int32(-1), successors), "last_observations": last}

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
        fields = {name: getattr(self, f"_{name}") for name in ROWS}
        check_rows(arrays, fields)
        alone = check_successors(arrays)
        # A full ring keeps its order, so that a resumed run draws the same rows. One that was full at a
        # smaller capacity is unrolled: its oldest row first, the next write behind its newest.
        unroll = position if size < self.capacity and position < size else 0
        for name, field in fields.items():
            field[:size] = np.roll(arrays[name], -unroll, axis=0)
        slots = self.capacity + np.cumsum(alone) - 1
        successors = np.where(alone, slots, (arrays["successors"].astype(np.int64) - unroll) % max(1, size))
        self._successors[:size] = np.roll(successors, -unroll)
        self._used = int(alone.sum())
        self._observations[self.capacity : self.capacity + self._used] = arrays["last_observations"]
        self._free, self._size, self.added = [], size, size
        self._position = position % self.capacity if size == self.capacity else size
        self.end_episodes()
        return unroll
