"""The base of all options: a frozen dataclass that checks its values, whether they come from Python, TOML or flags."""

import dataclasses
import functools
import inspect
import itertools
import json
import math
import numbers
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ddpg.config.imports import check_signature, import_reference, is_reference, reference_of
from ddpg.config.name_hints import FILES, OPTIONS, meaning_here, renamed, value_here
from ddpg.errors import UsageError, brief, did_you_mean, format_error

if TYPE_CHECKING:
    from typing_extensions import Self


_Class = TypeVar("_Class", bound=type)


# ddpg.interaction.validation has the upper limits too, but imports NumPy, which would delay ``ddpg --help``.
LARGEST, SMALLEST, LARGEST_INT = 3.4028234663852886e38, 2.0**-126, 2**63 - 1  # of float32 (normal), of int64
MOST_ITEMS = 10_000  # in a list of seeds, layers or names


def option(
    default: Any,
    text: str,
    choices: Sequence[str] = (),
    group: str = "",
    *,
    at_least: int | None = None,
    at_most: int = LARGEST_INT,
    max_items: int = MOST_ITEMS,
    **flag: Any,
) -> Any:
    """Return a dataclass field with a default and the text that explains it.

    Args:
        default: ``dataclasses.MISSING`` for a required option.
        text: the explanation in ``--help`` and in the class's docstring.
        choices: the names that the option accepts, if it accepts names.
        group: the heading in ``--help`` under which it is listed.
        at_least: the smallest number that it accepts, if not none.
        at_most: the largest integer that it accepts, also as an item of a list: far above any sensible use, so that a
            typing error does not allocate all memory.
        max_items: the largest length of a list.
        flag: its form on a command line: ``metavar``, ``aliases``, ``positional``; and ``arguments``, which a user's
            own callable must take (:func:`ddpg.config.imports.check_signature`).
    """
    limits = {"at_least": at_least, "at_most": at_most, "max_items": max_items}
    about = {"help": text, "choices": choices, "group": group, **limits, **flag}
    return dataclasses.field(default=default, metadata=about)


def document_options(config: _Class) -> _Class:
    """Add the options, their choices and defaults to a class's docstring: a decorator above ``dataclass``."""
    lines = [inspect.getdoc(config) or "", "", "Attributes:"]
    for field in dataclasses.fields(config):
        default = "" if field.default is dataclasses.MISSING else f" Default: ``{field.default!r}``."
        names = f" One of {', '.join(map(repr, field.metadata['choices']))}." if field.metadata.get("choices") else ""
        text = f"{field.name}: {field.metadata['help']}.{names}{default}"
        lines += textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    config.__doc__ = "\n".join(lines)
    return config


