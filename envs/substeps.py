"""Environments whose actions last for many substeps of a simulated world: its random numbers, start and pictures."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from .actions import NamedActions
from .drawing import checked_mode


class Draws:
    """Returns the same numbers in the same order as ``generator.<method>()``, in a tenth of the time: it draws blocks.

    Args:
        generator: the random generator; it can be up to one block ahead of the returned numbers.
        method: name of a generator method with a ``size`` argument: ``random``, ``standard_normal``.
    """

    block = 1024

    def __init__(self, generator: np.random.Generator, method: str):
        self.generator = generator
        self._method = method
        self._left: list[float] = []

    def __call__(self) -> float:
        """Return the next number."""
        if not self._left:
            self._left = getattr(self.generator, self._method)(self.block).tolist()[::-1]
        return self._left.pop()


class SubstepEnv(gym.Env):
    """Base class; subclasses also define ``state``, which can be set, ``step`` and ``_observation``.

    Attributes:
        actions: the named actions.
        world_of: the world's class, made with a function that returns random numbers. A world has ``moment``, what a
            picture shows; ``path``, for the picture of an action; and ``moments``, ``None`` or a list that it extends.
        numbers: the method of the random generator from which the world's numbers come.
        draw: ``(moment, path, caption) -> image``.
        substeps_drawn: substeps from one picture of an action to the next.
        list_fps: pictures per second in the render mode ``"rgb_array_list"``.
    """

    observation_space: spaces.Box
    action_space: spaces.Tuple

    metadata = {"render_modes": ["rgb_array", "rgb_array_list"], "render_fps": 2}  # noqa: RUF012 - gymnasium's own convention

    state: Any
    _observation: Callable[[], np.ndarray]
    actions: ClassVar[NamedActions]
    world_of: ClassVar[type[Any]]
    numbers: ClassVar[str]
    draw: ClassVar[Callable[..., np.ndarray]]
    substeps_drawn: ClassVar[int]
    list_fps: ClassVar[int]

    def __init__(self, observation_space: spaces.Box, render_mode: str | None):
        self.render_mode = checked_mode(render_mode, self.metadata)
        self._pictures: list[np.ndarray] = []
        if render_mode == "rgb_array_list":
            self.metadata = {**self.metadata, "render_fps": self.list_fps}
        self.observation_space = observation_space
        self.action_space = copy.deepcopy(self.actions.space)  # so that each environment has its own random generator
        self._draws: Draws | None = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; ``options={"state": [...]}`` begins it in a state, in the format of the attribute."""
        super().reset(seed=seed)
        if self._draws is None or self._draws.generator is not self.np_random:
            self._draws = Draws(self.np_random, self.numbers)
        self._world = self.world_of(self._draws)
        self._caption = "start"
        if options and "state" in options:
            self.state = options["state"]
        if self.render_mode == "rgb_array_list":
            self._world.moments, self._pictures = [], []
            self._watch(self._caption)
        return self._observation(), {}

    def render(self) -> np.ndarray | list[Any] | None:
        """Return an image of the world, with the path of the last action, uint8 ``[H, W, 3]``.

        In the mode "rgb_array_list", return a list of images of all actions since the last call.
        """
        if self.render_mode == "rgb_array":
            if self._draws is None:
                raise gym.error.ResetNeeded("there is nothing to draw yet; call reset() before render()")
            return self.draw(self._world.moment, self._world.path, self._caption)
        if self.render_mode != "rgb_array_list":
            return None
        pictures, self._pictures = self._pictures, []
        return pictures

    def _watch(self, doing: str) -> None:
        """Draw the recorded substeps of an action, or the start, if pictures are collected."""
        world = self._world
        if world.moments is None:
            return
        ends = range(self.substeps_drawn, len(world.moments), self.substeps_drawn)
        self._pictures += [self.draw(world.moments[end - 1], world.path[: end + 1], doing) for end in ends]
        self._pictures.append(self.draw(world.moment, world.path, self._caption))
        world.moments.clear()
