"""Render the episodes of a policy in this process, and refuse environments that do not draw."""

import contextlib
import functools
import math
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief, format_error
from ddpg.interaction import env_calls
from ddpg.interaction.env_calls import env_name
from ddpg.interaction.env_runner import make_stepper
from ddpg.interaction.transitions import ObservationReader
from ddpg.progress import print_to_stderr
from ddpg.runs.env_factory import make_env
from ddpg.runs.env_source import EnvSource
from ddpg.runs.evaluation import pausing_learning

LONG_EPISODE = 10_000  # steps; after as many, an episode without a time limit is told of

_MODES = ("rgb_array_list", "rgb_array")  # in order of preference: a list has every frame since the last render()
_SLOWEST = 0.01  # frames per second: ffmpeg gets the rate with two decimals
_DRAWS = (
    "to be drawn its class has metadata = {'render_modes': ['rgb_array']}, its constructor takes render_mode and keeps "
    "it as self.render_mode, and its render() returns the picture, uint8 [H, W, 3]"
)


def rendering_env(source: EnvSource | str) -> gym.Env:
    """Return an environment that renders frames, including substeps if it supports ``rgb_array_list``.

    Raises:
        UsageError: as :func:`~ddpg.runs.env_factory.make_env`, or if its metadata name no supported render mode.
        EnvironmentFault: if it cannot be made with the render mode that its metadata name.
    """
    source = EnvSource.of(source)
    plain = make_env(source)
    metadata, camera = plain.metadata, _tracking_camera(plain)
    env_calls.close_quietly(plain)
    modes = (metadata.get("render_modes") if isinstance(metadata, dict) else None) or ()
    mode = next((mode for mode in _MODES if mode in modes), None)
    if mode is None:
        raise UsageError(
            f"environment {brief(source.env_id)} does not draw: its render_modes are {list(modes)}; {_DRAWS}"
        )
    if camera:
        with contextlib.suppress(EnvironmentFault):  # a custom subclass may not accept camera_name
            return make_env(source, render_mode=mode, **camera)
    try:
        return make_env(source, render_mode=mode)
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{error}; without render_mode it could be made: {_DRAWS}") from error


def _tracking_camera(env: gym.Env) -> dict[str, str]:
    """Return the keyword that gives a gymnasium MuJoCo environment a camera that follows the body, if it has one.

    gymnasium 1.4 renders from a fixed camera by default, so a running cheetah leaves the frame.
    """
    inner = env.unwrapped
    if not any(kind.__module__ == "gymnasium.envs.mujoco.mujoco_env" for kind in type(inner).__mro__):
        return {}
    try:
        inner.model.camera("track")  # type: ignore[attr-defined] # MuJoCo environments have a model
    except KeyError:
        return {}
    return {"camera_name": "track"}


class EnvRenderer:
    """An environment that is stepped and rendered in this process.

    Attributes:
        spaces: its observation and action space.
        action_space: its action space.
        rate: frames per second.

    Args:
        env: an environment with render mode ``"rgb_array"`` or ``"rgb_array_list"``.

    Raises:
        UsageError: if it has another render mode, or rendering it would crash this process.
    """

    def __init__(self, env: gym.Env):
        self.rate = _rate(env)
        _check_graphics_library(env)
        self.spaces = env.observation_space, env.action_space
        self.action_space: gym.Space | str = env.action_space
        self._env = env

    def frames(self, policy: Any, episodes: int, seed: int | None) -> Generator[np.ndarray, None, None]:
        """Yield the frames of whole episodes, uint8 ``[H, W, 3]``; arguments as for :func:`ddpg.record`.

        Raises:
            UsageError, EnvironmentFault: as :func:`ddpg.record`.
        """
        taken = False
        with pausing_learning(policy, self._env):
            for frame in _frames(policy, self._env, episodes, seed):
                taken = True
                yield frame
        if not taken:
            raise EnvironmentFault(f"environment {env_name(self._env)} drew no picture in whole episodes; {_DRAWS}")


