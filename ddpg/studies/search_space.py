"""The search space of tuning: a range or a list of choices per option."""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.options import check_names, coerce, field_type
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError

_FOLDER = Path(__file__).parent / "spaces"
_SHAPES = "a list of choices, { low = ..., high = ... }, that with log = true, or, beside extend = true, false"


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between ``low`` and ``high``, both of them in it.

    Attributes:
        low, high: in the option's unit.
        log: whether their logarithm is drawn evenly.
        whole: whether they are whole numbers.
    """

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def tried(self) -> list[Any]:
        """The values that are checked before anything starts: the ends."""
        return [self.low, self.high]

    @property
    def told(self) -> Any:
        """The range as TOML and JSON say it."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def kept(self, value: Any) -> Any:
        """Return how a value is kept among trials; ``None``: it is not in the range."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if number and self.low <= value <= self.high else None

    def value(self, kept: Any) -> Any:
        """Return the value of one that was kept.

        Raises:
            ValueError: it is none of this range.
        """
        if self.kept(kept) is None:
            raise ValueError(f"{kept!r} is not within {self.low} and {self.high}")
        return int(kept) if self.whole else float(kept)


@dataclasses.dataclass(frozen=True)
class Choices:
    """Different values of an option, as JSON has them; none of them is nearer to one than to another."""

    tried: list[Any]

    @property
    def told(self) -> Any:
        """The choices as JSON says them."""
        return self.tried

    def kept(self, value: Any) -> Any:
        """Return how a value is kept among trials, as JSON; ``None``: it is no choice."""
        return json.dumps(value) if value in self.tried else None

    def value(self, kept: Any) -> Any:
        """Return the value of one that was kept.

        Raises:
            ValueError: it is no choice of these.
        """
        found = [value for value in self.tried if json.dumps(value) == kept]
        if not found:
            raise ValueError(f"{kept!r} is none of {', '.join(map(json.dumps, self.tried))}")
        return found[0]


Space = dict[str, Range | Choices]


def read_space(algorithm: str, ground: Mapping[str, Any], path: str | Path | None = None) -> Space:
    """Return what is varied, everything checked.

    Args:
        algorithm: whose options these are.
        ground: all of its options as JSON values, which are varied.
        path: a TOML file, which takes the place of ``ddpg/studies/spaces/ALGORITHM.toml``, or changes it where it says
            ``extend = true``; ``None``: that file.

    Raises:
        UsageError: an unknown option, a range or a choice that is none, or one that nothing in this space takes.
    """
    kind, default = CONFIGS[algorithm], _FOLDER / f"{algorithm.lower()}.toml"
    values: dict[str, Any] = {"extend": True} if path is None else read_toml(path)
    where = str(default if path is None else path)
    extend = values.pop("extend", False)
    if not isinstance(extend, bool):
        raise UsageError(f"{where}: extend={extend!r} must be true or false")
    table = read_toml(default) if extend else {}
    check_names([field.name for field in dataclasses.fields(kind)], table | values, f"{where}: {kind.__name__}")
    usual = {name: _field(kind, name, value, str(default)) for name, value in table.items() if name not in values}
    own = {name: _field(kind, name, v, where) for name, v in values.items() if not (extend and v is False)}
    found = _fitting(algorithm, ground, usual | own, usual) | own
    space = {name: found[name] for name in (*table, *own) if name in found}
    if not space:
        raise UsageError(
            f"{where} varies nothing; give options, such as tau = {{ low = 0.001, high = 0.05, log = true }}"
        )
    for name, field in own.items():
        for value in field.tried:
            if why := _refusal(algorithm, ground, space, name, value):
                raise UsageError(f"{where}: {name} cannot be {value!r} here: {why}")
    return space


def config_of(algorithm: str, ground: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, as JSON values, of the ground with changes.

    Raises:
        UsageError: they cannot be together; says why.
    """
    return CONFIGS[algorithm].from_json({**ground, **changes}).to_json()


def _field(kind: type, name: str, value: Any, where: str) -> Range | Choices:
    """Return what a TOML file says of one option."""
    scalar, many, optional = field_type(kind, name)
    if isinstance(value, dict):
        check_names(["low", "high", "log"], value, f"{where}: {name}")
        if many or scalar not in (int, float):
            raise UsageError(f"{where}: {name} is no number, and takes no range; give a list of choices")
        return _range(kind, name, value, where)
    if not isinstance(value, list):
        raise UsageError(f"{where}: {name}={value!r} must be {_SHAPES}")
    choices = [None if optional and one == "none" else _coerced(kind, name, one, where) for one in value]
    if not choices or any(choices.count(one) > 1 for one in choices):
        raise UsageError(f"{where}: {name}={value!r} must be at least one choice, and different ones")
    return Choices(choices)


def _range(kind: type, name: str, value: dict[str, Any], where: str) -> Range:
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise UsageError(f"{where}: log={log!r} of {name} must be true or false")
    for end in ("low", "high"):
        if end not in value:
            raise UsageError(f"{where}: {name} is a range without {end}; give low and high")
    low, high = (_coerced(kind, name, value[end], where) for end in ("low", "high"))
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"{where}: {name} goes from low={low} to high={high}; low must be below high, both finite")
    if log and low <= 0:
        raise UsageError(f"{where}: {name} has low={low}, and no logarithm; give a low above 0, or log = false")
    return Range(low, high, log, field_type(kind, name)[0] is int)


def _coerced(kind: type, name: str, value: Any, where: str) -> Any:
    """Return a value in an option's type, as JSON has it."""
    try:
        found = coerce(kind, name, value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return [*found] if isinstance(found, tuple) else found


def _fitting(algorithm: str, ground: Mapping[str, Any], space: Space, usual: Space) -> Space:
    """Return of the package's own table what fits the ground: what that refuses or does not read is left out.

    The ground's own value is one of the choices, so that the ground can be a trial.
    """
    found: Space = {}
    reads_tau = ground["target"] == "ema" and not ground.get("target_update_interval")
    for name, field in usual.items():
        if name == "tau" and not reads_tau:
            continue
        allowed = [value for value in field.tried if not _refusal(algorithm, ground, space, name, value)]
        if isinstance(field, Choices):
            allowed += [ground[name]] if ground[name] not in allowed else []
            field = Choices(allowed)
        if len(allowed) > 1:
            found[name] = field
    return found


def _refusal(algorithm: str, ground: Mapping[str, Any], space: Space, name: str, value: Any) -> str:
    """Return why a value is refused on the ground and beside any one value of another option; nothing where it is not.

    The reason is the one on the ground.
    """
    why = ""
    for beside in _beside(space, name):
        try:
            config_of(algorithm, ground, {**beside, name: value})
            return ""
        except UsageError as error:
            why = why or str(error)
    return why


def _beside(space: Space, name: str) -> Iterator[dict[str, Any]]:
    others = ((other, value) for other, field in space.items() if other != name for value in field.tried)
    return itertools.chain([{}], ({other: value} for other, value in others))
