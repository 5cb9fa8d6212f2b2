"""Wrappers of environments that a run names: ``FlattenObservation``, ``FrameStackObservation(stack_size=4)``.

A run keeps their names and arguments as text in ``config.json``, from which evaluations, workers and resumed runs make
the same ones. So only wrappers are here whose state, if they have any, begins anew with each episode, and which leave
the sum of an episode's rewards as it is.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import wrappers as supplied

from ddpg.errors import UsageError, brief, did_you_mean, format_error
from ddpg.interaction import env_calls
from ddpg.interaction.action_mask import ActionMask, has_mask

WRAPPERS = (
    *("FlattenObservation", "TimeAwareObservation", "FilterObservation", "ReshapeObservation", "RescaleObservation"),
    *("DelayObservation", "FrameStackObservation", "GrayscaleObservation", "ResizeObservation"),
    *("MaxAndSkipObservation", "RepeatAction", "StickyAction", "DiscretizeAction", "AtariPreprocessing", "ActionMask"),
)
_LONGEST = 400  # characters of a name with its arguments
_WORDS = {"true": True, "false": False, "null": None}  # as JSON and TOML write them
_ADVICE = {
    "ClipAction": "is not needed: every action stays in its box; leave it out",
    "RescaleAction": "is not needed: agents act in [-1, 1], scaled to the box; leave it out",
    "NormalizeObservation": "is an option of the agent: --normalize-observations",
    "NormalizeReward": "is an option of the agent: --normalize-rewards",
    "ClipReward": "would change what evaluations report; the agent has options: --normalize-rewards, --rescale-rewards",
    "TimeLimit": "is an argument of the environment: --env-kwargs max_episode_steps=N",
}


class _Named(NamedTuple):
    """A wrapper by name, with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})


def check_wrappers(texts: Sequence[str]) -> None:
    """Refuse names and arguments from which :func:`wrapped` could not make wrappers.

    Raises:
        UsageError: if a text is no ``NAME`` or ``NAME(argument=value, ...)``, its name is not in :data:`WRAPPERS` or
            unknown to this version of gymnasium, or the wrapper does not take such arguments.
    """
    for text in texts:
        _class_and_arguments(text)


def wrapped(env: gym.Env, texts: Sequence[str]) -> gym.Env:
    """Return the environment in wrappers, the first of which is the innermost; it is closed if one does not fit.

    Raises:
        UsageError: as :func:`check_wrappers`, or if a wrapper does not fit what it would wrap.
        gymnasium.error.DependencyNotInstalled: if a wrapper needs a package that is not there, such as OpenCV.
    """
    for text in texts:
        make, name, bound = _class_and_arguments(text)
        if is_masked(env) and name == "TimeAwareObservation":
            bound.arguments.setdefault("flatten", False)  # the mask keeps its key until ActionMask reads it
        try:
            _check_fits(name, env)
            env = make(env, *bound.args[1:], **bound.kwargs)
        except (UsageError, gym.error.DependencyNotInstalled):
            env_calls.close_quietly(env)
            raise
        except Exception as error:  # for a space that does not fit gymnasium raises many types, AssertionError too
            env_calls.close_quietly(env)
            raise UsageError(f"wrapper {brief(text)} does not fit {env}: {format_error(error)}") from None
    return env


def _check_fits(name: str, env: gym.Env) -> None:
    """Refuse a wrapper that gymnasium would apply, but to observations for which it is not meant."""
    space = env.observation_space
    if isinstance(env, ActionMask):
        raise UsageError(f"wrapper {name!r} would move the mask that ActionMask appends; name ActionMask last")
    if name == "FlattenObservation" and is_masked(env):
        raise UsageError(
            f"wrapper {name!r} would mix the Dict's 'action_mask' with its other parts; leave it out: "
            "ActionMask flattens them, and puts the mask last"
        )
    if name == "RescaleObservation" and isinstance(space, gym.spaces.Box) and space.dtype.kind != "f":
        raise UsageError(
            f"wrapper {name!r} would round scaled observations to {space.dtype}, often to 0; leave it out: "
            "--network conv divides bytes by 255"
        )


def name_and_arguments(text: str) -> tuple[str, dict[str, Any]]:
    """Return a wrapper's name and all of its arguments by name, with gymnasium's defaults for those not given.

    Raises:
        UsageError: as :func:`check_wrappers`.
    """
    _, name, bound = _class_and_arguments(text)
    bound.apply_defaults()
    return name, dict([*bound.arguments.items()][1:])  # without the environment


def is_masked(env: gym.Env) -> bool:
    """Return whether observations are a Dict with a mask of discrete actions, which ActionMask flattens."""
    return has_mask(env.observation_space) and isinstance(env.action_space, gym.spaces.Discrete)


def is_wrapper(text: str) -> bool:
    """Return whether a word of a command line names a wrapper, with or without arguments."""
    return text.partition("(")[0] in WRAPPERS


def _class_and_arguments(text: str) -> tuple[Callable[..., gym.Env], str, inspect.BoundArguments]:
    """Return a wrapper's class, its name, and the arguments that the text gives, after a place for the environment."""
    named = _named(text)
    if named.name in _ADVICE:
        raise UsageError(f"wrapper {named.name!r} {_ADVICE[named.name]}")
    if named.name not in WRAPPERS:
        raise UsageError(
            f"wrapper {brief(named.name)} is not one of {', '.join(WRAPPERS)}{did_you_mean(named.name, WRAPPERS)}; "
            "for another one, register an environment that has it in a module of your own and name it module:Id"
        )
    made = ActionMask if named.name == "ActionMask" else getattr(supplied, named.name, None)
    if made is None:
        raise UsageError(f"wrapper {named.name!r} is not in gymnasium {gym.__version__}; install a newer version")
    signature = inspect.signature(made)
    try:
        return made, named.name, signature.bind(None, *named.args, **named.kwargs)
    except TypeError as error:
        parameters = [str(one) for one in [*signature.parameters.values()][1:]]
        takes = f"takes ({', '.join(parameters)})" if parameters else "takes no arguments"
        raise UsageError(f"wrapper {brief(text)}: {error}; {named.name} {takes}") from None


def _named(text: str) -> _Named:
    """Return the name and the arguments in a text, which are literals: nothing in it is run."""
    expected = f"wrapper {brief(text)} must be a name or NAME(argument=value, ...), such as FrameStackObservation(4)"
    if len(text) > _LONGEST:
        raise UsageError(f"{expected}, of at most {_LONGEST} characters")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UsageError(expected) from None
    if isinstance(node, ast.Name):
        return _Named(node.id)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise UsageError(expected)
    name, given = node.func.id, [(keyword.arg, keyword.value) for keyword in node.keywords]
    if None in dict(given) or any(isinstance(one, ast.Starred) for one in node.args):
        raise UsageError(expected)
    try:
        return _Named(name, tuple(map(_value, node.args)), {str(key): _value(value) for key, value in given})
    except (ValueError, TypeError, MemoryError, RecursionError):
        values = "numbers, texts in quotes, True, False, None and lists of them"
        raise UsageError(f"{expected}; values are {values}") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    value = ast.literal_eval(node)
    return tuple(value) if isinstance(value, list) else value  # gymnasium joins shapes to tuples
