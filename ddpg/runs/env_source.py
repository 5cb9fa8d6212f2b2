"""What an environment is made from: its id, wrappers and keyword arguments, which travel together.

A run keeps them in ``config.json``, and whatever makes the environment again (an evaluation, a worker, the process that
draws it) starts from the same ones.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ddpg.errors import UsageError, brief

_MOST = 64  # keyword arguments
_DEEPEST = 8  # lists and mappings in one another
# Keyword arguments of gymnasium.make and of constructors that this package sets.
_SET_HERE = {
    "render_mode": "ddpg record and ddpg watch set it",
    "disable_env_checker": "observations and rewards are always checked, by this package",
    "id": "it is the environment itself",
}


class EnvSource(NamedTuple):
    """What an environment is made from.

    Attributes:
        env_id: a registered id; ``module:Id`` imports ``module`` first; ``ddpg_envs/...`` and ``dmc/...`` need no
            import.
        wrappers: names in :data:`ddpg.runs.wrappers.WRAPPERS`, with their arguments, the innermost first.
        kwargs: keyword arguments of the environment's constructor, and ``max_episode_steps``; from
            :func:`checked_kwargs`.
    """

    env_id: str
    wrappers: Sequence[str] = ()
    kwargs: Mapping[str, Any] = {}

    @classmethod
    def of(cls, source: "EnvSource | str") -> "EnvSource":
        """Return ``source``; an id alone stands for a source without wrappers and keyword arguments."""
        return cls(source) if isinstance(source, str) else source

    @classmethod
    def of_run(cls, document: Mapping[str, Any]) -> "EnvSource":
        """Return the source in a run's ``config.json``.

        Raises:
            UsageError: as :func:`checked_kwargs`, if somebody else has written the file.
        """
        return cls(document["env_id"], document["wrappers"], checked_kwargs(document["env_kwargs"]))

    def flags(self) -> list[str]:
        """Return the flags of ``ddpg train`` that give the wrappers and the keyword arguments."""
        wraps = [word for name in self.wrappers for word in ("--wrap", name)]
        return wraps + [word for one in words_of(self.kwargs) for word in ("--env-kwargs", one)]


def checked_kwargs(kwargs: Any) -> dict[str, Any]:
    """Return a caller's keyword arguments as ``config.json`` holds them, with lists for tuples.

    Raises:
        UsageError: if they are no mapping of names to plain values (numbers, texts, booleans, ``None``, and lists and
            mappings of them), or name one that this package sets.
    """
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in kwargs):
        raise UsageError(
            f"env_kwargs={brief(kwargs)} must be keyword arguments of the environment, such as "
            "{'max_episode_steps': 200}"
        )
    if len(kwargs) > _MOST:
        raise UsageError(f"env_kwargs has {len(kwargs)} keyword arguments; expected at most {_MOST}")
    for name in kwargs:
        if name in _SET_HERE:
            raise UsageError(f"env_kwargs has {name!r}; leave it out: {_SET_HERE[name]}")
    if "max_episode_steps" in kwargs:
        limit = kwargs["max_episode_steps"]
        if isinstance(limit, bool) or not isinstance(limit, int) or not (limit == -1 or 1 <= limit <= 2**53):
            raise UsageError(
                f"env_kwargs: max_episode_steps={brief(limit)} must be the steps after which an episode is truncated, "
                "at least 1, or -1 for none"
            )
    return {name: _plain(value, name) for name, value in kwargs.items()}


def _plain(value: Any, name: str, depth: int = 0) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        return [_plain(one, name, depth + 1) for one in value]
    if isinstance(value, Mapping) and depth < _DEEPEST and all(isinstance(key, str) for key in value):
        return {key: _plain(one, name, depth + 1) for key, one in value.items()}
    raise UsageError(
        f"env_kwargs: {name}={brief(value)} must be a value that a file of JSON can hold: a finite number, a text, a "
        "boolean, None, or a list or dict of them; for anything else register the environment in a module of your own "
        "and name it module:Id"
    )


def kwargs_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the keyword arguments that words ``NAME=VALUE`` of a command line name.

    A value is JSON where it can be read as JSON, then Python's ``True``, ``False``, ``None`` or number, else text:
    ``-5``, ``.5``, ``true``, ``[1, 2]``, ``reach-v3``; ``"3"`` with its double quotes is text.

    Raises:
        UsageError: if a word has no ``=``, a name is there twice, or as :func:`checked_kwargs`.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            left, colon, right = word.partition(":")  # as Stable-Baselines3's zoo writes it
            meant = f"; did you mean {brief(f'{left}={right}')}?" if colon and left.isidentifier() else ""
            raise UsageError(f"env_kwargs={brief(word)} must be NAME=VALUE, such as max_episode_steps=200{meant}")
        if name in found:
            raise UsageError(f"env_kwargs has {name!r} twice; give it once")
        found[name] = _value(text)
    return checked_kwargs(found)


def _value(text: str) -> Any:
    if text in _PYTHON:
        return _PYTHON[text]
    for read in (json.loads, int, float):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text


_PYTHON = {"True": True, "False": False, "None": None}


def words_of(kwargs: Mapping[str, Any]) -> list[str]:
    """Return the words ``NAME=VALUE`` that :func:`kwargs_of` reads as ``kwargs``."""
    return [f"{name}={_text(value)}" for name, value in kwargs.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value and _value(value) == value else json.dumps(value)
