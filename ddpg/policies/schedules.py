"""Schedules of learning rates, exploration and other options, as plain functions."""

from collections.abc import Callable

from ddpg.errors import UsageError, brief, guarded
from ddpg.interaction.validation import LARGEST, is_real

COOLDOWN = 0.2  # the last share of training, in which the cooldown schedule lowers the learning rates
TENTH = 0.1  # the final factor of the learning rate with linear_to_tenth
# Options whose schedules run to the end of training, so that total_timesteps changes the learning rate of every step.
RATE_SCHEDULES = ("learning_rate_schedule", "actor_learning_rate_schedule", "critic_learning_rate_schedule")


def constant(left: float) -> float:
    """Return 1."""
    return 1.0


def linear(left: float) -> float:
    """Return ``left``, the remaining share of training, which falls from 1 to 0."""
    return left


def cooldown(left: float) -> float:
    """Return 1; in the last fifth of training, a factor that falls linearly to 0."""
    return min(1.0, left / COOLDOWN)


def linear_to_tenth(left: float) -> float:
    """Return a factor that falls linearly from 1 at the start of training to a tenth at its end."""
    return TENTH + (1 - TENTH) * left


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": constant,
    "linear": linear,
    "cooldown": cooldown,
    "linear_to_tenth": linear_to_tenth,
}


def factor_of(schedule: str | Callable[[float], float], left: float) -> float:
    """Return the factor of a learning rate when the fraction ``left`` of training is left.

    Args:
        schedule: a name of :data:`SCHEDULES`, or the user's own function.
        left: in [0, 1].

    Raises:
        UsageError: if an own function raises an exception or does not return a finite number >= 0.
    """
    if isinstance(schedule, str):
        return SCHEDULES[schedule](left)
    name = getattr(schedule, "__name__", None) or brief(schedule)
    what = f"the schedule of the learning rate, {name}(left={left:g}),"
    factor = guarded(what, schedule)(left)
    if not (is_real(factor) and 0 <= factor <= LARGEST):
        raise UsageError(f"{what} returned {brief(factor)}; expected a finite number >= 0")
    return float(factor)


def interpolate(initial: float, final: float, steps: int, step: int) -> float:
    """Return the value at ``step``: linear from ``initial`` to ``final`` over ``steps``, then ``final``."""
    return initial + min(1.0, step / steps) * (final - initial)


def raised(schedule: Callable[[int], float], exponent: float, step: int) -> float:
    """Return the value of a schedule at ``step``, raised to the power ``exponent``."""
    return schedule(step) ** exponent
