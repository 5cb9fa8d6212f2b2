"""Draw minibatches from the replay buffer: uniformly, by source or by priority; n-step returns. NumPy only."""

from collections.abc import Callable, Mapping

import numpy as np

from ddpg.errors import UsageError
from ddpg.replay.buffer import ReplayBuffer
from ddpg.replay.minibatch import Batch
from ddpg.replay.priorities import Priorities


class Sampler:
    """Draws minibatches: n-step returns, priorities and hindsight as the options have it.

    Args:
        replay: the buffer.
        n_steps: n of the n-step returns.
        gamma: γ.
        priorities: of the buffer's rows; ``None`` draws uniformly.
        relabel: replaces goals in a minibatch, ``(batch, rows, rng) -> batch``; not together with priorities.
        recorded_share: of each minibatch, drawn from recorded transitions (:meth:`ReplayBuffer.draw_mixed`); not
            together with priorities. ``None``: all are drawn alike.
        cloning_weight: of each minibatch's term of cloning, by the agent's own steps so far
            (:attr:`ReplayBuffer.own`); ``None``: minibatches have none.
    """

    def __init__(
        self,
        replay: ReplayBuffer,
        n_steps: int,
        gamma: float,
        priorities: Priorities | None,
        relabel: Callable[[Batch, np.ndarray, np.random.Generator], Batch] | None = None,
        recorded_share: float | None = None,
        cloning_weight: Callable[[int], float] | None = None,
    ):
        self._replay, self._n_steps, self._gamma, self._priorities = replay, n_steps, gamma, priorities
        self._relabel, self._recorded_share, self._cloning_weight = relabel, recorded_share, cloning_weight
        self._prioritised = 0  # of replay.added transitions, those that have a priority

    def sample(
        self, rng: np.random.Generator, updates: int, batch_size: int, correction: float
    ) -> tuple[Batch, np.ndarray]:
        """Draw ``updates`` minibatches at once.

        Args:
            rng: draws.
            updates: K.
            batch_size: B.
            correction: β of the importance-sampling weights; see :meth:`Priorities.weights`.

        Returns:
            The minibatches ``[K, B, ...]``, and their rows ``[K, B]`` for :meth:`update`.

        Raises:
            UsageError: if the buffer is empty.
        """
        batch, rows = self._drawn(rng, updates, batch_size, correction)
        if self._cloning_weight is None:
            return batch, rows
        weight = self._cloning_weight(self._replay.own)
        return batch.replace(cloning=np.full_like(batch.rewards, weight)), rows

    def _drawn(
        self, rng: np.random.Generator, updates: int, batch_size: int, correction: float
    ) -> tuple[Batch, np.ndarray]:
        replay, priorities, share = self._replay, self._priorities, self._recorded_share
        if priorities is None:
            rows = (
                replay.draw(rng, updates, batch_size)
                if share is None
                else replay.draw_mixed(rng, updates, batch_size, share)
            )
            batch = replay.gather(rows, self._n_steps, self._gamma)
            return (batch if self._relabel is None else self._relabel(batch, rows, rng)), rows
        if not len(replay):
            raise UsageError("the replay buffer is empty; store transitions before sampling")
        self._add_priorities()
        rows = priorities.draw(rng, (updates, batch_size), len(replay))
        batch = replay.gather(rows, self._n_steps, self._gamma)
        weights = priorities.weights(rows, correction)
        if weights is None:
            return batch, rows
        if batch.discounts is None:
            batch = batch.replace(discounts=np.full_like(batch.rewards, self._gamma))
        return batch.replace(weights=weights), rows

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of drawn ``rows`` from their TD errors, of the same shape."""
        if self._priorities is not None:
            self._priorities.update(rows, errors)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the buffer, and of its priorities if there are any."""
        if self._priorities is None:
            return self._replay.state()
        self._add_priorities()
        return self._replay.state() | self._priorities.state(len(self._replay))

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned, of a buffer with priorities or without.

        Raises:
            UsageError: if the arrays are invalid or do not fit this buffer.
        """
        unroll = self._replay.restore(arrays)
        if self._priorities is not None:
            self._priorities.restore(arrays, len(self._replay), unroll)
        self._prioritised = self._replay.added

    def _add_priorities(self) -> None:
        """Give rows that were stored since the last call their first priority."""
        fresh = min(self._replay.added - self._prioritised, len(self._replay))
        if fresh:
            assert self._priorities is not None
            self._priorities.add(self._replay.newest(fresh))
        self._prioritised = self._replay.added
