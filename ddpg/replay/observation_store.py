"""Store each observation of the replay buffer only once, which halves its memory. NumPy only.

Row i holds s of transition i. Its s′ is s of the next row of the same episode, and ``_successors`` holds the index of
that row. If there is no next row (the episode ended, was truncated, or its next step has not been made yet), s′ is
stored in an extra slot behind the rows. A successor is always newer than its row, so the ring overwrites the row first
and never loses an s′.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from ddpg.interaction.transitions import Transitions


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    # Comparing the bits takes a tenth of the time; the comparison of numbers finds that -0 equals 0.
    return one.tobytes() == other.tobytes() or np.array_equal(one, other)


class ObservationStore:
    """The observations of ``capacity`` rows, and the index of the row that follows each.

    Rows of one environment (``env_index``) belong to the same episode as long as each s equals the s′ of the row
    before, and that row did not end the episode.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype):
        self._capacity = capacity
        # The s of every row, then slots for each s′ that is not the s of a row: at most one slot per row.
        self._values = np.zeros((2 * capacity, *shape), dtype)
        self._successors = np.zeros(capacity, np.int32 if 2 * capacity <= 2**31 else np.int64)
        self._open_episodes: dict[int, int] = {}  # by environment: the newest row of its current episode
        self._free: list[int] = []
        self._used = 0  # slots in use or free

    @property
    def rows(self) -> np.ndarray:
        """The s of all rows, ``[capacity, ...]``; write a row's s here before :meth:`connect`."""
        return self._values[: self._capacity]

    def nbytes(self, size: int) -> int:
        """Return the bytes in use when ``size`` rows are filled."""
        return (size + self._used) * self._values[0].nbytes + size * self._successors.itemsize

    # -- storing --------------------------------------------------------------------------------------

    def connect(self, start: int, transitions: Transitions) -> None:
        """Link the rows of each episode, also to the environment's newest row if they continue it, and store each s′.

        The transitions are in order of time, from row ``start`` of the ring on; their s is in the rows.
        """
        values, successors, capacity = self._values, self._successors, self._capacity
        for begin, end in self._parts(start, transitions):
            env_index, row = transitions.env_indices[begin], (start + begin) % capacity
            self._release(row)
            previous = self._open_episodes.pop(env_index, None)
            slot = None if previous is None else successors.item(previous)
            if slot is not None and _equal(values[slot], values[row]):
                successors[previous] = row  # s of the row equals the s′ in the slot, so the slot can hold the new s′
            elif self._free:
                slot = self._free.pop()
            else:
                slot = capacity + self._used
                self._used += 1
            if end > begin + 1:
                following = np.arange(start + begin + 1, start + end) % capacity
                for overwritten in following[successors[following] >= capacity].tolist():
                    self._release(overwritten)
                successors[following - 1] = following
                row = int(following[-1])
            values[slot] = transitions.next_observations[end - 1]
            successors[row] = slot
            if not (transitions.terminated[end - 1] or transitions.truncated[end - 1]):
                self._open_episodes[env_index] = row

    def _parts(self, start: int, transitions: Transitions) -> Iterable[tuple[int, int]]:
        """Return the begin and the end of each part of the transitions that is consecutive steps of one episode."""
        env_indices, count = transitions.env_indices, len(transitions.env_indices)
        if count == 1:
            return ((0, 1),)
        if len(set(env_indices)) == count:  # as in every step of a vector
            return zip(range(count), range(1, count + 1), strict=True)
        environments = np.asarray(env_indices)
        ended = np.logical_or(transitions.terminated, transitions.truncated)
        continues = (environments[1:] == environments[:-1]) & ~ended[:-1]
        (before,) = np.nonzero(continues)
        reached = transitions.next_observations[before].astype(self._values.dtype)
        same = self._values[(start + 1 + before) % self._capacity] == reached
        continues[before] = same.all(axis=tuple(range(1, same.ndim)))
        ends = [*(np.flatnonzero(~continues) + 1).tolist(), count]
        return zip([0, *ends[:-1]], ends, strict=True)

    def continues_episode(self, env_index: int, observation: np.ndarray) -> bool:
        """Whether ``observation`` is s′ of the environment's newest row, and that row did not end the episode."""
        newest = self._open_episodes.get(env_index)
        if newest is None:
            return False
        return np.array_equal(self._values[self._successors[newest]], observation.astype(self._values.dtype))

    def end_episodes(self, env_index: int | None = None) -> None:
        """Start a new episode with the next row of one environment, or of all."""
        for ended in [*self._open_episodes] if env_index is None else [env_index]:
            self._open_episodes.pop(ended, None)

    def rebuild_free_list(self, size: int) -> None:
        """Recompute the free slots after an interrupted :meth:`connect`; rows from ``size`` on are empty.

        The next rows start new episodes. Existing links are kept: connecting the same rows again gives the same links.
        """
        self.end_episodes()
        self._successors[size:] = 0
        taken = np.unique(self._successors[:size])
        taken = taken[taken >= self._capacity]
        self._used = int(taken[-1]) + 1 - self._capacity if len(taken) else 0
        self._free = np.setdiff1d(np.arange(self._capacity, self._capacity + self._used), taken).tolist()

    def _release(self, row: int) -> None:
        """Free the slot of a row that is about to be overwritten, if it has one."""
        slot = self._successors.item(row)
        if slot < self._capacity:
            return
        self._free.append(slot)
        for env_index in [env_index for env_index, newest in self._open_episodes.items() if newest == row]:
            del self._open_episodes[env_index]

    # -- reading --------------------------------------------------------------------------------------

    def obs(self, rows: np.ndarray) -> np.ndarray:
        """Return s of ``rows`` ``[...]``, ``[..., *observation shape]``."""
        return self._values.take(rows, axis=0)

    def next_obs(self, rows: np.ndarray) -> np.ndarray:
        """Return s′ of ``rows``."""
        return self._values.take(self._successors.take(rows), axis=0)

    def next_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the next row in the episode of each row (itself if there is none), and whether there is one."""
        successors = self._successors.take(rows)
        continues = successors < self._capacity
        return np.where(continues, successors, rows), continues

    # -- saving ---------------------------------------------------------------------------------------

    def state(self, size: int) -> dict[str, np.ndarray]:
        """Return the successors of the first ``size`` rows (-1: none), and s′ of the rows without one."""
        successors = self._successors[:size]
        no_successor = successors >= self._capacity
        last = self._values.take(successors[no_successor], axis=0)
        return {"successors": np.where(no_successor, np.int32(-1), successors), "last_observations": last}

    def restore(self, arrays: Mapping[str, np.ndarray], size: int, unroll: int) -> None:
        """Restore what :meth:`state` returned, rolled by ``unroll`` rows."""
        successors = arrays["successors"].astype(np.int64)
        no_successor = successors == -1
        slots = self._capacity + np.cumsum(no_successor) - 1
        successors = np.where(no_successor, slots, (successors - unroll) % max(1, size))
        self._successors[:size] = np.roll(successors, -unroll)
        self._used, self._free = int(no_successor.sum()), []
        self._values[self._capacity : self._capacity + self._used] = arrays["last_observations"]
        self.end_episodes()
