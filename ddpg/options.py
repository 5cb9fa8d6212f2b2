"""What makes a frozen dataclass a schema of options: checked values, JSON, and what a flag needs to know."""

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpg.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from typing_extensions import Self


def option(default: Any, text: str) -> Any:
    """Return a field with a default and the text that explains it."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """A dataclass whose fields are options: numbers, names, or values of one's own where names are.

    Raises:
        UsageError: a value of the wrong type; subclasses check the range.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _coerced(type(self), field.name, getattr(self, field.name)))

    def _check(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise UsageError(f"{name}={getattr(self, name)!r} must be {expected}")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            self._check(0 < getattr(self, name) < np.inf, name, "a finite number > 0")

    def _check_shares(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(value is None or 0 <= value <= 1, name, "in [0, 1]")

    def _check_name(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        self._check(value in known, name, f"one of {known}{did_you_mean(value, known)}")

    def replace(self, **changes: Any) -> "Self":
        """Return a copy with some fields changed.

        Raises:
            UsageError: an unknown field, or a bad value.
        """
        _known(type(self), changes, type(self).__name__)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; a callable as ``{"custom": its name}``."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _jsonable(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Self":
        """Return the config of :meth:`to_json`.

        Raises:
            UsageError: an unknown field, a bad value, or a callable, which no file can hold.
        """
        _known(cls, values, "the configuration")
        for name, value in values.items():
            if isinstance(value, dict) and "custom" in value:
                raise UsageError(
                    f"{name} was a callable of your own ({value['custom']}); files hold data, never code: "
                    "pass the configuration again in Python, load(path, config=...) or ddpg.resume(run, config=...)"
                )
        return cls(**values)


@functools.cache
def _hints(config: type) -> dict[str, Any]:
    return typing.get_type_hints(config)


def field_type(config: type, name: str) -> tuple[type, bool, bool]:
    """Return a field's scalar type, whether it is a tuple of them, and whether it may be None."""
    hint = _hints(config)[name]
    optional = False
    if isinstance(hint, types.UnionType):
        parts = typing.get_args(hint)
        optional = type(None) in parts
        hint = parts[0]
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True, optional
    return hint, False, optional


def _coerced(config: type, name: str, value: Any) -> Any:
    kind, many, optional = field_type(config, name)
    if value is None and optional:
        return None
    if kind is str and (isinstance(value, str) or (not isinstance(value, (int, float)) and value is not None)):
        return value  # a name, or a value of one's own: whoever uses it checks it
    try:
        if many:
            return tuple(_number(int, item) for item in value)
        if kind is bool and isinstance(value, bool):
            return value
        if kind in (int, float):
            return _number(kind, value)
    except (TypeError, ValueError):
        pass
    described = f"a list of {kind.__name__}" if many else kind.__name__
    raise UsageError(f"{name}={value!r} must be {described}{' or none' if optional else ''}")


def _number(kind: type, value: Any) -> Any:
    if isinstance(value, (bool, str)) or kind(value) != value:
        raise ValueError
    return kind(value)


def _known(config: type, values: Mapping[str, Any], where: str) -> None:
    names = [field.name for field in dataclasses.fields(config)]
    for name in values:
        if name not in names:
            raise UsageError(f"{where} has no field {name!r}{did_you_mean(name, names)}; fields: {', '.join(names)}")


def _jsonable(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return {"custom": getattr(value, "__qualname__", repr(value))}
