"""A linear-quadratic regulator: an environment whose optimal policy, value and ∇ₐQ are known exactly."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from scipy import linalg

from ddpg.errors import UsageError, brief

from .actions import numbers_in
from .drawing import Canvas, checked_mode

PAPER, STEEL, BLUE, RED, GREEN, INK = (
    *((255, 255, 255), (150, 150, 155), (40, 90, 200)),
    *((200, 60, 60), (40, 140, 70), (50, 50, 60)),
)
TITLE = "LQR: bring the mass to rest at 0, with little force"
REACH = 2.0  # m to either side
_HALF, _HEIGHT = 0.16, 0.36  # m, half the width and the height of the mass
_COILS = 12
_LONGEST = 0.6  # m, length of the arrow for the largest force


class LQREnv(gym.Env):
    """A mass on a spring and a damper, pushed towards its rest position, with a quadratic cost.

        x′ = A x + B a        reward = −(xᵀ Q x + aᵀ R a)

    | | | |
    |---|---|---|
    | observation x | [position (m), velocity (m/s)] | Box(−inf, inf, (2,)), float32 |
    | action a | force (N), clipped to its box | Box(low, high, (1,)), float32: ±2.5 by default |
    | reward | −(position² + 0.1 velocity² + 0.2 force²), with the state before the step | ≤ 0 |
    | start | position and velocity uniform in ±1 | |
    | end | never terminates; truncated after 100 steps if made by ``gymnasium.make`` | |

    In ``ddpg_envs/AsymmetricLQR-v0`` the force to the right is at most 2.5 N, but to the left at most 0.5 N. There the
    constraint is active, and no policy reaches the unconstrained optimum below.

    The time step is 0.1 s, the mass 1 kg, the spring 1 N/m, the damper 1 N·s/m. The system is stable, so random forces
    cannot drive it far. From the starting region the optimal force stays inside ±2.5 N for every discount γ ≤ 0.99, so
    the unconstrained optimum below is also optimal with the bounds. The Riccati equation is solved for the discounted
    problem, which is equivalent to the undiscounted problem of √γ·A, √γ·B (Bertsekas, Dynamic Programming and Optimal
    Control).

    Args:
        low: smallest force (N), below 0.
        high: largest force (N), above 0.
        render_mode: ``"rgb_array"`` or ``None``.

    Raises:
        UsageError: if a bound is not such a number, or ``render_mode`` is another one.
    """

    observation_space: spaces.Box
    action_space: spaces.Box

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - gymnasium's own convention

    dt = 0.1
    A = np.array([[1.0, dt], [-1.0 * dt, 1.0 - 1.0 * dt]])
    B = np.array([[0.0], [dt]])
    Q = np.diag([1.0, 0.1])
    R = np.array([[0.2]])

    def __init__(self, low: float = -2.5, high: float = 2.5, render_mode: str | None = None):
        self.render_mode = checked_mode(render_mode, self.metadata)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        for name, bound in (("low", low), ("high", high)):
            real = isinstance(bound, (int, float, np.integer, np.floating)) and not isinstance(bound, bool)
            if not (real and -1e30 <= bound <= 1e30):
                raise UsageError(f"{name}={brief(bound)} must be a finite number, a bound of the force")
        if not low < 0 < high:  # else no policy keeps the mass at rest
            raise UsageError(f"low={brief(low)} must be below 0 and high={brief(high)} above 0, forces to either side")
        self.action_space = spaces.Box(float(low), float(high), (1,), np.float32)
        self._x = np.zeros(2)
        self._force = 0.0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start at a uniform random state, or at ``options={"state": [position, velocity]}``."""
        super().reset(seed=seed)
        self._x = self.np_random.uniform(-1.0, 1.0, 2)
        self._force = 0.0
        if options and "state" in options:
            state = np.asarray(options["state"], np.float64)
            if state.shape != (2,) or not np.isfinite(state).all():
                raise UsageError(
                    f"state={options['state']!r} must be two finite numbers, position (m) and velocity (m/s)"
                )
            self._x = state
        return self._x.astype(np.float32), {}

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply a force for one time step; ``info["action_clipped"]`` says whether it was clipped to its box."""
        wanted = numbers_in(action)
        if wanted.shape not in ((), (1,)) or not np.isfinite(wanted).all():
            raise UsageError(f"action={brief(action)} must be one finite number, a force (N), of shape (1,)")
        wanted = wanted.reshape(1)
        force = np.clip(wanted, self.action_space.low, self.action_space.high)
        reward = -float(self._x @ self.Q @ self._x + force @ self.R @ force)
        self._x = self.A @ self._x + self.B @ force
        self._force = float(force[0])
        return self._x.astype(np.float32), reward, False, False, {"action_clipped": bool((force != wanted).any())}

    def render(self) -> np.ndarray | None:
        """Return an image of the mass between spring and force on a track of ±2 m, uint8 [176, 640, 3]."""
        if self.render_mode != "rgb_array":
            return None
        largest = float(max(-self.action_space.low[0], self.action_space.high[0]))
        return _picture(float(self._x[0]), float(self._x[1]), self._force, largest)

    # -- the exact optimum, for discount gamma --------------------------------------------------------

    @classmethod
    def riccati(cls, gamma: float) -> np.ndarray:
        """Return P ``[2, 2]`` with V*(x) = −xᵀ P x."""
        root = np.sqrt(gamma)
        return linalg.solve_discrete_are(root * cls.A, root * cls.B, cls.Q, cls.R)

    @classmethod
    def optimal_gain(cls, gamma: float) -> np.ndarray:
        """Return K ``[1, 2]`` with μ*(x) = −K x (N)."""
        p = cls.riccati(gamma)
        return gamma * np.linalg.solve(cls.R + gamma * cls.B.T @ p @ cls.B, cls.B.T @ p @ cls.A)

    @classmethod
    def value(cls, states: np.ndarray, gamma: float) -> np.ndarray:
        """Return V*(x), ``[N]``, of states ``[N, 2]``."""
        return -np.einsum("ni,ij,nj->n", states, cls.riccati(gamma), states)

    @classmethod
    def action_value(cls, states: np.ndarray, actions: np.ndarray, gamma: float) -> np.ndarray:
        """Return Q*(x, a), ``[N]``, of states ``[N, 2]`` and forces ``[N, 1]`` (N)."""
        cost = np.einsum("ni,ij,nj->n", states, cls.Q, states) + np.einsum("ni,ij,nj->n", actions, cls.R, actions)
        return -cost + gamma * cls.value(states @ cls.A.T + actions @ cls.B.T, gamma)

    @classmethod
    def action_gradient(cls, states: np.ndarray, actions: np.ndarray, gamma: float) -> np.ndarray:
        """Return ∇ₐQ*(x, a) = −2 (R a + γ Bᵀ P (A x + B a)), ``[N, 1]``, per newton."""
        following = states @ cls.A.T + actions @ cls.B.T
        return -2 * (actions @ cls.R + gamma * following @ cls.riccati(gamma) @ cls.B)


def _picture(position: float, velocity: float, force: float, largest: float) -> np.ndarray:
    """Return an image of the track from −2 to 2 m, uint8 ``[176, 640, 3]``; a mass beyond it is drawn at its end.

    Position (m), velocity (m/s) and last force (N), of which ``largest`` is the largest possible one.
    """
    canvas = Canvas((-2.5, -0.3125), (2.5, 1.0625), 128, PAPER)
    canvas.rectangle((-2.5, -0.03), (2.5, 0.0), STEEL)
    canvas.rectangle((-2.5, 0.0), (-2.36, 0.5), STEEL)
    for metre in range(-2, 3):
        canvas.line([(metre, -0.03), (metre, -0.1)], STEEL)
        canvas.text((metre, -0.2), f"{metre} m", INK, 12)
    canvas.line([(0.0, 0.0), (0.0, 0.56)], GREEN)
    canvas.text((0.0, 0.63), "rest", GREEN, 12)
    x = min(max(position, -REACH), REACH)
    middle, start = _HEIGHT / 2, -2.36
    length = x - _HALF - start
    coils = [(start + length * (n + 0.5) / _COILS, middle + (0.07 if n % 2 else -0.07)) for n in range(_COILS)]
    canvas.line([(start, middle), *coils, (x - _HALF, middle)], STEEL, 2)
    canvas.rectangle((x - _HALF, 0.0), (x + _HALF, _HEIGHT), BLUE)
    if force:
        tip = x + _LONGEST * force / largest
        back = 0.06 if force > 0 else -0.06
        canvas.line([(x, _HEIGHT + 0.08), (tip, _HEIGHT + 0.08)], RED, 3)
        canvas.line([(tip - back, _HEIGHT + 0.13), (tip, _HEIGHT + 0.08), (tip - back, _HEIGHT + 0.03)], RED, 3)
    canvas.text((-2.45, 1.03), TITLE, INK, anchor="la")
    canvas.text((-2.45, 0.86), f"position {position:+.2f} m, velocity {velocity:+.2f} m/s", BLUE, anchor="la")
    canvas.text((2.45, 0.86), f"force {force:+.2f} N", RED, anchor="ra")
    return canvas.array()
