"""One dataclass per algorithm is the schema of a training run for Python, TOML files and command-line flags."""

import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpg.acting.noise import NOISES
from ddpg.acting.schedules import SCHEDULES
from ddpg.errors import UsageError, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from typing_extensions import Self

    from ddpg.gradients.bounding import Bounding
else:
    Bounding = tuple  # what it is; its module would import TensorFlow


ON_BAD_TRANSITION = ("raise", "drop")
OPTIMIZERS = ("adam", "rmsprop", "sgd", "momentum")
TARGETS = ("ema", "online")


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """What DDPG and DQN have in common.

    Every field is a flag of ``ddpg train`` (``--batch-size 64``) and a key of a TOML file
    (``batch_size = 64``). Fields that take a name also take a callable of one's own, in Python.

    Raises:
        UsageError: a value of the wrong type or outside its range.
    """

    hidden: tuple[int, ...] = _option((256, 256), "units of the hidden layers")
    activation: str = _option("relu", "activation of the hidden layers")
    norm: str | None = _option(None, "normalisation of the hidden layers: batch, layer or none")
    gamma: float = _option(0.99, "discount factor")
    tau: float = _option(0.005, "step of the target networks, in (0, 1]")
    learning_rate_schedule: str | Callable = _option(
        "constant", "constant; linear: down to 0 at the end of learning; cooldown: the same within its last fifth"
    )
    batch_size: int = _option(256, "transitions in a minibatch")
    buffer_size: int = _option(1_000_000, "transitions the replay memory holds")
    learning_starts: int = _option(1_000, "steps of uniform random actions before learning")
    updates_per_step: float = _option(1.0, "gradient updates per environment step")
    updates_per_call: int = _option(32, "gradient updates fused into one compiled call")
    exploration_steps: int = _option(10_000, "environment steps from the initial to the final share of random actions")
    td_target: str | Callable = _option(
        "stop_gradient", "stop_gradient, placeholder, output_delta or residual_gradient"
    )
    clip_delta: float | None = _option(None, "output_delta: largest magnitude of target minus prediction, or none")
    rescale_rewards: bool = _option(False, "divide rewards by the largest one seen (at least 1), as DQN 3.0")
    target: str = _option(
        "ema", "networks of the bootstrapped target: ema, their moving averages; online: themselves, as they are"
    )
    optimizer: str | Callable = _option("adam", "adam, rmsprop, sgd or momentum (0.9)")
    on_bad_transition: str = _option(
        "raise", "what no environment may return, such as NaN: raise; or drop it and abandon the episode"
    )
    step_timeout: float | None = _option(
        None, "seconds for a step of a vector whose environments are processes of their own, or none"
    )
    jit: bool = _option(True, "compile the updates with XLA")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _coerced(type(self), field.name, getattr(self, field.name)))
        self._check(bool(self.hidden) and min(self.hidden) >= 1, "hidden", "layers of at least 1 unit")
        self._check(0 <= self.gamma <= 1, "gamma", "in [0, 1]")
        self._check(0 < self.tau <= 1, "tau", "in (0, 1]")
        self._check_positive("updates_per_step")
        for name in ("batch_size", "buffer_size", "updates_per_call"):
            self._check(getattr(self, name) >= 1, name, "at least 1")
        self._check(self.learning_starts >= 0, "learning_starts", "at least 0")
        self._check(self.exploration_steps >= 1, "exploration_steps", "at least 1")
        self._check_name("target", TARGETS)
        self._check_name("on_bad_transition", ON_BAD_TRANSITION)
        if self.step_timeout is not None:
            self._check_positive("step_timeout")
        if not callable(self.optimizer):
            self._check_name("optimizer", OPTIMIZERS)
        if not callable(self.learning_rate_schedule):
            self._check_name("learning_rate_schedule", tuple(SCHEDULES))
        if self.td_target == "placeholder" and (self.jit or self.updates_per_call != 1):
            raise UsageError(
                "td_target='placeholder' cannot be fused: its target is fed from a session run of its own in the "
                "middle of every update; set jit=False and updates_per_call=1 (--no-jit --updates-per-call 1), or "
                "use 'stop_gradient', whose gradient is the same"
            )

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


@dataclasses.dataclass(frozen=True)
class DDPGConfig(AgentConfig):
    """Options of :class:`ddpg.DDPG`. Actions, their noise and their gradients are in units of [-1, 1]."""

    action_layer: int = _option(0, "hidden layer where the action enters the critic; 1 is the paper's")
    actor_learning_rate: float = _option(1e-3, "step size of the actor's optimiser")
    critic_learning_rate: float = _option(1e-3, "step size of the critic's optimiser")
    noise: str = _option("gaussian", f"exploration noise: {' or '.join(NOISES)}")
    noise_scale: float = _option(0.1, "its scale, in half-ranges of the action box")
    noise_theta: float = _option(0.15, "Ornstein-Uhlenbeck: pull towards 0 per unit of time")
    noise_dt: float = _option(1.0, "Ornstein-Uhlenbeck: time per step")
    exploration_initial: float | None = _option(
        None, "share of uniform random actions at the start; none: 1 where actions are parameterised, else 0"
    )
    exploration_final: float | None = _option(
        None, "share of uniform random actions in the end; none: 0.1 where actions are parameterised, else 0"
    )
    bounding: str | Bounding = _option("squashing", "squashing, inverting or zeroing")
    policy_gradient: str | Callable = _option("chain_rule", "chain_rule, direct or surrogate")
    action_gradient_clip: float | None = _option(None, "largest norm of each sample's action gradient, or none")

    def __post_init__(self):
        super().__post_init__()
        self._check_positive("actor_learning_rate", "critic_learning_rate")
        self._check_name("noise", NOISES)
        self._check_positive("noise_dt")
        for name in ("noise_scale", "noise_theta"):
            self._check(0 <= getattr(self, name) < np.inf, name, "a finite number >= 0")
        self._check_shares("exploration_initial", "exploration_final")


@dataclasses.dataclass(frozen=True)
class DQNConfig(AgentConfig):
    """Options of :class:`ddpg.DQN`."""

    learning_rate: float = _option(1e-3, "step size of the Q-network's optimiser")
    double_q: bool = _option(False, "choose the next action online, value it with the target (van Hasselt 2016)")
    target_update_interval: int = _option(0, "updates between hard copies of the target; 0: EMA with tau")
    exploration_initial: float = _option(1.0, "share of random actions at the start")
    exploration_final: float = _option(0.05, "share of random actions in the end")
    network: str = _option("mlp", "mlp, or conv for images")

    def __post_init__(self):
        super().__post_init__()
        self._check_positive("learning_rate")
        self._check(self.target_update_interval >= 0, "target_update_interval", "at least 0")
        if self.target == "online" and self.target_update_interval:
            raise UsageError(
                f"target_update_interval={self.target_update_interval} copies into a target network, and "
                "target='online' has none; set one of the two"
            )
        self._check_shares("exploration_initial", "exploration_final")
        self._check_name("network", ("mlp", "conv"))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the fields set in a TOML file.

    Raises:
        UsageError: no such file, one that cannot be read, or not TOML.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no configuration file {str(path)!r}; give the path of a TOML file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    return values


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
