"""Tasks of the DeepMind Control Suite as gymnasium environments; dm_control is imported only when one is made."""

import contextlib
import importlib.metadata
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError, brief, did_you_mean, without_opengl

from .actions import numbers_in
from .drawing import checked_mode

# The registered tasks, by domain: all of dm_control 1.0.50 except those of the domain lqr, whose forces are unbounded,
# episodes unlimited, and model drawn at random.
TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}

ACTION_REPEAT = 2
DECISIONS = 500  # actions in an episode, which has 1000 control steps, two for every action
HEIGHT, WIDTH = 360, 480  # pixels
CAMERAS = {"quadruped": 2}  # the camera that follows the body, if it is not camera 0
# Values of MUJOCO_GL with which dm_control or MuJoCo opens a window.
_WINDOWS = ("", "glfw", "glx", "on", "enable", "enabled", "true", "1")


class ControlSuiteEnv(gym.Env):
    """A task of the DeepMind Control Suite (Tassa et al. 2018, arXiv 1801.00690).

    | | | |
    |---|---|---|
    | observation | the task's arrays, flattened and joined in the task's own order | Box(−inf, inf, (n,)), float32 |
    | action | controls of the actuators, clipped to their box | Box(low, high, (m,)), float32: mostly ±1 |
    | reward | the sum over two control steps, each in [0, 1] | [0, 2] |
    | start | drawn by the task | |
    | end | truncated after 1000 control steps; terminated only if the task's discount is 0 | |

    Every action is applied for two control steps (action repeat 2, the convention of published results), so an episode
    has 500 actions, and its return lies in [0, 1000].

    ``reset(seed=s)`` starts the same episode as ``suite.load(..., task_kwargs={"random": s})``, whatever happened
    before; a seed of 2³² or more is passed to the same generator as words of 32 bits.

    Args:
        domain: the body, such as ``"cheetah"``.
        task: its task, such as ``"run"``.
        render_mode: ``"rgb_array"`` or ``None``.

    Raises:
        UsageError: if there is no such task, dm_control does not work with the installed MuJoCo, or rendering is
            requested and there is neither a display nor ``MUJOCO_GL``.
        gymnasium.error.DependencyNotInstalled: if dm_control is not installed.
    """

    observation_space: spaces.Box
    action_space: spaces.Box

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 - gymnasium's own convention

    def __init__(self, domain: str, task: str, render_mode: str | None = None):
        self._name = _checked_name(domain, task)
        self.render_mode = checked_mode(render_mode, self.metadata)
        # quadruped-escape fills the terrain's texture, for which it needs a rendering context in any render mode.
        if render_mode is not None or (domain, task) == ("quadruped", "escape"):
            _check_display(self._name)
        self._camera = CAMERAS.get(domain, 0)
        self._env: Any = _load(domain, task)
        self.metadata = {**self.metadata, "render_fps": round(1 / (ACTION_REPEAT * self._env.control_timestep()))}
        bounds = self._env.action_spec()
        self._low, self._high = bounds.minimum, bounds.maximum
        self.action_space = spaces.Box(self._low.astype(np.float32), self._high.astype(np.float32), dtype=np.float32)
        size = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode drawn by the task; without a seed, the random stream of earlier episodes goes on.

        Raises:
            gymnasium.error.ClosedEnvironmentError: if the environment was closed.
        """
        self._check_open("reset")
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(_legacy_seed(seed))
        step = self._env.reset()
        self._running = True
        return _flat(step.observation), {}

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply an action for two control steps, or for one if that ends the episode.

        Raises:
            UsageError: if the action has another shape or is not finite; the state is unchanged then.
            gymnasium.error.ClosedEnvironmentError: if the environment was closed.
            gymnasium.error.ResetNeeded: if there was no reset yet, or the episode is over.
        """
        self._check_open("step")
        if not self._running:
            raise gym.error.ResetNeeded("call reset() before step()")
        wanted = numbers_in(action)
        if wanted.shape != self._low.shape or not np.isfinite(wanted).all():
            raise UsageError(
                f"action={brief(action)} is not an action of {self._name}; expected {self._low.size} finite numbers, "
                f"of shape {self._low.shape}"
            )
        control = np.clip(wanted, self._low, self._high)
        reward = 0.0
        for _ in range(ACTION_REPEAT):
            step = self._env.step(control)
            reward += float(step.reward)
            if step.last():
                self._running = False
                break
        terminated = bool(step.last() and step.discount == 0)
        return _flat(step.observation), reward, terminated, bool(step.last() and not terminated), {}

    def render(self) -> np.ndarray | None:
        """Return an image of the scene, uint8 [360, 480, 3].

        Raises:
            gymnasium.error.ClosedEnvironmentError: if the environment was closed.
        """
        if self.render_mode != "rgb_array":
            return None
        self._check_open("render")
        return self._env.physics.render(HEIGHT, WIDTH, camera_id=self._camera)

    def close(self) -> None:
        """Free the model and the rendering context."""
        if self._env is not None:
            self._env.close()
            self._env, self._running = None, False

    def _check_open(self, what: str) -> None:
        if self._env is None:
            raise gym.error.ClosedEnvironmentError(
                f"{self._name} was closed, so {what}() cannot be called; make it again with gymnasium.make"
            )


