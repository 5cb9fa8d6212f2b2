"""Schedules of learning rates and of the share of random actions, as plain functions."""

from collections.abc import Callable

COOLDOWN = 0.2  # the share of learning, at its end, in which the cooldown schedule lowers the learning rates
TENTH = 0.1  # what linear_to_tenth ends at, as a factor of the learning rate
# Options whose schedules run to the end of learning, so that total_timesteps changes every step.
RATE_SCHEDULES = ("learning_rate_schedule", "actor_learning_rate_schedule", "critic_learning_rate_schedule")


def constant(left: float) -> float:
    """Return 1."""
    return 1.0


def linear(left: float) -> float:
    """Return the share of learning that is left: from 1 down to 0."""
    return left


def cooldown(left: float) -> float:
    """Return 1, and in the last fifth of learning fall linearly to 0."""
    return min(1.0, left / COOLDOWN)


def linear_to_tenth(left: float) -> float:
    """Fall linearly from 1 at the start of learning to a tenth at its end."""
    return TENTH + (1 - TENTH) * left


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": constant,
    "linear": linear,
    "cooldown": cooldown,
    "linear_to_tenth": linear_to_tenth,
}


def schedule_of(schedule: str | Callable[[float], float]) -> Callable[[float], float]:
    """Return the schedule with a name; a function is returned as it is."""
    return SCHEDULES[schedule] if isinstance(schedule, str) else schedule


def interpolate(initial: float, final: float, steps: int, step: int) -> float:
    """Return the value at ``step``: linear from ``initial`` to ``final`` over ``steps``, then ``final``."""
    return initial + min(1.0, step / steps) * (final - initial)


def raised(schedule: Callable[[int], float], exponent: float, step: int) -> float:
    """Return the value of a schedule at ``step`` to a power."""
    return schedule(step) ** exponent
