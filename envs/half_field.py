"""Half Field Offense with one attacker and an empty goal: soccer with parameterised actions."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError

from .actions import NamedActions
from .drawing import checked_mode
from .half_field_features import FEATURES, MAX_DISTANCE, UNTOUCHED_LIMIT, features
from .half_field_physics import HALF_LENGTH, HALF_WIDTH, World
from .half_field_picture import draw

_POWER, _DIRECTION = (0.0, 100.0), (-180.0, 180.0)
BOUNDS = {"dash": [_POWER, _DIRECTION], "turn": [_DIRECTION], "tackle": [_DIRECTION], "kick": [_POWER, _DIRECTION]}

DISTANCE_UNIT = MAX_DISTANCE / 2  # m: a distance in this unit is 1 − proximity

# The attacker starts in one of these squares of 10.5 m, counted from the ball.
_SQUARES = ((-1, -1), (-1, 1), (1, 1), (1, -1), (0, 2), (0, -2), (-2, -2), (-2, 2), (2, 2), (2, -2))
_SQUARE = 10.5
_BALL_START = ((5.23, 15.75), (-27.2, 27.2))


class HalfFieldOffenseEnv(gym.Env):
    """Run to the ball and score on an empty goal (Hausknecht and Stone 2016, arXiv 1511.04143).

    | | | |
    |---|---|---|
    | observation | thirty egocentric features, ``FEATURES`` | Box(−1, 1, (30,)), float32 |
    | action | ``(kind, (dash, turn, tackle, kick))``: only the kind's own parameters are used | see below |
    | reward | d(a, b) − d′(a, b) + I_kick + 3 (d(b, g) − d′(b, g)) + 5 I_goal | the paper's section 2.3 |
    | start | ball 5 to 16 m into the half, attacker up to 44 m from it, any heading | at rest |
    | end | terminates on a goal, when the ball leaves the half, and after 100 steps without reaching the ball | |
    | | truncated after 500 steps if made by ``gymnasium.make`` | |
    | info | ``is_success``: a goal; ``action_clipped``: a parameter was outside its range | every step |
    | | ``outcome``: "goal", "out" or "untouched" | when terminated |

    | kind | parameters | |
    |---|---|---|
    | 0 dash | power in [0, 100], direction in [−180, 180] | accelerate; weaker sideways and backwards |
    | 1 turn | direction | turn the body; less when moving |
    | 2 tackle | direction | hit a ball up to 2 m ahead, then lie still for nine steps |
    | 3 kick | power, direction | hit a ball within 1.085 m |

    Directions are degrees relative to the body, positive to the right. d and d′ are distances before and after the
    step, between agent a, ball b and the goal's middle g. Their unit is 31.3 m, half the longest distance to the goal:
    the paper does not name a unit, and the authors' program uses 1 − proximity, which equals the distance in this unit.
    I_kick is 1 after the first step of an episode that makes the ball kickable. Physics: ``half_field_physics.py``.
    """

    observation_space: spaces.Box
    action_space: spaces.Tuple

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - gymnasium's own convention

    def __init__(self, render_mode: str | None = None):
        self.render_mode = checked_mode(render_mode, self.metadata)
        self.observation_space = spaces.Box(-1.0, 1.0, (len(FEATURES),), np.float32)
        self._actions = NamedActions(BOUNDS)
        self.action_space = self._actions.space
        self._begin(World())

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Place ball and attacker at random, or as in ``options={"state": [...]}``, in the format of ``state``."""
        super().reset(seed=seed)
        self._begin(_random_world(self.np_random.random(6).tolist()))
        if options and "state" in options:
            self.state = options["state"]
        return self._observation(), {}

    def _begin(self, world: World, untouched: int = 0, kick_bonus_open: bool = True) -> None:
        self._world, self._untouched, self._kick_bonus_open = world, untouched, kick_bonus_open
        self._ball_distance, self._goal_distance = world.ball_distance(), world.goal_distance()
        self._last: tuple[int, list[float], str | None] | None = None

    @property
    def state(self) -> np.ndarray:
        """The complete (Markov) state, float64 ``[12]``, in metres from the middle of the pitch, and radians.

        Player's x, y, vx, vy, heading; ball's x, y, vx, vy; remaining steps frozen by a tackle, steps since the ball
        was in reach, and 1 until I_kick has been paid. The goal is at x = 52.5, y = 0; y grows to the right of a player
        who faces the goal. Setting it raises UsageError unless it is twelve finite numbers that can occur.
        """
        world = self._world
        player = world.player_x, world.player_y, world.player_vx, world.player_vy, world.heading
        ball = world.ball_x, world.ball_y, world.ball_vx, world.ball_vy
        return np.array([*player, *ball, world.frozen, self._untouched, self._kick_bonus_open], np.float64)

    @state.setter
    def state(self, state) -> None:
        numbers = np.asarray(state, np.float64)
        if numbers.shape != (12,) or not np.isfinite(numbers).all():
            raise UsageError(f"state {numbers.tolist()} is not twelve finite numbers; see HalfFieldOffenseEnv.state")
        x, y, vx, vy, heading, ball_x, ball_y, ball_vx, ball_vy, frozen, untouched, bonus = numbers.tolist()
        world = World(x, y, math.remainder(heading, math.tau), ball_x, ball_y)
        world.player_vx, world.player_vy, world.ball_vx, world.ball_vy = vx, vy, ball_vx, ball_vy
        world.frozen = int(frozen)
        if not (world.can_occur() and 0 <= untouched < UNTOUCHED_LIMIT):
            raise UsageError(
                f"state {numbers.tolist()} cannot occur: expected the ball in the half, the player near it, neither "
                f"faster than the physics allow, frozen in 0..9 and untouched in 0..{UNTOUCHED_LIMIT - 1}"
            )
        self._begin(world, int(untouched), bonus > 0)

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Carry out one action of the attacker for one cycle (0.1 s of the server).

        Raises:
            UsageError: if the action's structure is wrong, or a number in it is NaN or infinite.
        """
        kind, parameters, clipped = self._actions.read(action)
        world = self._world
        if world.frozen:
            world.frozen -= 1
        else:
            getattr(world, self._actions.names[kind])(*parameters)
        before = world.ball_x, world.ball_y
        world.advance()

        goal = world.scored(*before)
        reward = self._reward(goal)
        info: dict[str, Any] = {"is_success": goal, "action_clipped": clipped}
        outcome = self._outcome(goal)
        self._last = kind, parameters, outcome
        if outcome:
            info["outcome"] = outcome
        return self._observation(), reward, outcome is not None, False, info

    def render(self) -> np.ndarray | None:
        """Return an image of the half with player and ball, uint8 [664, 500, 3]."""
        if self.render_mode != "rgb_array":
            return None
        caption = "start"
        if self._last:
            kind, parameters, outcome = self._last
            numbers = ", ".join(f"{number:.0f}" for number in parameters)
            caption = f"{self._actions.names[kind]}({numbers}): {outcome or 'in play'}"
        return draw(self._world, caption)

    def _reward(self, goal: bool) -> float:
        """Return r_t (paper, section 2.3), and update the counters on which it and the episode's end depend."""
        world = self._world
        ball_distance, goal_distance = world.ball_distance(), world.goal_distance()
        approach, towards_goal = self._ball_distance - ball_distance, self._goal_distance - goal_distance
        self._ball_distance, self._goal_distance = ball_distance, goal_distance
        reward = (approach + 3.0 * towards_goal) / DISTANCE_UNIT + 5.0 * goal
        self._untouched += 1
        if world.kickable():
            self._untouched = 0
            reward += self._kick_bonus_open
            self._kick_bonus_open = False
        return reward

    def _outcome(self, goal: bool) -> str | None:
        """Return the outcome of an ended episode, or ``None``; ``gymnasium.make`` handles the time limit."""
        if goal:
            return "goal"
        if self._world.ball_out():
            return "out"
        return "untouched" if self._untouched >= UNTOUCHED_LIMIT else None

    def _observation(self) -> np.ndarray:
        return np.array(features(self._world, self._kick_bonus_open, self._untouched), np.float32)


def _random_world(draws: list[float]) -> World:
    """Return a random start, given six uniform numbers in [0, 1)."""
    ball_x, ball_y = (low + draw * (high - low) for draw, (low, high) in zip(draws[:2], _BALL_START, strict=True))
    column, row = _SQUARES[int(draws[2] * len(_SQUARES))]
    x = min(max(ball_x + _SQUARE * (column + draws[3]), 0.0), HALF_LENGTH)
    y = min(max(ball_y + _SQUARE * (row + draws[4]), -HALF_WIDTH), HALF_WIDTH)
    return World(x, y, math.tau * draws[5] - math.pi, ball_x, ball_y)
