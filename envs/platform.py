"""The platform domain: run, hop and leap past gaps and enemies, with a continuous parameter for each action."""

from typing import Any

import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError

from .actions import NamedActions
from .platform_picture import draw
from .platform_world import BODY_WIDTH, ENEMY_SPEED, PLATFORMS, TOTAL_WIDTH, PlatformWorld
from .substeps import SubstepEnv


class PlatformEnv(SubstepEnv):
    """Reach the right end of three platforms, over two gaps and past two enemies.

    Action, ``Tuple(Discrete(3), Tuple(Box, Box, Box))``: (choice, parameters of all three). Only the parameter of the
    chosen action is used; it is clipped to its box, and ``info["action_clipped"]`` says whether clipping changed it.

    | choice | action | parameter | range | lasts |
    |---|---|---|---|---|
    | 0 | run | speed gained per substep | 0 to 30 units/s | 20 substeps of 0.05 s |
    | 1 | hop | intended distance, rising at 35 units/s | 0 to 720 units | until the player lands |
    | 2 | leap | intended distance, rising at 25 units/s | 0 to 430 units | until the player lands |

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

    "Enemy" is the enemy of platform 1 until the player has passed the left edge of platform 2, and then that of
    platform 2. "This" platform is the last one whose left edge the player has reached; on the last platform the widths
    of the next platform and of the gap are 0.

    Reward: distance travelled in the action / 1035; the return of an episode is at most 1.
    End: terminated on reaching the right end, on touching an enemy or on falling; ``info["outcome"]`` is then
    "finished", "enemy" or "fell". If made by ``gymnasium.make``, truncated after 200 actions.
    Start: always at the left end, with the enemies at the right ends of their platforms, running left; or the eight
    numbers of ``state``, given to ``reset(options={"state": [...]})``. Only the motion is random: the player loses
    |N(0, 0.025)| units/s per substep and |N(0, 1)| of both speeds at take-off; enemies' speeds change by N(0, 0.025).

    Physics, in short: on a platform, speed is at most 70 units/s, and an action changes it by at most 30 per substep.
    It decays by 1 % per substep. Gravity is 9.8 units/s². Landing stops the player; running off an edge makes it fall.

    Source: Masson, Ranchod and Konidaris, Reinforcement Learning with Parameterized Actions, AAAI 2016 (arXiv
    1509.01644), with the constants and the order of random numbers of the published package hybrid-platform 0.1.0: with
    the same seed and actions both give the same episode. There the observation also has the number of substeps, which
    is ``info["substeps"]`` here.
    """

    actions = NamedActions({"run": [(0, 30)], "hop": [(0, 720)], "leap": [(0, 430)]})

    world_of, numbers = PlatformWorld, "standard_normal"
    draw, substeps_drawn, list_fps = staticmethod(draw), 4, 20  # 0.2 s, shown at four times the simulated speed

    def __init__(self, render_mode: str | None = None):
        super().__init__(spaces.Box(0.0, 1.0, (9,), np.float32), render_mode)

    @property
    def state(self) -> np.ndarray:
        """Player's x, y (units), vx, vy (units/s), then x and speed of the first and of the second enemy: float64 [8].

        Positions are those of lower left corners; a player who stands on a platform has y = 40. Setting it raises
        UsageError unless it is eight finite numbers whose observation is in the space.
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
        """Carry out one run, hop or leap until it ends; ``action`` is (choice, (parameter of run, of hop, of leap)).

        Raises:
            UsageError: if the structure is wrong, or the parameter is NaN or infinite.
        """
        choice, (parameter,), clipped = self.actions.read(action)
        world = self._world
        start = world.x
        substeps = world.act(choice, parameter)
        info: dict[str, Any] = {"substeps": substeps, "action_clipped": clipped}
        if world.outcome:
            info["outcome"] = world.outcome
        doing = f"{self.actions.names[choice]} {parameter:.1f}"
        self._caption = f"{doing}: {world.outcome or 'done'}"
        self._watch(doing)
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
