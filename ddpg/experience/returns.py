"""n-step returns of rows in memory (Sutton & Barto 2018, section 7.1). NumPy only."""

import numpy as np

from ddpg.experience.linked import LinkedObservations


def n_step_returns(
    rewards: np.ndarray, observations: LinkedObservations, rows: np.ndarray, n_steps: int, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the returns from ``rows`` on end, what they are worth until there, and what follows is worth.

    With r_0, r_1, ... the rewards from a row on, m ≤ n of them until the episode ended, was cut, or is not known to go
    on:  R = Σ_{k<m} γ^k·r_k,  and the discount of what follows is γ^m. The newest rows have shorter returns, which are
    as right, so no row waits to be drawn.

    Args:
        rewards: of all rows, ``[capacity, 1]``.
        observations: which row follows which.
        rows: ``[...]``.
        n_steps: n.
        gamma: γ.

    Returns:
        The last row of each, ``[...]``, R ``[..., 1]`` and γ^m ``[..., 1]``.
    """
    last, goes_on = rows, np.ones(rows.shape, bool)
    sums = rewards.take(rows).astype(np.float64)
    discounts = np.full(rows.shape, float(gamma))
    for step in range(1, n_steps):
        last, follows = observations.following(last)
        goes_on &= follows
        sums += np.where(goes_on, gamma**step * rewards.take(last), 0)
        discounts[goes_on] *= gamma
    return last, sums.astype(np.float32)[..., None], discounts.astype(np.float32)[..., None]
