"""The platform domain: run, hop and leap over gaps and enemies, each by a chosen amount."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError

from .actions import NamedActions
from .drawing import Canvas
from .draws import Draws
from .platform_world import (
    BODY_HEIGHT,
    BODY_WIDTH,
    ENEMY_SPEED,
    GROUND,
    PLATFORMS,
    TOTAL_WIDTH,
    PlatformWorld,
)

SKY, STONE, DEPTHS = (235, 242, 250), (110, 100, 90), (215, 90, 70)
BLUE, RED, GREEN, INK = (40, 90, 200), (200, 60, 60), (40, 140, 70), (50, 50, 60)


class PlatformEnv(gym.Env):
    """Reach the right end of three platforms, over two gaps and past two enemies.

    Action, ``Tuple(Discrete(3), Tuple(Box, Box, Box))``: (choice, parameters of all three). Only the chosen one's
    parameter is used; it is clipped to its box, and ``info["action_clipped"]`` tells whether that changed it.

    | choice | action | parameter | range | lasts |
    |---|---|---|---|---|
    | 0 | run | speed gained per substep | 0 to 30 units/s | 20 substeps of 0.05 s |
    | 1 | hop | distance aimed at, rising at 35 units/s | 0 to 720 units | until the player lands |
    | 2 | leap | distance aimed at, rising at 25 units/s | 0 to 430 units | until the player lands |

    Observation, ``Box(0, 1, (9,))``, float32:

    | index | feature | range before scaling | scaled |
    |---|---|---|---|
    | 0 | player, left edge | 0 to 1035 units | (x + 20) / 1055 |
    | 1 | player, horizontal speed | 0 to 100 units/s | / 100 |
    | 2 | enemy, left edge | 0 to 1035 units | / 1035 |
    | 3 | enemy, speed | −30 to 30 units/s | (v + 30) / 60 |
    | 4, 5 | widths of this platform and of the next | 0 to 275 units | / 275 |
    | 6 | width of the gap between them | 0 to 235 units | / 235 |
    | 7 | this platform, left edge | 0 to 1035 units | / 1035 |
    | 8 | height of the next platform over this one | always 0 | |

    The enemy is the one of platform 1 until the player is past the left edge of platform 2, then that one's. A
    platform is "this" one until the next begins; after the last, next platform and gap are 0 wide.

    Reward: distance travelled in the action / 1035; a whole episode returns at most 1.
    End: terminated on reaching the right end, on touching an enemy or on falling; ``info["outcome"]`` is then
    "finished", "enemy" or "fell". Made by ``gymnasium.make``, truncated after 200 actions.
    Start: always at the left end, enemies at the right of their platforms, running left; or at
    ``reset(options={"state": [...]})``, the eight numbers of ``state``. What is random is the motion: the player loses
    |N(0, 0.025)| units/s a substep and |N(0, 1)| of both speeds at take-off, enemies' speeds change by N(0, 0.025).

    Physics, in short: on a platform speed is at most 70 units/s and an action changes it by at most 30 a substep; it
    decays by 1 % a substep; gravity is 9.8 units/s²; landing stops the player. Run off an edge, and it falls.

    Source: Masson, Ranchod and Konidaris, Reinforcement Learning with Parameterized Actions, AAAI 2016 (arXiv
    1509.01644), with the figures and the order of random numbers of the published package hybrid-platform 0.1.0: with
    the same seed and actions both give the same episode. There the observation also holds the number of substeps,
    here ``info["substeps"]``.
    """

    observation_space: spaces.Box
    action_space: spaces.Tuple

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012 - gymnasium's own convention

    actions = NamedActions({"run": [(0, 30)], "hop": [(0, 720)], "leap": [(0, 430)]})

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (9,), np.float32)
        self.action_space = self.actions.space
        self._draws: Draws | None = None
        self._caption = ""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start at the left end, or at ``options={"state": [...]}``, as ``state`` gives it."""
        super().reset(seed=seed)
        if self._draws is None or self._draws.generator is not self.np_random:
            self._draws = Draws(self.np_random, "standard_normal")
        self._world = PlatformWorld(self._draws)
        self._caption = "start"
        if options and "state" in options:
            self.state = options["state"]
        return self._observation(), {}

    @property
    def state(self) -> np.ndarray:
        """Player's x, y (units), vx, vy (units/s), then x and speed of the first and of the second enemy: float64 [8].

        Positions are lower left corners; the player stands on a platform at y = 40. Setting it raises UsageError
        for anything but eight finite numbers whose observation is in the space.
        """
        world = self._world
        return np.array(
            [world.x, world.y, world.vx, world.vy, *(n for enemy in world.enemies for n in (enemy.x, enemy.speed))]
        )

    @state.setter
    def state(self, state) -> None:
        numbers = np.asarray(state, np.float64)
        if numbers.shape != (8,) or not np.isfinite(numbers).all():
            raise UsageError(f"state {state!r} is not eight finite numbers; see PlatformEnv.state for their order")
        world = self._world
        first, second = world.enemies
        world.x, world.y, world.vx, world.vy, first.x, first.speed, second.x, second.speed = numbers.tolist()
        world.path = []
        if not self.observation_space.contains(self._observation()):
            raise UsageError(f"state {state!r} is outside the course; see the ranges in PlatformEnv's description")

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Run, hop or leap to the end; ``action`` is (choice, (parameter of run, of hop, of leap)).

        Raises:
            UsageError: another structure, or a NaN or infinite parameter.
        """
        choice, (parameter,), clipped = self.actions.read(action)
        world = self._world
        start = world.x
        substeps = world.act(choice, parameter)
        info: dict[str, Any] = {"substeps": substeps, "action_clipped": clipped}
        if world.outcome:
            info["outcome"] = world.outcome
        self._caption = f"{self.actions.names[choice]} {parameter:.1f}: {world.outcome or 'landed'}"
        return self._observation(), (world.x - start) / TOTAL_WIDTH, world.outcome is not None, False, info

    def _observation(self) -> np.ndarray:
        world = self._world
        enemy = world.enemy
        here = sum(world.x >= left for left, _ in PLATFORMS[1:])
        left, width = PLATFORMS[here]
        after, next_width = PLATFORMS[here + 1] if here + 1 < len(PLATFORMS) else (left + width, 0.0)
        features = [
            (world.x + BODY_WIDTH) / (TOTAL_WIDTH + BODY_WIDTH),
            world.vx / 100,
            enemy.x / TOTAL_WIDTH,
            (enemy.speed + ENEMY_SPEED) / (2 * ENEMY_SPEED),
            width / 275,
            next_width / 275,
            (after - left - width) / 235,
            left / TOTAL_WIDTH,
            0.0,
        ]
        return np.array(features, np.float32)

    def render(self) -> np.ndarray | None:
        """Draw the course, the player with the path of its last action, and the enemies: uint8 [184, 880, 3]."""
        if self.render_mode != "rgb_array":
            return None
        canvas = Canvas((-20.0, 0.0), (1080.0, 230.0), 0.8, SKY)
        canvas.rectangle((-20.0, 0.0), (1080.0, 8.0), DEPTHS)
        for left, width in PLATFORMS:
            canvas.rectangle((left, 0.0), (left + width, GROUND), STONE)
        canvas.line([(TOTAL_WIDTH, GROUND), (TOTAL_WIDTH, GROUND + 75)], GREEN)
        canvas.text((TOTAL_WIDTH, GROUND + 85), "end", GREEN)
        world = self._world
        figures = [("enemy", enemy.x, GROUND, RED) for enemy in world.enemies]
        for name, x, y, colour in [*figures, ("player", world.x, world.y, BLUE)]:
            canvas.rectangle((x, y), (x + BODY_WIDTH, y + BODY_HEIGHT), colour)
            canvas.text((x + BODY_WIDTH / 2, y + BODY_HEIGHT + 10), name, colour, size=12)
        if len(world.path) > 1:
            canvas.line([(x + BODY_WIDTH / 2, y + BODY_HEIGHT / 2) for x, y in world.path], BLUE, 1)
        canvas.text((-12.0, 222.0), self._caption, INK, anchor="la")
        return canvas.array()
