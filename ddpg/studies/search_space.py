"""Read and check the search space of a tuning: a range or a list of choices for each varied option."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents import resource_limits
from ddpg.config.algorithm_options import CONFIGS, AgentConfig
from ddpg.config.options import check_names, coerce, field_type
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError, located
from ddpg.interaction.actions import make_actions
from ddpg.interaction.env_calls import check_timeout
from ddpg.interaction.spaces import algorithm_for, check_observation_space
from ddpg.replay.hindsight import check_goals
from ddpg.runs.curves import used_options

_FOLDER = Path(__file__).parent / "spaces"
_SHAPES = (
    "a list of choices, or a range, { low = ..., high = ... }, to which log = true may be added; with extend = true in "
    "the file also false, which leaves the option out"
)
# What a search space cannot vary, and the flag of ``ddpg tune`` that sets it.
_FLAGS = {
    "seed": "--seeds is the number of seeds per trial, and --tuning-seed that of the search",
    "total_timesteps": "give --total-timesteps, the steps of every trial",
    "evaluation_interval": "give --evaluation-interval",
    "evaluation_episodes": "give --evaluation-episodes",
}


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included.

    Attributes:
        low, high: the ends, in the option's unit.
        log: whether to sample uniformly in the logarithm.
        whole: whether values are integers.
    """

    low: float
    high: float
    log: bool
    whole: bool

    @property
    def checked_values(self) -> list[Any]:
        """The values to check before the tuning starts: both ends of the range."""
        return [self.low, self.high]

    @property
    def as_json(self) -> Any:
        """The range in the form of TOML and JSON."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def to_stored(self, value: Any) -> Any:
        """Return a value as it is stored in a trial, or ``None`` if it is outside the range."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value if number and self.low <= value <= self.high else None

    def value(self, stored: Any) -> Any:
        """Return the option's value for a value stored in a trial.

        Raises:
            ValueError: if it is outside the range.
        """
        if self.to_stored(stored) is None:
            raise ValueError(f"{stored!r} is not within {self.low} and {self.high}")
        return int(stored) if self.whole else float(stored)


@dataclasses.dataclass(frozen=True)
class Choices:
    """Distinct, unordered values of an option, in the form of JSON."""

    checked_values: list[Any]

    @property
    def as_json(self) -> Any:
        """The choices in the form of JSON."""
        return self.checked_values

    def to_stored(self, value: Any) -> Any:
        """Return a value as it is stored in a trial, as JSON text, or ``None`` if it is not one of the choices."""
        return json.dumps(value) if value in self.checked_values else None

    def value(self, stored: Any) -> Any:
        """Return the option's value for a value stored in a trial.

        Raises:
            ValueError: if it is not one of the choices.
        """
        found = [value for value in self.checked_values if json.dumps(value) == stored]
        if not found:
            raise ValueError(f"{stored!r} is none of {', '.join(map(json.dumps, self.checked_values))}")
        return found[0]


Space = dict[str, Range | Choices]
Check = Callable[[AgentConfig], None]


def accept_all(config: AgentConfig) -> None:
    """Refuse no options."""


def training_check(env: gym.Env, total_timesteps: int, here: bool = True, in_processes: bool = False) -> Check:
    """Return a function that refuses, with a ``UsageError``, options with which no run in an environment can begin.

    Args:
        env: the environment; it may be closed.
        total_timesteps: the steps of a run.
        here: whether runs are trained on this machine, into whose memory they must fit.
        in_processes: whether runs step environments in processes of their own, which ``step_timeout`` needs.

    Raises:
        UsageError: if agents cannot learn from the environment's observations, or act in its action space.
    """
    spaces = check_observation_space(env.observation_space), env.action_space
    if algorithm_for(env.action_space) == "DDPG":
        make_actions(env.action_space)

    def check(config: AgentConfig) -> None:
        if config.hindsight:
            check_goals(env, config.hindsight)
        if not in_processes:
            check_timeout(env, config.step_timeout)
        resource_limits.check_counts(config)
        if here:
            resource_limits.check_memory(config, spaces, total_timesteps)

    return check


