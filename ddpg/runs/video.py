"""Watching a policy: its episodes as pictures, into a file or a window."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.experience.env_calls import call, close_quietly
from ddpg.experience.faults import name_of, said
from ddpg.experience.reading import AsReturned
from ddpg.experience.stepping import make_stepper
from ddpg.runs.environments import make_env
from ddpg.runs.evaluation import apart_from_learning, asked_for
from ddpg.runs.pictures import Gif, Pictures, Video, Window
from ddpg.validation import validate_path

SUFFIXES = {".gif": Gif, ".mp4": Video}

_MODES = ("rgb_array_list", "rgb_array")  # the first where there is one: every picture since it was last asked
_DRAWS = (
    "to be drawn its class has metadata = {'render_modes': ['rgb_array']}, its constructor takes render_mode and keeps "
    "it as self.render_mode, and its render() returns the picture, uint8 [H, W, 3]"
)


def drawn_env(env_id: str, wrappers: Sequence[str] = ()) -> gym.Env:
    """Return an environment that draws, substeps too where it has them.

    Raises:
        UsageError: as :func:`~ddpg.runs.environments.make_env`, or its metadata name no mode that draws.
        EnvironmentFault: it cannot be made with the mode that they name.
    """
    plain = make_env(env_id, wrappers)
    metadata = plain.metadata
    close_quietly(plain)
    modes = (metadata.get("render_modes") if isinstance(metadata, dict) else None) or ()
    mode = next((mode for mode in _MODES if mode in modes), None)
    if mode is None:
        raise UsageError(f"environment {brief(env_id)} does not draw: its render_modes are {list(modes)}; {_DRAWS}")
    try:
        return make_env(env_id, wrappers, render_mode=mode)
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{error}; without render_mode it could be made: {_DRAWS}") from error


def record(policy: Any, env: gym.Env, path: str | Path, *, episodes: int = 1, seed: int | None = None) -> Path:
    """Record episodes of a policy, without exploration noise.

    Args:
        policy: anything with Stable-Baselines3's ``predict(observation, deterministic=) -> (action, state)``.
        env: made with ``render_mode="rgb_array"`` or, for the substeps of our own ones, ``"rgb_array_list"``.
        path: a ``.gif``, at most 480 pixels wide and 600 pictures long, or an ``.mp4``; an older file is replaced.
        episodes: how many, one after the other.
        seed: of the first reset; the later ones go on from it.

    Returns:
        The path.

    Raises:
        UsageError: an environment that does not draw, another suffix, a seed below 0, or a package that is missing.
        EnvironmentFault: the environment raised, returned what it may not, or drew something else than pictures.
    """
    path = validate_path(path)
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"{brief(str(path))} ends in {brief(path.suffix)}; expected {' or '.join(SUFFIXES)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"{brief(str(path))} is no place for a file; name one in a directory that exists")
    with kind(path, _rate(env)) as pictures:
        _show(policy, env, episodes, seed, pictures)
    return path


def watch(policy: Any, env: gym.Env, *, episodes: int = 1, seed: int | None = None, title: str = "ddpg") -> None:
    """Show episodes of a policy in a window, at the environment's speed; closing it ends them.

    Args:
        policy, env, episodes, seed: as for :func:`record`.
        title: the window's.

    Raises:
        UsageError, EnvironmentFault: as for :func:`record`, and where there is no display.
    """
    with Window(title, _rate(env)) as window:
        _show(policy, env, episodes, seed, window)


def _show(policy: Any, env: gym.Env, episodes: int, seed: int | None, pictures: Pictures) -> None:
    episodes, seed = asked_for(policy, episodes, seed)
    taken = False
    with apart_from_learning(policy, env):
        for picture in _pictures(policy, env, episodes, seed):
            taken = True
            if not pictures.add(picture):
                return
    if not taken:
        raise EnvironmentFault(f"environment {name_of(env)} drew no picture in whole episodes; {_DRAWS}")


def _pictures(policy: Any, env: gym.Env, episodes: int, seed: int | None) -> Iterator[np.ndarray]:
    """Yield what the environment draws of whole episodes, uint8 ``[H, W, 3]``."""
    stepper = make_stepper(env, seed, AsReturned(env.observation_space, 1))
    for _ in range(episodes):
        observation = stepper.observations
        yield from _drawn(env)
        over = False
        while not over:
            action, _ = policy.predict(observation, deterministic=True)
            over = bool(stepper.step(action).episodes)
            yield from _drawn(env)
            if not over:
                observation = stepper.observations


def _drawn(env: gym.Env) -> list[np.ndarray]:
    frames: Any = call(env.render, fault=lambda error: _not_drawn(env, error))
    frames = frames if isinstance(frames, list) else [frames]
    for frame in frames:
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and _is_picture(frame.shape)):
            what = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else repr(frame)[:80]
            raise EnvironmentFault(f"environment {name_of(env)} drew {what}, no picture; {_DRAWS}")
    return frames


def _not_drawn(env: gym.Env, error: BaseException) -> UsageError:
    if not isinstance(error, Exception):
        return EnvironmentFault(f"environment {name_of(env)} failed in render: {said(error)}")
    if isinstance(error, gym.error.DependencyNotInstalled):  # whatever a graphics library raises where it cannot draw
        hint = "install the extra 'video'"
    elif isinstance(error, NotImplementedError):
        hint = _DRAWS
    else:
        hint = "without a display MuJoCo draws with MUJOCO_GL=egl or MUJOCO_GL=osmesa"
    return UsageError(f"environment {name_of(env)} cannot be drawn here ({said(error)}); {hint}")


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 not in shape


def _rate(env: gym.Env) -> float:
    """Return how many pictures of an environment are a second."""
    if not isinstance(env, gym.Env):
        raise UsageError(
            f"env={brief(env)} is no gymnasium Env; make one with gymnasium.make(ID, render_mode='rgb_array')"
        )
    if env.render_mode not in _MODES:
        raise UsageError(
            f"environment {name_of(env)} has render_mode={env.render_mode!r}; make it with render_mode='rgb_array' or "
            "'rgb_array_list', which its constructor keeps as self.render_mode"
        )
    rate = env.metadata.get("render_fps") or 30
    if not isinstance(rate, (int, float, np.number)) or not 0 < rate < math.inf:
        raise UsageError(
            f"environment {name_of(env)} has metadata['render_fps']={brief(rate)}; expected pictures a second, above 0"
        )
    return float(rate)
