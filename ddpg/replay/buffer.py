"""The replay buffer, which stores the latest transitions in NumPy arrays used as a ring, and samples from them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ddpg.errors import UsageError, brief
from ddpg.interaction.spaces import check_integers
from ddpg.interaction.transitions import Transitions
from ddpg.interaction.validation import check_finite, validate_int, validate_numeric
from ddpg.replay.minibatch import Batch
from ddpg.replay.observation_store import ObservationStore

LARGEST_SIZE = 2**20  # maximum number of action components
LONGEST_RETURN = 1_000  # steps
NEGLIGIBLE = 0.01  # the discount at which later rewards are ignored
RECORDED = "recorded"  # the flag of transitions from a data set; the field exists only if there are any


def check_rows(arrays: Mapping[str, np.ndarray], fields: Mapping[str, np.ndarray]) -> None:
    """Check that the arrays of a checkpoint fit the buffer's ``fields``; raise UsageError if they do not."""
    size = len(arrays["rewards"])
    for name, field in fields.items():
        _check(name, arrays[name], (size, *field.shape[1:]), field.dtype)
    observations = fields["observations"]
    last = arrays["last_observations"]
    _check("last_observations", last, (len(last), *observations.shape[1:]), observations.dtype)
    for name in ("terminated", "truncated", RECORDED):
        if name in fields:
            _check_flags(name, arrays[name])


def check_successors(arrays: Mapping[str, np.ndarray]) -> None:
    """Check that the successors in a checkpoint are possible in a ring; raise UsageError if they are not.

    A row's successor is a newer row that follows no other, and only a row that ends no episode has one. For each row
    without a successor there is a last observation.
    """
    successors, size = arrays["successors"], len(arrays["rewards"])
    _check("successors", successors, (size,), successors.dtype)
    alone = successors == -1
    if len(arrays["last_observations"]) != alone.sum():
        raise UsageError(
            f"the replay memory has {len(arrays['last_observations'])} last observations, expected {alone.sum()}: "
            "one for each row without a successor"
        )
    rows = np.flatnonzero(~alone)
    following = successors[rows].astype(np.int64)
    age = lambda numbers: (numbers - int(arrays["position"])) % max(1, size)  # noqa: E731  # 0: the oldest
    ended = (arrays["terminated"] + arrays["truncated"])[rows, 0] > 0
    bad = (following < 0) | (following >= size) | (age(following) <= age(rows)) | ended
    if bad.any():
        row, successor = rows[bad][0], following[bad][0]
        raise UsageError(
            f"replay row {row} has the successor {successor}, expected a newer one of the {size} rows, and none after "
            "an end"
        )
    if np.bincount(following).max(initial=0) > 1:
        raise UsageError("a replay row is the successor of two rows, expected of one at most")