def _checked_name(domain: str, task: str) -> str:
    tasks = TASKS.get(domain, ()) if isinstance(domain, str) else ()
    if task not in tasks:
        known = [f"{one}-{other}" for one, others in TASKS.items() for other in others]
        name = f"{domain}-{task}"
        raise UsageError(
            f"domain={brief(domain)}, task={brief(task)} is not a registered task of the control suite"
            f"{did_you_mean(name, known)}; ddpg_envs.control_suite.TASKS has them all"
        )
    return f"{domain}-{task}"


def _check_display(name: str) -> None:
    """Refuse to render without a display, where dm_control would try a window and MuJoCo would abort the process.

    Raises:
        UsageError: if this is Linux without a display, and ``MUJOCO_GL`` does not select a backend without a window.
    """
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not shown and os.environ.get("MUJOCO_GL", "") in _WINDOWS:
        raise UsageError(f"{name} needs OpenGL, and there is no display; start again with MUJOCO_GL=egl or osmesa")


def _load(domain: str, task: str) -> Any:
    """Return the suite's environment, which uses seed 0 until a reset sets another one.

    Raises:
        UsageError: if dm_control does not work with the installed MuJoCo.
        gymnasium.error.DependencyNotInstalled: if dm_control is not installed.
    """
    with _without_notices():
        try:
            from dm_control import suite

            return suite.load(domain, task, task_kwargs={"random": 0})
        except ModuleNotFoundError as error:
            raise gym.error.DependencyNotInstalled(
                f"dm_control's suite needs the package {error.name!r}, of the extra 'dmc' (Python 3.10 to 3.12)"
            ) from None
        except (AttributeError, ImportError) as error:  # a dm_control version works with few versions of MuJoCo
            raise UsageError(
                without_opengl(error)
                or f"dm_control {_version('dm_control')} does not work with MuJoCo {_version('mujoco')} ({error}); "
                'install the versions of the extra "dmc", MuJoCo 3.17 or later below 4: pip install "ddpg-paths[dmc]"'
            ) from None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Suppress warnings that users cannot act on: a missing display, and deprecated words in the suite's models."""
    absl = logging.getLogger("absl")
    level = absl.level
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*X11: The DISPLAY environment variable is missing")
        warnings.filterwarnings("ignore", message=r".*[Ww]ayland")
        absl.setLevel(logging.ERROR)
        try:
            yield
        finally:
            absl.setLevel(level)


def _legacy_seed(seed: int) -> int | list[int]:
    """Return a seed of any size in a form that NumPy's ``RandomState`` accepts."""
    if seed < 1 << 32:
        return seed
    words = (seed.bit_length() + 31) // 32
    return [seed >> (32 * place) & 0xFFFFFFFF for place in range(words)]


def _flat(observation: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the arrays of an observation, flattened and joined in their order, float32 ``[n]``."""
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)