@dataclasses.dataclass(frozen=True)
class Options:
    """A dataclass whose fields are options: numbers, lists, and names (some of which may be the user's object instead).

    Raises:
        UsageError: if a value has the wrong type or is none of the choices; subclasses check ranges.
    """

    def __init_subclass__(cls) -> None:
        """Let new defaults keep the declarations they replace; make an exception of own checks a ``UsageError``.

        Raises:
            UsageError: as :func:`_check_declarations`.
        """
        if "__dataclass_fields__" not in vars(cls):  # else dataclass(slots=True) creates the class a second time
            _check_declarations(cls, cls.__dataclass_fields__)
            for name, declared in cls.__dataclass_fields__.items():
                if name in vars(cls) and not isinstance(default := vars(cls)[name], dataclasses.Field):
                    setattr(cls, name, dataclasses.field(default=default, metadata=declared.metadata))
        if "__post_init__" in vars(cls) and _is_own(cls):
            cls.__post_init__ = _refusing(cls.__post_init__)  # type: ignore[method-assign]

    def __new__(cls, *values: Any, **options: Any) -> "Self":
        """Refuse unknown names in one line, before the dataclass's constructor raises a TypeError."""
        check_known(cls, options, cls.__name__)
        return super().__new__(cls)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, coerce(type(self), field.name, getattr(self, field.name)))
        for field in dataclasses.fields(self):
            self._check_size(field.name, field.metadata.get("at_least"), field.metadata.get("at_most", LARGEST_INT))
            choices = tuple(field.metadata.get("choices", ()))
            if choices or field.metadata.get("arguments"):
                self._check_names(field.name, choices)

    def _check(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise UsageError(f"{name}={brief(getattr(self, name))} must be {expected}")

    def _check_size(self, name: str, at_least: int | None, at_most: int) -> None:
        value = getattr(self, name)
        if at_least is not None:
            self._check(value is None or value >= at_least, name, f"at least {at_least}{self._or_none(name)}")
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int):
                self._check(-LARGEST_INT <= one <= at_most, name, f"at most {at_most}")
            elif isinstance(one, float) and math.isfinite(one):
                held = one == 0 or SMALLEST <= abs(one) <= LARGEST
                self._check(held, name, f"a number that float32 can hold: 0, or from {SMALLEST:.3g} to {LARGEST:.3g}")

    def _check_layers(self, name: str) -> None:
        units = getattr(self, name)
        expected = f"layers of at least 1 unit{self._or_none(name)}"
        self._check(units is None or (bool(units) and min(units) >= 1), name, expected)

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(value is None or 0 < value < math.inf, name, f"a finite number > 0{self._or_none(name)}")

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(value is None or 0 <= value < math.inf, name, f"a finite number >= 0{self._or_none(name)}")

    def _or_none(self, name: str) -> str:
        return ", or none" if field_type(type(self), name)[2] else ""

    def _check_fractions(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._check(value is None or 0 <= value <= 1, name, "in [0, 1]")

    def _check_names(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        many, expected = field_type(type(self), name)[1], f"{_expected_names(known)}{self._or_none(name)}"
        kinds = non_string_types(type(self), name)
        if kinds and is_reference(value):
            value = import_reference(value, name)
            object.__setattr__(self, name, value)
        for one in value if many else (value,):
            if isinstance(one, str):
                here = value_here(one, known)
                hint = did_you_mean(one, known) if here is None else f"; did you mean {here!r}?"
                if known and kinds and not hint and re.search("[.:/]", one):
                    hint = "; one of your own is named module:name, such as mymodule:path, with --allow-import mymodule"
                self._check(one in known, name, f"{expected}{hint}")
            elif one is not None and not isinstance(one, kinds):
                own = " or ".join(sorted(kind.__name__ for kind in kinds))
                self._check(False, name, expected + f", or a {own} of your own" * bool(known and kinds))
            elif one is not None and (arguments := _arguments(type(self)).get(name)):
                check_signature(one, arguments, name, _arguments(type(self)))

    def replace(self, **changes: Any) -> "Self":
        """Return a copy with some fields changed.

        Raises:
            UsageError: if a field is unknown or a value is invalid.
        """
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        A callable that was named as ``module:attribute`` becomes that name again, any other ``{"custom": its name}``.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _jsonable(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Self":
        """Return the options that :meth:`to_json` wrote.

        Raises:
            UsageError: if a field is unknown, a value is invalid, or it was a callable, which no file can hold.
        """
        if not isinstance(values, Mapping):
            raise UsageError(f"values={brief(values)} must be a dict of options by name")
        known = [field.name for field in dataclasses.fields(cls)]
        if _is_own(cls) and (lost := [name for name in values if name not in known]):
            raise UsageError(
                f"{cls.__name__} has no option {brief(lost[0])} any more, with which this was saved; give the class "
                "that option again, or load in Python with the options that it has: load(path, config=...) or "
                "ddpg.resume(run, config=...)"
            )
        check_known(cls, values, cls.__name__)
        if own := {
            name: value["custom"] for name, value in values.items() if isinstance(value, dict) and "custom" in value
        }:
            were = ", ".join(f"{name} ({function})" for name, function in own.items())
            network = next((name for name in own if not _field(cls, name).metadata.get("choices")), None)
            itself = "" if network is None or len(own) > 1 else f"load(path, {network}=...), "
            what = f"{were} was a callable" if len(own) == 1 else f"{were} were callables"
            raise UsageError(
                f"{what} of your own; files hold data, never code: pass {'it' if len(own) == 1 else 'them'} again in "
                f"Python, {itself}load(path, config=...) or ddpg.resume(run, config=...)"
            )
        return cls(**values)


def _check_declarations(kind: type, inherited: Mapping[str, dataclasses.Field]) -> None:
    """Refuse declarations in a class of options that Python accepts, but that mean something else.

    Raises:
        UsageError: if an option replaces a method or property of the base class, such as ``discount``, or a new default
            of an inherited option has no type, so that the dataclass would ignore it.
    """
    typed = inspect.get_annotations(kind)
    for name in typed:
        if name not in inherited and any(hasattr(base, name) for base in kind.__bases__):
            raise UsageError(
                f"{kind.__name__} has an option {name!r}, and its base class uses this name for something else; give "
                "the option another name"
            )
    for name, value in vars(kind).items():
        if name in inherited and name not in typed:
            told = inspect.formatannotation(inherited[name].type)
            raise UsageError(
                f"{kind.__name__} sets {name} without a type, which would leave the option's default as it is; write "
                f"{name}: {told} = {brief(value)}"
            )


def _is_own(config: type) -> bool:
    """Return whether an options class is the user's own."""
    return not config.__module__.startswith("ddpg.")


def _refusing(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a class's ``__post_init__`` that raises a ``UsageError`` in place of any other exception."""

    @functools.wraps(check)
    def checked(self: Options) -> None:
        try:
            check(self)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"{type(self).__name__}: {format_error(error)}") from error

    return checked


@functools.cache
def _hints(config: type) -> dict[str, Any]:
    return typing.get_type_hints(config)


def field_type(config: type, name: str) -> tuple[type, bool, bool]:
    """Return a field's scalar type, whether it holds a tuple of these, and whether it may be None."""
    hint = _hints(config)[name]
    optional = False
    if isinstance(hint, types.UnionType):
        parts = typing.get_args(hint)
        optional = type(None) in parts
        hint = parts[0]
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True, optional
    return hint, False, optional


def non_string_types(config: type, name: str) -> tuple[type, ...]:
    """Return the non-string types that a choice field also accepts."""
    return tuple({*typing.get_args(_hints(config)[name])} - {str, type(None), ...})


def coerce(config: type, name: str, value: Any) -> Any:
    """Return ``value`` converted to the type of a field, if that loses nothing: 1 becomes 1.0, 64.0 becomes 64.

    msgspec is not used here: it knows neither NumPy's numbers, arrays and ranges nor unions with callables.

    Raises:
        UsageError: if it has another type.
    """
    kind, many, optional = field_type(config, name)
    if value is None and optional:
        return None
    if kind is str and not many and not isinstance(value, (int, float, types.NoneType)):
        return value  # a name, or the user's object: checked where it is used
    try:
        if many:
            return _items(kind, value, _max_items(config, name))
        if kind is bool and isinstance(value, bool):
            return value
        if kind in (int, float):
            return _number(kind, value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: infinity as an int
        pass
    described = f"a list of {kind.__name__} (at most {_max_items(config, name)} of them)" if many else kind.__name__
    if isinstance(value, float) and kind is float:
        described = "a finite number"
    described += " or an object of your own" * bool(kind is str and not many and non_string_types(config, name))
    hint = _list_hint(name, value) if many and kind is not str else ""
    raise UsageError(f"{name}={brief(value)} must be {described}{' or none' if optional else ''}{hint}")


def _list_hint(name: str, value: Any) -> str:
    """Return how to write a list of integers, for a user who wrote ``64,64`` or ``[64, 64]`` on the command line."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    text = " ".join(brief(part, quotes=False) for part in parts[:100])
    numbers = re.findall(r"\d+", text)
    if not numbers or re.sub(r"[\d\s,;x()\[\]-]", "", text):
        return ""
    flag, row = f"--{name.replace('_', '-')} {' '.join(numbers)}", ", ".join(numbers)
    return f"; write {name}=({row}{',' * (len(numbers) == 1)}) in Python, {flag}, or [{row}] in a TOML file"


def _number(kind: type, value: Any) -> Any:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or kind(value) != value:
        raise ValueError
    return kind(value)


def _max_items(config: type, name: str) -> int:
    return _field(config, name).metadata.get("max_items", MOST_ITEMS)


def _field(config: type, name: str) -> dataclasses.Field:
    return next(field for field in dataclasses.fields(config) if field.name == name)


def _expected_names(known: tuple[str, ...]) -> str:
    return f"one of {known}" if known else "a function, named module:name with --allow-import module"


def _arguments(config: type) -> dict[str, str]:
    """Return the arguments that the user's own callables must take, by option."""
    declared = {field.name: field.metadata.get("arguments") for field in dataclasses.fields(config)}
    return {name: arguments for name, arguments in declared.items() if arguments}


def _items(kind: type, values: Any, at_most: int) -> tuple[Any, ...]:
    """Return the items of an ordered iterable in their type, reading at most one more than allowed."""
    if isinstance(values, (str, bytes, bytearray, set, frozenset, Mapping)):
        raise TypeError
    given = itertools.islice(values, at_most + 1)
    items = tuple(item if kind is str and isinstance(item, str) else _number(kind, item) for item in given)
    if len(items) > at_most:
        raise ValueError
    return items


def check_known(config: type, values: Iterable[str], where: str, hints: Mapping[str, str] | None = None) -> None:
    """Refuse names that are no fields of an options class.

    Args:
        config, values: the class, and the names.
        where: the class or file, for the message.
        hints: advice on some names; ``None``: on the options of other algorithms' classes and of other packages.

    Raises:
        UsageError: if a name is no field.
    """
    if hints is None:
        hints = _options_of_others(config) | OPTIONS
    check_names([field.name for field in dataclasses.fields(config)], values, where, hints)


def _options_of_others(config: type) -> dict[str, str]:
    """Return advice on the options of classes that share a base class with ``config``, such as DQN's for DDPG."""
    bases = [base for base in config.__mro__ if issubclass(base, Options) and base is not Options]
    others = dict.fromkeys(other for base in bases for other in base.__subclasses__() if other not in bases)
    own = {field.name for field in dataclasses.fields(config)}
    return {
        field.name: f"it is an option of {other.__name__}"
        for other in reversed(others)
        for field in dataclasses.fields(other)
        if field.name not in own
    }


def check_names(names: Sequence[str], values: Iterable[str], where: str, hints: Mapping[str, str] = OPTIONS) -> None:
    """Refuse any of ``values`` that is not in ``names``, the fields of ``where``; ``hints`` advise on some.

    Raises:
        UsageError: if there is one; the message names it and ``where``, and suggests what may have been meant.
    """
    for name in values:
        if name not in names:
            near = did_you_mean(name, names, cutoff=0.6) or f"; fields: {', '.join(names)}"
            here = renamed(name, names)
            other = near if here is None else f"; it is {here!r} here{meaning_here(name)}"
            hint = f": {hints[name]}" if name in hints else other
            raise UsageError(f"{where} has no field {name!r}{hint}")


def from_toml(
    config: type, values: Mapping[str, Any], where: str, hints: Mapping[str, str] = OPTIONS | FILES
) -> dict[str, Any]:
    """Return the values of a TOML file converted to the types of an options class.

    TOML has no null: where a field may be None, the string ``"none"`` means that, as on the command line.

    Raises:
        UsageError: if a field is unknown (as :func:`check_known`), or a value has another type.
    """
    check_known(config, values, where, hints)
    found = {}
    for name, value in values.items():
        optional = field_type(config, name)[2]
        found[name] = None if optional and value == "none" else coerce(config, name, value)
    return found


def _jsonable(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return reference_of(value) or {"custom": getattr(value, "__qualname__", repr(value))}


def as_toml(values: Mapping[str, Any]) -> str:
    """Return JSON values as lines of TOML that :func:`from_toml` reads."""
    texts = {name: json.dumps("none" if value is None else value, ensure_ascii=False) for name, value in values.items()}
    return "".join(f"{name} = {text}\n" for name, text in texts.items())