def _check(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if array.shape != shape:
        raise UsageError(f"replay field {name} has shape {array.shape}, expected {shape}")
    if array.dtype != dtype:
        raise UsageError(f"replay field {name} has dtype {array.dtype}, expected {dtype}")


def _check_flags(name: str, array: np.ndarray) -> None:
    bad = (array != 0) & (array != 1)
    if bad.any():
        raise UsageError(f"replay field {name} holds {array[bad][0]}, expected flags, 0 or 1")


def _numbers(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a field of N transitions as an array of finite numbers."""
    array = validate_numeric(values, name)
    if array.shape != shape:
        raise UsageError(f"{name} has shape {array.shape}, expected {shape}: one for each of {shape[0]} transitions")
    check_finite(array, name)
    return array


def n_step_returns(
    rewards: np.ndarray, observations: ObservationStore, rows: np.ndarray, n_steps: int, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last rows of the n-step returns from ``rows`` ``[...]``, the returns R and γ^m, ``[..., 1]``.

    R = Σ_{k<m} γ^k·r_k, where r_0, r_1, ... are the ``rewards`` ``[capacity, 1]`` from a row on. m ≤ n is smaller than
    n if the episode ends or is cut before, or if its next transition is not stored yet. The bootstrap value is
    discounted by γ^m. So the newest rows have shorter returns, which are equally correct targets, and can be drawn at
    once.
    """
    last, continues = rows, np.ones(rows.shape, bool)
    sums = rewards.take(rows).astype(np.float64)
    discounts = np.full(rows.shape, float(gamma))
    for step in range(1, n_steps):
        last, follows = observations.next_rows(last)
        continues &= follows
        sums += np.where(continues, gamma**step * rewards.take(last), 0)
        discounts[continues] *= gamma
    return last, sums.astype(np.float32)[..., None], discounts.astype(np.float32)[..., None]


def return_steps(gamma: float) -> int:
    """Return the number of steps n at which γ^n ≤ 1 %, so that later rewards hardly matter; at most 1,000."""
    if gamma <= NEGLIGIBLE:
        return 1
    if gamma >= NEGLIGIBLE ** (1 / LONGEST_RETURN):
        return LONGEST_RETURN
    return math.ceil(math.log(NEGLIGIBLE) / math.log(gamma))


class OutOfMemory(UsageError):
    """The arrays of a buffer do not fit into this machine's memory; NumPy's ``MemoryError`` is the cause."""


class ReplayBuffer:
    """The last ``capacity`` transitions, observations as float32 (images: bytes), sampled uniformly with replacement.

    Every observation is stored once (:mod:`ddpg.replay.observation_store`).
    A transition takes 4·(numbers of s and a) + 10 bytes, and an episode one more s: about 102 for HalfCheetah-v5.
    ``truncated`` is stored separately from ``terminated`` and never masks a bootstrap; it marks where episodes were
    cut, for code that reads trajectories from the buffer.

    The operating system allocates memory when it is first written, so a large capacity costs only the filled part.

    Attributes:
        capacity: maximum number of transitions.
        added: number of transitions stored so far, including overwritten ones.
        own: how many of them the agent made itself, that is, are not recorded.
        observations: the store of the observations, which knows which row follows which.
    """

    def __init__(
        self, capacity: int, observation_shape: tuple[int, ...], action_size: int, observation_dtype=np.float32
    ):
        capacity = validate_int(capacity, "capacity", at_least=1)
        action_size = validate_int(action_size, "action_size", at_least=1, at_most=LARGEST_SIZE)
        if not isinstance(observation_shape, (list, tuple)):
            raise UsageError(f"observation_shape={brief(observation_shape)} must be a tuple of whole numbers")
        sizes = [validate_int(size, "observation_shape", at_least=1) for size in observation_shape]
        observation_shape = tuple(sizes)
        self.capacity = capacity
        self.added = self.own = 0
        try:
            dtype = np.dtype(observation_dtype)
        except (TypeError, ValueError):
            raise UsageError(f"observation_dtype={brief(observation_dtype)} must be a NumPy dtype") from None
        if dtype.kind not in "buif":
            raise UsageError(f"observation_dtype={brief(dtype)} must be a dtype of real numbers")
        try:
            self.observations = ObservationStore(capacity, observation_shape, dtype)
            self._actions = np.zeros((capacity, action_size), np.float32)
        except (MemoryError, ValueError) as error:  # ValueError: the size in bytes overflows NumPy's integers
            raise OutOfMemory(f"capacity={capacity} does not fit into memory ({error}); lower it") from error
        self._rewards = np.zeros((capacity, 1), np.float32)
        self._terminated = np.zeros((capacity, 1), np.uint8)
        self._truncated = np.zeros((capacity, 1), np.uint8)
        self._recorded: np.ndarray | None = None
        self._position = self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
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
        env_indices: Sequence[int] | None = None,
    ) -> None:
        """Store N transitions, overwriting the oldest: arrays ``[N, ...]``, the scalars as ``[N]``.

        A KeyboardInterrupt is raised only after all N are stored; later transitions then start new episodes.

        Args:
            observations: s.
            actions: a, as the networks see them.
            rewards: r.
            next_observations: the true s′, also at the end of an episode (not the observation after a reset).
            terminated: whether s′ is terminal.
            truncated: whether the episode was truncated at s′.
            env_indices: the environment of each transition; 0 to N - 1 by default. Transitions of one environment
                belong to one episode as long as s equals s′ of the transition before, and that one did not end it. If
                the first index is negative, all N are recorded: they come from a data set (:meth:`draw_mixed`).

        Raises:
            UsageError: if a shape is wrong, a number is NaN or infinite, or does not fit a buffer of bytes, a flag is
                neither 0 nor 1, or an index is no integer. Then nothing is stored.
        """
        rewards = validate_numeric(rewards, "rewards")
        rewards = _numbers("rewards", rewards, (rewards.size,))
        count, shape = len(rewards), self.observations.rows.shape[1:]
        transitions = Transitions(
            observations=_numbers("observations", observations, (count, *shape)),
            actions=_numbers("actions", actions, (count, self._actions.shape[1])),
            rewards=rewards,
            next_observations=_numbers("next_observations", next_observations, (count, *shape)),
            terminated=_numbers("terminated", terminated, (count,)),
            truncated=_numbers("truncated", truncated, (count,)),
            env_indices=range(count),
        )
        _check_flags("terminated", transitions.terminated)
        _check_flags("truncated", transitions.truncated)
        if (dtype := self.observations.rows.dtype) == np.uint8:
            check_integers(transitions.observations, dtype, "observations")
            check_integers(transitions.next_observations, dtype, "next_observations")
        if env_indices is not None:
            indices = _numbers("env_indices", env_indices, (count,))
            if count and indices.dtype.kind not in "iu":
                raise UsageError(f"env_indices={brief(env_indices)} must be whole numbers")
            transitions = dataclasses.replace(transitions, env_indices=indices.tolist())
        self.store(transitions)

    def store(self, transitions: Transitions) -> None:
        """Store transitions as :meth:`add` does, unchecked."""
        if len(transitions) > self.capacity:
            for start in range(0, len(transitions), self.capacity):
                self.store(transitions[start : start + self.capacity])
            return
        saved = self._position, self._size, self.added, self.own
        try:
            self._write(transitions)
        except KeyboardInterrupt:  # a row may hold parts of two transitions
            self._position, self._size, self.added, self.own = saved
            self.observations.rebuild_free_list(self._size)
            self._write(transitions)
            raise

    def _write(self, transitions: Transitions) -> None:
        count = len(transitions)
        rows: slice | np.ndarray
        if self._position + count <= self.capacity:
            rows = slice(self._position, self._position + count)
        else:
            rows = np.arange(self._position, self._position + count) % self.capacity
        self.observations.rows[rows] = transitions.observations
        self._actions[rows] = transitions.actions
        self._rewards[rows, 0] = transitions.rewards
        self._terminated[rows, 0] = transitions.terminated
        self._truncated[rows, 0] = transitions.truncated
        recorded = count > 0 and transitions.env_indices[0] < 0
        if recorded and self._recorded is None:
            self._recorded = np.zeros((self.capacity, 1), np.uint8)
        if self._recorded is not None:
            self._recorded[rows, 0] = recorded
        self.observations.connect(self._position, transitions)
        self._position = (self._position + count) % self.capacity
        self._size = min(self._size + count, self.capacity)
        self.added += count
        self.own += 0 if recorded else count

    def end_episodes(self, env_index: int | None = None) -> None:
        """Start a new episode with the next transition of one environment, or of all."""
        self.observations.end_episodes(env_index)

    # -- drawing --------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, updates: int, batch_size: int) -> Batch:
        """Draw ``updates`` minibatches at once: a :class:`Batch` with leading axes ``[K, B]``.

        Raises:
            UsageError: if the buffer is empty, or a number is not a whole number, at least 1.
        """
        updates = validate_int(updates, "updates", at_least=1)
        batch_size = validate_int(batch_size, "batch_size", at_least=1)
        return self.gather(self.draw(rng, updates, batch_size))

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int) -> np.ndarray:
        """Draw the rows ``[K, B]`` of ``updates`` minibatches.

        Raises:
            UsageError: if the buffer is empty.
        """
        if self._size == 0:
            raise UsageError("the replay buffer is empty; store transitions before sampling")
        return rng.integers(0, self._size, size=(updates, batch_size))

    def draw_mixed(self, rng: np.random.Generator, updates: int, batch_size: int, share: float) -> np.ndarray:
        """Draw the rows ``[K, B]`` of minibatches with a fixed ``share`` of recorded rows, rounded to whole rows.

        The recorded rows come first in each minibatch. If all rows are recorded, or none, this is :meth:`draw`.
        """
        if self.num_recorded in (0, self._size):
            return self.draw(rng, updates, batch_size)
        assert self._recorded is not None
        flags = self._recorded[: self._size, 0].view(bool)  # whose rows NumPy finds in a sixth of the time
        first = round(share * batch_size)
        drawn = [
            rows[rng.integers(0, len(rows), size=(updates, count))]
            for rows, count in ((np.flatnonzero(flags), first), (np.flatnonzero(~flags), batch_size - first))
        ]
        return np.concatenate(drawn, axis=1)

    @property
    def num_recorded(self) -> int:
        """The number of recorded rows, that is, those stored with a negative environment index."""
        return 0 if self._recorded is None else int(np.count_nonzero(self._recorded[: self._size]))

    def gather(self, rows: np.ndarray, n_steps: int = 1, gamma: float = 1.0) -> Batch:
        """Return the transitions of ``rows`` ``[...]``, with n-step returns if n > 1 (:func:`n_step_returns`)."""
        last, rewards, discounts = rows, self._rewards.take(rows, axis=0), None
        if n_steps > 1:
            last, rewards, discounts = n_step_returns(self._rewards, self.observations, rows, n_steps, gamma)
        return Batch(
            self.observations.obs(rows),
            self._actions.take(rows, axis=0),
            rewards,
            self.observations.next_obs(last),
            self._terminated.take(last, axis=0).astype(np.float32),
            discounts,
        )

    def newest(self, count: int) -> np.ndarray:
        """Return the rows of the last ``count`` transitions, the oldest first."""
        return np.arange(self._position - count, self._position) % self.capacity

    # -- reading and saving ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the filled rows by field name, in storage order, and ``position``, the row to be written next.

        Actions ``[N, A]`` are as the networks see them: in [-1, 1] (half-ranges of the box), or the index of a discrete
        action; ``agent.to_env(actions)`` gives those of the environment. ``rewards``, ``terminated`` and ``truncated``
        are ``[N, 1]``.

        The arrays are valid until the next transition is stored: most are views, so that no memory is copied.
        """
        return self._filled() | {"next_observations": self.observations.next_obs(np.arange(self._size))}

    def _filled(self) -> dict[str, np.ndarray]:
        """Return views of the filled rows by field name, and ``position``."""
        rows = {name: field[: self._size] for name, field in self._fields().items()}
        return rows | {"position": np.asarray(self._position)}

    def _fields(self) -> dict[str, np.ndarray]:
        return {
            "observations": self.observations.rows,
            "actions": self._actions,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "truncated": self._truncated,
            **({} if self._recorded is None else {RECORDED: self._recorded}),
        }

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for :meth:`restore`: the rows, and the index of each row's successor (-1: none).

        ``last_observations`` holds s′ of the rows without a successor, in order.

        The arrays are valid until the next transition is stored: most are views, so that saving a large buffer takes no
        second one. To keep a state longer, copy every array.
        """
        return self._filled() | self.observations.state(self._size)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Restore what :meth:`state` returned; the next transitions start new episodes.

        Returns:
            The number of rows by which the ring was rolled: the saved row i is now row i minus this number.

        Raises:
            UsageError: if there are more transitions than this buffer holds, or an array is missing or invalid.
        """
        needed = {*self._fields(), "position", "successors", "last_observations"} - {RECORDED}
        if missing := sorted(name for name in needed if name not in arrays):
            raise UsageError(f"arrays lacks {', '.join(missing)}; expected everything that ReplayBuffer.state returned")
        size, position = len(arrays["rewards"]), int(arrays["position"])
        if size > self.capacity:
            raise UsageError(f"{size} stored transitions do not fit a replay buffer of {self.capacity}")
        self._recorded = np.zeros((self.capacity, 1), np.uint8) if RECORDED in arrays else None
        fields = self._fields()
        check_rows(arrays, fields)
        check_successors(arrays)
        # A full ring of the same capacity keeps its row order, so that a resumed run draws the same rows. A ring that
        # was full at a smaller capacity is unrolled, oldest row first, so that the next write goes behind the newest.
        unroll = position if size < self.capacity and position < size else 0
        for name, field in fields.items():
            field[:size] = np.roll(arrays[name], -unroll, axis=0) if unroll else arrays[name]  # a roll by 0 copies
        self.observations.restore(arrays, size, unroll)
        self._size = self.added = size
        self._position = position % self.capacity if size == self.capacity else size
        self.own = size - self.num_recorded
        return unroll