def _check_graphics_library(env: gym.Env) -> None:
    """Refuse to render with MuJoCo if its graphics library and TensorFlow crash when they share a process."""
    library = os.environ.get("MUJOCO_GL", "").lower()
    of_mujoco = any("mujoco" in kind.__module__ for kind in type(env.unwrapped).__mro__)
    both_loaded = of_mujoco and "tensorflow" in sys.modules
    if both_loaded and library in ("egl", "osmesa") and _crashes_beside_tensorflow(library):
        raise UsageError(
            f"environment {env_name(env)} cannot be drawn in this process: MUJOCO_GL={library} crashes beside "
            f"TensorFlow; give its id, as in ddpg.record(policy, {env_name(env)!r}, path), and another process draws it"
        )


@functools.cache
def _crashes_beside_tensorflow(library: str) -> bool:
    """Return whether a process that imports TensorFlow and then renders with MuJoCo is ended by a signal."""
    draw = "mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
    process = subprocess.run(
        [sys.executable, "-c", f"import tensorflow, mujoco; {draw}"],
        env={**os.environ, "MUJOCO_GL": library},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return process.returncode < 0


def _frames(policy: Any, env: gym.Env, episodes: int, seed: int | None) -> Iterator[np.ndarray]:
    """Yield the frames of whole episodes, uint8 ``[H, W, 3]``."""
    stepper = make_stepper(env, seed, ObservationReader(env.observation_space, 1, copies=False))
    for _ in range(episodes):
        observation = stepper.observations
        yield from _render(env)
        over, steps = False, 0
        while not over:
            if (steps := steps + 1) == LONG_EPISODE and getattr(env.spec, "max_episode_steps", None) is None:
                print_to_stderr(
                    f"an episode of {env_name(env)} has taken {steps:,} steps so far, without a time limit: if it does "
                    "not end by itself, stop this (Ctrl-C) and give the environment one, gymnasium.register(..., "
                    "max_episode_steps=...)"
                )
            action, _ = policy.predict(observation, deterministic=True)
            over = bool(stepper.step(action).episodes)
            yield from _render(env)
            if not over:
                observation = stepper.observations


def _render(env: gym.Env) -> list[np.ndarray]:
    frames: Any = env_calls.call(env.render, fault=lambda error: _render_error(env, error))
    frames = frames if isinstance(frames, list) else [frames]
    for frame in frames:
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and _is_picture(frame.shape)):
            what = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else repr(frame)[:80]
            raise EnvironmentFault(f"environment {env_name(env)} drew {what}, no picture; {_DRAWS}")
    return frames


def _render_error(env: gym.Env, error: BaseException) -> UsageError:
    if not isinstance(error, Exception):
        return EnvironmentFault(f"environment {env_name(env)} failed in render: {format_error(error)}")
    if isinstance(error, gym.error.DependencyNotInstalled):
        hint = "install the extra 'video'"
    elif isinstance(error, NotImplementedError):
        hint = _DRAWS
    else:
        hint = "if MuJoCo draws it, and there is no display, set MUJOCO_GL=egl or MUJOCO_GL=osmesa"
    return UsageError(f"environment {env_name(env)} cannot be drawn here ({format_error(error)}); {hint}")


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 not in shape


def _rate(env: gym.Env) -> float:
    """Return an environment's frames per second."""
    if not isinstance(env, gym.Env):
        raise UsageError(
            f"env={brief(env)} is no gymnasium Env; make one with gymnasium.make(ID, render_mode='rgb_array')"
        )
    if env.render_mode not in _MODES:
        raise UsageError(
            f"environment {env_name(env)} has render_mode={env.render_mode!r}; make it with render_mode='rgb_array' or "
            "'rgb_array_list', which its constructor keeps as self.render_mode"
        )
    rate = env.metadata.get("render_fps") or 30
    if not isinstance(rate, (int, float, np.number)) or not _SLOWEST <= rate < math.inf:
        raise UsageError(
            f"environment {env_name(env)} has metadata['render_fps']={brief(rate)}; expected pictures a second, "
            f"{_SLOWEST} or more"
        )
    return float(rate)
