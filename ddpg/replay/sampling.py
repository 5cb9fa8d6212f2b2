"""Draw minibatches from the replay buffer: uniformly, by source or by priority; n-step returns. NumPy only."""

from collections.abc import Callable, Mapping

import numpy as np

from ddpg.errors import UsageError
from ddpg.replay.buffer import ReplayBuffer
from ddpg.replay.minibatch import Batch
from ddpg.replay.priorities import Priorities
from ddpg.replay.random_shift import RandomShift


class Sampler:
    """Draws minibatches, with n-step returns, priorities, hindsight and shifted images according to the options.

    Args:
        replay: the replay buffer.
        n_steps: n of the n-step returns.
        gamma: γ.
        priorities: the priorities of the buffer's rows; ``None`` draws uniformly.
        relabel: replaces goals in a minibatch, ``(batch, rows, rng) -> batch``; not together with priorities.
        recorded_share: the share of each minibatch that is drawn from recorded transitions
            (:meth:`ReplayBuffer.draw_mixed`); not together with priorities. ``None``: all rows are drawn uniformly.
        cloning_weight: returns the weight of the behaviour-cloning term for the number of the agent's own steps so far
            (:attr:`ReplayBuffer.own`); ``None``: minibatches have no such weight.
        shift: shifts images at random; ``None``: they stay as they are.
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
        shift: RandomShift | None = None,
    ):
        self._replay, self._n_steps, self._gamma, self._priorities = replay, n_steps, gamma, priorities
        self._relabel, self._recorded_share, self._cloning_weight = relabel, recorded_share, cloning_weight
        self._shift = shift
        self._prioritised = 0  # how many of the replay.added transitions have a priority

    def sample(
        self, rng: np.random.Generator, updates: int, batch_size: int, correction: float
    ) -> tuple[Batch, np.ndarray]:
        """Draw ``updates`` minibatches of ``batch_size`` at once.

        β of the importance-sampling weights is ``correction``; see :meth:`Priorities.weights`.

        Returns:
            The minibatches ``[K, B, ...]``, and their rows ``[K, B]`` for :meth:`update`.

        Raises:
            UsageError: if the buffer is empty.
        """
        if (shift := self._shift) is None:
            rows = self._draw(rng, updates, batch_size)
        else:  # one minibatch after the other, so that they do not depend on how many of them a learner asks for
            drawn = [(self._draw(rng, 1, batch_size), shift.draw(rng, batch_size)) for _ in range(updates)]
            rows, corners = map(np.concatenate, zip(*drawn, strict=True))
        batch = self._replay.gather(rows, self._n_steps, self._gamma)
        if shift is not None:
            batch = shift(batch, corners)
        if self._relabel is not None:
            batch = self._relabel(batch, rows, rng)
        weights = None if self._priorities is None else self._priorities.weights(rows, correction)
        if weights is not None:
            discounts = np.full_like(batch.rewards, self._gamma) if batch.discounts is None else batch.discounts
            batch = batch.replace(weights=weights, discounts=discounts)
        if self._cloning_weight is not None:
            weight = self._cloning_weight(self._replay.own)
            batch = batch.replace(cloning=np.full_like(batch.rewards, weight))
        return batch, rows

    def _draw(self, rng: np.random.Generator, updates: int, batch_size: int) -> np.ndarray:
        replay, priorities, share = self._replay, self._priorities, self._recorded_share
        if share is not None:
            return replay.draw_mixed(rng, updates, batch_size, share)
        if priorities is None:
            return replay.draw(rng, updates, batch_size)
        if not len(replay):
            raise UsageError("the replay buffer is empty; store transitions before sampling")
        self._add_priorities()
        return priorities.draw(rng, (updates, batch_size), len(replay))

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of drawn ``rows`` from their TD errors, of the same shape."""
        if self._priorities is not None:
            self._priorities.update(rows, errors)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the buffer and of its priorities, if any; valid until they change, as the buffer's."""
        if self._priorities is None:
            return self._replay.state()
        self._add_priorities()
        return self._replay.state() | self._priorities.state(len(self._replay))

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned, with or without priorities; raise UsageError if it is invalid."""
        unroll = self._replay.restore(arrays)
        if self._priorities is not None:
            self._priorities.restore(arrays, len(self._replay), unroll)
        self._prioritised = self._replay.added

    def _add_priorities(self) -> None:
        """Give the rows stored since the last call their first priority."""
        fresh = min(self._replay.added - self._prioritised, len(self._replay))
        if fresh:
            assert self._priorities is not None
            self._priorities.add(self._replay.newest(fresh))
        self._prioritised = self._replay.added
