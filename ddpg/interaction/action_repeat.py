"""How many decisions an agent has in an episode, whose time limit counts the environment's steps.

Where wrappers repeat actions they are fewer than the environment's steps.
"""

from collections.abc import Iterable, Mapping
from typing import Any

# gymnasium's wrappers that take several steps for one action, and the argument that says how many.
_STEPS = {"MaxAndSkipObservation": "skip", "RepeatAction": "num_repeats", "AtariPreprocessing": "frame_skip"}


def decisions(limit: int | None, wrappers: Iterable[tuple[str, Mapping[str, Any]]]) -> int | None:
    """Return after how many actions an episode is truncated; ``None`` for a ``limit`` of ``None``.

    Args:
        limit: steps of the environment after which it truncates an episode.
        wrappers: the name and the arguments of each wrapper, as :class:`gymnasium.envs.registration.WrapperSpec` has
            them.
    """
    if limit is None:
        return None
    for name, arguments in wrappers:
        repeats = arguments.get(_STEPS.get(name, ""), 1)
        limit = -(-limit // repeats) if isinstance(repeats, int) and repeats > 1 else limit
    return limit


def decisions_of(spec: Any) -> int | None:
    """Return the same for an environment's ``spec``, which may lack both; ``None`` without a time limit."""
    wrappers = ((one.name, one.kwargs or {}) for one in getattr(spec, "additional_wrappers", ()))
    return decisions(getattr(spec, "max_episode_steps", None), wrappers)
