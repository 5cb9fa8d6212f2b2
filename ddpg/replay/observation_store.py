"""Storage of a ring's observations, each once: a transition's next observation is the next row's. NumPy only.

Row i holds the s of transition i; its s′ is the s of the row that follows it in the same episode, and the row knows
which that is. Where no row follows, because the episode ended or was cut or its next step is yet to come, s′ is stored
in addition, in a slot behind the rows. A successor is always newer than its row, so a ring overwrites the row first,
and s′ is never torn off.
"""

from collections.abc import Mapping

import numpy as np


class ObservationStore:
    """The observations of ``capacity`` rows, and which row follows which.

    A lane is a sequence of transitions, such as those of one environment of a vector: in it, a row whose s is the s′
    of the one before belongs to the same episode, until that ends.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype):
        self._capacity = capacity
        # The s of every row, then slots for every s′ that is no row's s: at most one for each row.
        self._values = np.zeros((2 * capacity, *shape), dtype)
        self._successors = np.zeros(capacity, np.int32 if 2 * capacity <= 2**31 else np.int64)
        self._open: dict[int, int] = {}  # by lane, the newest row of an episode that may go on
        self._free: list[int] = []
        self._used = 0  # slots, the free ones too

    @property
    def rows(self) -> np.ndarray:
        """The s of all rows, ``[capacity, ...]``."""
        return self._values[: self._capacity]

    def nbytes(self, size: int) -> int:
        """Return the bytes that hold something where ``size`` rows are filled."""
        return (size + self._used) * self._values[0].nbytes + size * self._successors.itemsize

    # -- storing: the s of the rows is written to ``rows`` first ---------------------------------------

    def connect(self, row: int, env_index: int, next_observation: np.ndarray, ended: bool) -> None:
        """Make ``row`` the successor of its lane's newest row if it is that, and keep its own s′ in a slot."""
        values, successors = self._values, self._successors
        self._release(row)
        previous = self._open.pop(env_index, None)
        slot = None if previous is None else int(successors[previous])
        if slot is not None and values[slot].tobytes() == values[row].tobytes():
            successors[previous] = row  # what the slot held is the row's s: the slot is free for its s′
        elif self._free:
            slot = self._free.pop()
        else:
            slot = self._capacity + self._used
            self._used += 1
        values[slot] = next_observation
        successors[row] = slot
        if not ended:
            self._open[env_index] = row

    def continues_episode(self, env_index: int, observation: np.ndarray) -> bool:
        """Whether ``observation`` is the s′ of the lane's newest row, in an episode that goes on."""
        newest = self._open.get(env_index)
        if newest is None:
            return False
        return self._values[self._successors[newest]].tobytes() == observation.astype(self._values.dtype).tobytes()

    def end_episodes(self, env_index: int | None = None) -> None:
        """Let what is connected next, in one lane or in all, begin new episodes."""
        for ended in [*self._open] if env_index is None else [env_index]:
            self._open.pop(ended, None)

    def rebuild_free_list(self, size: int) -> None:
        """Find anew what is free, after :meth:`connect` was interrupted; rows from ``size`` on are not filled.

        What is connected next begins new episodes. Rows that had been linked stay so: they are as they were if the same
        is connected again.
        """
        self.end_episodes()
        self._successors[size:] = 0
        taken = np.unique(self._successors[:size])
        taken = taken[taken >= self._capacity]
        self._used = int(taken[-1]) + 1 - self._capacity if len(taken) else 0
        self._free = np.setdiff1d(np.arange(self._capacity, self._capacity + self._used), taken).tolist()

    def _release(self, row: int) -> None:
        """Give back the slot of a row that is overwritten, if it has one."""
        slot = int(self._successors[row])
        if slot < self._capacity:
            return
        self._free.append(slot)
        for env_index in [env_index for env_index, newest in self._open.items() if newest == row]:
            del self._open[env_index]

    # -- reading --------------------------------------------------------------------------------------

    def before(self, rows: np.ndarray) -> np.ndarray:
        """Return the s of ``rows`` ``[...]``, ``[..., *observation shape]``."""
        return self._values.take(rows, axis=0)

    def after(self, rows: np.ndarray) -> np.ndarray:
        """Return their s′."""
        return self._values.take(self._successors.take(rows), axis=0)

    def following(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows after ``rows`` in their episodes, and where there is one; elsewhere the rows themselves."""
        successors = self._successors.take(rows)
        goes_on = successors < self._capacity
        return np.where(goes_on, successors, rows), goes_on

    # -- saving ---------------------------------------------------------------------------------------

    def state(self, size: int) -> dict[str, np.ndarray]:
        """Return for the first ``size`` rows the number of each's successor, -1 for none, and the s′ of those."""
        successors = self._successors[:size]
        alone = successors >= self._capacity
        last = self._values.take(successors[alone], axis=0)
        return {"successors": np.where(alone, np.int32(-1), successors), "last_observations": last}

    def restore(self, arrays: Mapping[str, np.ndarray], size: int, unroll: int) -> None:
        """Take back what :meth:`state` returned, rolled by ``unroll`` rows."""
        successors = arrays["successors"].astype(np.int64)
        alone = successors == -1
        slots = self._capacity + np.cumsum(alone) - 1
        successors = np.where(alone, slots, (successors - unroll) % max(1, size))
        self._successors[:size] = np.roll(successors, -unroll)
        self._used, self._free = int(alone.sum()), []
        self._values[self._capacity : self._capacity + self._used] = arrays["last_observations"]
        self.end_episodes()