def read_space(
    algorithm: str, base: Mapping[str, Any], path: str | Path | None = None, check: Check = accept_all
) -> Space:
    """Read and check a search space.

    Args:
        algorithm: the algorithm's name.
        base: the base configuration: all options as JSON values.
        path: a TOML file that replaces the default space ``ddpg/studies/spaces/ALGORITHM.toml``, or changes it if it
            has ``extend = true``; ``None``: the default space.
        check: raises ``UsageError`` for options with which no run can begin, as from :func:`training_check`.

    Raises:
        UsageError: if an option is unknown, a range or list is malformed, or a value is invalid, or refused by
            ``check``, whatever values the other options have.
    """
    kind = CONFIGS[algorithm]
    default = _FOLDER / f"{_supplied_algorithm(kind).lower()}.toml"
    values: dict[str, Any] = {"extend": True} if path is None else read_toml(path)
    where = str(default if path is None else path)
    extend = values.pop("extend", False)
    with located(where):
        if not isinstance(extend, bool):
            raise UsageError(f"extend={extend!r} must be true or false")
        table, names = read_toml(default) if extend else {}, [field.name for field in dataclasses.fields(kind)]
        for name in _FLAGS.keys() & values.keys() - {*names}:
            raise UsageError(f"{name} is no option to vary; {_FLAGS[name]}")
        check_names(names, table | values, kind.__name__)
        own = {name: _field(kind, name, value) for name, value in values.items() if not (extend and value is False)}
    usual = {name: _field(kind, name, value) for name, value in table.items() if name not in values}
    found = _restrict_to_base(algorithm, base, usual | own, usual) | own
    space = {name: found[name] for name in (*table, *own) if name in found}
    if not space:
        raise UsageError(
            f"{where} varies nothing; give options, such as tau = {{ low = 0.001, high = 0.05, log = true }}"
        )
    if not own and (why := _refusal_reason(algorithm, base, space, {}, check)):
        raise UsageError(why)
    for name, field in own.items():
        for value in field.checked_values:
            if why := _refusal_reason(algorithm, base, space, {name: value}, check):
                raise UsageError(f"{where}: {name} cannot be {value!r} here: {why}")
    return space


def _supplied_algorithm(kind: type) -> str:
    """Return the built-in algorithm whose options, and so whose default space, ``kind`` has or inherits."""
    return next((name for name, config in CONFIGS.items() if issubclass(kind, config) and ":" not in name), "DDPG")


def _field(kind: type, name: str, value: Any) -> Range | Choices:
    """Return the range or the choices of one option from its TOML value."""
    scalar, many, optional = field_type(kind, name)
    if isinstance(value, dict):
        check_names(["low", "high", "log"], value, name)
        if many or scalar not in (int, float):
            raise UsageError(f"{name} is no number, and takes no range; give a list of choices")
        return _range(kind, name, value)
    if not isinstance(value, list):
        raise UsageError(f"{name}={value!r} must be {_SHAPES}")
    if many and (flat := [one for one in value if not isinstance(one, list) and one != "none"]):
        raise UsageError(
            f"{name}={value!r} has the choice {flat[0]!r}, and each choice is a list; give one as [{value!r}]"
        )
    choices = [None if optional and one == "none" else _coerced(kind, name, one) for one in value]
    if not choices or any(choices.count(one) > 1 for one in choices):
        raise UsageError(f"{name}={value!r} must be at least one choice, and different ones")
    return Choices(choices)


def _range(kind: type, name: str, value: dict[str, Any]) -> Range:
    log = value.get("log", False)
    if not isinstance(log, bool):
        raise UsageError(f"log={log!r} of {name} must be true or false")
    for end in ("low", "high"):
        if end not in value:
            raise UsageError(f"{name} is a range without {end}; give low and high")
    low, high = (_coerced(kind, name, value[end]) for end in ("low", "high"))
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"{name} goes from low={low} to high={high}; low must be below high, both finite")
    if log and low <= 0:
        raise UsageError(f"{name} has low={low}, and no logarithm; give a low above 0, or log = false")
    return Range(low, high, log, field_type(kind, name)[0] is int)


def _coerced(kind: type, name: str, value: Any) -> Any:
    """Return a value converted to an option's type, in the form of JSON."""
    found = coerce(kind, name, value)
    return [*found] if isinstance(found, tuple) else found


def _restrict_to_base(algorithm: str, base: Mapping[str, Any], space: Space, usual: Space) -> Space:
    """Return the default space without the options and values that the base configuration rejects or does not use.

    Choices always include the base configuration's own value, so that this configuration can be a trial.
    """
    found: Space = {}
    used, reads_tau = used_options(base), base["target"] == "ema" and not base.get("target_update_interval")
    for name, field in usual.items():
        if name not in used or (name == "tau" and not reads_tau):
            continue
        allowed = [
            value for value in field.checked_values if not _refusal_reason(algorithm, base, space, {name: value})
        ]
        if isinstance(field, Choices):
            allowed += [base[name]] if base[name] not in allowed else []
            field = Choices(allowed)
        if len(allowed) > 1:
            found[name] = field
    return found


def _refusal_reason(
    algorithm: str, base: Mapping[str, Any], space: Space, changes: Mapping[str, Any], check: Check = accept_all
) -> str:
    """Return the reason why the base configuration cannot have ``changes``, or the empty string if it can.

    They are acceptable if ``check`` accepts the base configuration with them, or with them and another option changed.
    The returned reason is that without the other option.
    """
    why = ""
    for beside in _alternatives(space, changes):
        try:
            check(CONFIGS[algorithm].from_json({**base, **beside, **changes}))
            return ""
        except UsageError as error:
            why = why or str(error)
    return why


def _alternatives(space: Space, changes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    others = ((name, value) for name, field in space.items() if name not in changes for value in field.checked_values)
    return itertools.chain([{}], ({name: value} for name, value in others))
