"""The robot-soccer goal domain: dribble and shoot past a keeper."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError

from .actions import NamedActions
from .goal_picture import draw
from .goal_world import FIELD_LENGTH, FIELD_WIDTH, GOAL_WIDTH, GoalWorld, wrapped
from .substeps import SubstepEnv

_BODY_LOW, _BODY_HIGH = (0.0, -15.0, -1.0, -1.0, -math.pi), (20.0, 15.0, 1.0, 1.0, math.pi)
LOW = np.array([*_BODY_LOW, *_BODY_LOW, 0.0, -15.0, -3.0, -3.0])
HIGH = np.array([*_BODY_HIGH, *_BODY_HIGH, 20.0, 15.0, 3.0, 3.0])
POSITIONS = [0, 1, 5, 6, 10, 11]


class GoalEnv(SubstepEnv):
    """Score against a keeper, from a random start opposite the goal, on a small half pitch.

    The field is 20 m long, x from 0 to the goal line at 20, and 30 m wide, y from −15 to 15; the goal, 14.02 m wide,
    is in the middle of that line.

    Action, ``Tuple(Discrete(3), Tuple(Box(2), Box(1), Box(1)))``: (choice, parameters of all three). Only the
    parameters of the chosen action are used; they are clipped to their box, and ``info["action_clipped"]`` says whether
    clipping changed them.

    | choice | action | parameters | range | lasts |
    |---|---|---|---|---|
    | 0 | kick_to | x, y (m) to kick the ball to | 0 to 40, −15 to 15 | until the ball is slow and in reach again |
    | 1 | shoot_goal_left | y (m) on the goal line | −7.01 to 7.01 | until the episode ends |
    | 2 | shoot_goal_right | y (m) on the goal line | −7.01 to 7.01 | until the episode ends |

    The two shots are the same action, duplicated so that a policy can learn a parameter for either side. If the ball is
    out of the striker's reach, the striker goes to it first, whatever the action.

    Observation, float32 ``[14]``, with the range of each feature scaled to −1 to 1:

    | index | feature | range |
    |---|---|---|
    | 0, 1 | striker x, y | 0 to 20 m, −15 to 15 m |
    | 2, 3 | striker velocity | −1 to 1 m/substep |
    | 4 | striker orientation | −π to π |
    | 5 to 9 | keeper, likewise | |
    | 10, 11 | ball x, y | 0 to 20 m, −15 to 15 m |
    | 12, 13 | ball velocity | −3 to 3 m/substep |

    Positions can be slightly outside the lines: their bounds in the space are ±1.5, and observations are clipped there.

    Reward: at the end, 50 for a goal, else minus the distance (m) of the ball from the goal; 0 before the end.
    End: terminated when the ball is in the goal, within 2 m of the keeper or off the field, or at the 100th action,
    which is not carried out; ``info["outcome"]`` is then "goal", "saved", "out" or "time".
    Start: striker at x = 0 and uniform y, facing the goal, ball in reach, keeper between ball and goal; or the fourteen
    numbers of ``state``, given to ``reset(options={"state": [...]})``.

    Physics per substep, in short: a kick changes the ball's velocity to the one with which it would stop at the target,
    limited by the striker's strength. Velocities decay, the ball's by 6 %, the players' by 60 %. Overlapping bodies are
    pushed apart, and both velocities are reversed. The keeper walks to the point where the ball will stop, or sprints
    across its path if it will go in. Noise changes the direction of every kick and every step by up to 5 % (ball) or
    10 % (players) of its angle, and each velocity component by up to the same share of the speed.

    Source: Masson, Ranchod and Konidaris, Reinforcement Learning with Parameterized Actions, AAAI 2016 (arXiv
    1509.01644), with the constants of the authors' program and of its port, gym-goal. Given the same random numbers,
    this environment gives the same episodes, except for two corrected errors: the original's kick_to reads x for both
    coordinates and kicks to (x, x), and a ball behind the goal line at y < −7.01 counts as 14.02 m too far away there.
    """

    half_goal = GOAL_WIDTH / 2
    max_actions = 100
    actions = NamedActions(
        {
            "kick_to": [(0, 2 * FIELD_LENGTH), (-FIELD_WIDTH / 2, FIELD_WIDTH / 2)],
            "shoot_goal_left": [(-half_goal, half_goal)],
            "shoot_goal_right": [(-half_goal, half_goal)],
        }
    )

    world_of, numbers = GoalWorld, "random"
    draw, substeps_drawn, list_fps = staticmethod(draw), 1, 15

    def __init__(self, render_mode: str | None = None):
        bound = np.ones(14, np.float32)
        bound[POSITIONS] = 1.5
        super().__init__(spaces.Box(-bound, bound), render_mode)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start at a random position, or at ``options={"state": [...]}`` in the format of the attribute ``state``."""
        self._taken = 0
        return super().reset(seed=seed, options=options)

    @property
    def state(self) -> np.ndarray:
        """The observation before scaling: metres, metres per substep and radians, float64 ``[14]``.

        Setting it raises UsageError unless it is fourteen finite numbers whose observation is in the space.
        """
        world = self._world
        players = [n for b in (world.striker, world.keeper) for n in (b.x, b.y, b.vx, b.vy, wrapped(b.orientation))]
        return np.array([*players, world.ball.x, world.ball.y, world.ball.vx, world.ball.vy])

    @state.setter
    def state(self, state) -> None:
        numbers = np.asarray(state, np.float64)
        if numbers.shape != (14,) or not np.isfinite(numbers).all():
            raise UsageError(f"state {state!r} is not fourteen finite numbers; see GoalEnv's description for them")
        if (np.abs(self._scaled(numbers)) > self.observation_space.high).any():
            raise UsageError(f"state {state!r} is outside the field; see the ranges in GoalEnv's description")
        world = self._world
        for body, values in zip((world.striker, world.keeper), (numbers[:5], numbers[5:10]), strict=True):
            body.x, body.y, body.vx, body.vy, body.orientation = values.tolist()
        ball = world.ball
        ball.x, ball.y, ball.vx, ball.vy = numbers[10:].tolist()

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Carry out one kick or shot until it ends; ``action`` is (choice, ((x, y), (left,), (right,))).

        Raises:
            UsageError: if the structure is wrong, or a parameter is NaN or infinite.
        """
        choice, parameters, clipped = self.actions.read(action)
        world = self._world
        self._taken += 1
        substeps = 0
        outcome: str | None = "time"
        if self._taken < self.max_actions:
            substeps = world.kick_to((parameters[0], parameters[1])) if choice == 0 else world.shoot(parameters[0])
            outcome = world.outcome
        info: dict[str, Any] = {"substeps": substeps, "action_clipped": clipped}
        reward = 0.0
        if outcome:
            info["outcome"] = outcome
            reward = 50.0 if outcome == "goal" else -world.ball.goal_distance()
        numbers = ", ".join(f"{parameter:.1f}" for parameter in parameters)
        doing = f"{self.actions.names[choice]}({numbers})"
        self._caption = f"{doing}: {outcome or 'in play'}"
        self._watch(doing)
        return self._observation(), reward, outcome is not None, False, info

    @staticmethod
    def _scaled(state: np.ndarray) -> np.ndarray:
        return 2 * (state - LOW) / (HIGH - LOW) - 1

    def _observation(self) -> np.ndarray:
        bounds = self.observation_space
        return np.clip(self._scaled(self.state).astype(np.float32), bounds.low, bounds.high)
