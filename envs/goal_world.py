"""The rules of the robot-soccer goal domain: bodies, kicks, the keeper. See ``goal.GoalEnv``.

Distances are in metres and times in substeps of the simulator; the constants are those of the RoboCup soccer server.
"""

import math
from collections.abc import Callable

FIELD_LENGTH, FIELD_WIDTH = 20.0, 30.0  # the half of the pitch before the goal; y from −15 to 15
GOAL_AREA_LENGTH, GOAL_AREA_WIDTH = 5.5, 18.32
GOAL_WIDTH, GOAL_DEPTH = 14.02, 2.44
KICKABLE, CATCHABLE = 1.6, 2.0  # distances between centres
KICK_POWER = 2.7  # acceleration of the ball by the strongest kick
RUN, WALK, SPRINT = 0.06, 0.048, 0.12  # accelerations: striker, keeper positioning, keeper intercepting
INERTIA = 5.0  # slows the turning of a moving player
FACING = math.pi / 8
SLOW = 0.1  # speed of a ball that counts as stopped

Point = tuple[float, float]
Moment = tuple[tuple[float, float, float], tuple[float, float, float], Point]  # striker, keeper: x, y, angle; ball


def wrapped(angle: float) -> float:
    """Return the angle in [−π, π]."""
    return math.remainder(angle, math.tau)


class Body:
    """A disc that moves and slows down.

    Args:
        position: the position of its centre.
        uniform: returns one random number in [0, 1) per call.
    """

    radius, decay, noise, max_speed = 0.9, 0.4, 0.1, 1.0

    def __init__(self, position: Point, uniform: Callable[[], float]):
        self.x, self.y = position
        self.vx = self.vy = self.orientation = 0.0
        self.uniform = uniform

    def angle_to(self, point: Point) -> float:
        """Return the direction of a point, in [−π, π]."""
        return math.atan2(point[1] - self.y, point[0] - self.x)

    def distance(self, other: "Body") -> float:
        """Return the distance between the centres."""
        return math.hypot(self.x - other.x, self.y - other.y)

    def accelerate(self, acceleration: float, direction: float) -> None:
        """Change the velocity, with noise in proportion to the direction's angle and to the speed."""
        uniform, noise = self.uniform, self.noise
        direction *= 1 + noise * (2 * uniform() - 1)
        spread = noise * math.hypot(self.vx, self.vy)
        vx = self.vx + acceleration * math.cos(direction) + spread * (2 * uniform() - 1)
        vy = self.vy + acceleration * math.sin(direction) + spread * (2 * uniform() - 1)
        limit = self.max_speed
        self.vx = limit if vx > limit else -limit if vx < -limit else vx
        self.vy = limit if vy > limit else -limit if vy < -limit else vy

    def move(self) -> None:
        """Move for one substep, then slow down."""
        self.x += self.vx
        self.y += self.vy
        self.vx *= self.decay
        self.vy *= self.decay

    def collide(self, other: "Body") -> None:
        """If two bodies overlap, push them apart, half each, and reverse both velocities."""
        reach = self.radius + other.radius
        if abs(self.x - other.x) >= reach or self.distance(other) >= reach:
            return
        overlap = reach - self.distance(other)
        direction = self.angle_to((other.x, other.y))
        dx, dy = overlap / 2 * math.cos(direction), overlap / 2 * math.sin(direction)
        self.x, self.y, self.vx, self.vy = self.x - dx, self.y - dy, -self.vx, -self.vy
        other.x, other.y, other.vx, other.vy = other.x + dx, other.y + dy, -other.vx, -other.vy


class Ball(Body):
    """The ball, whose orientation is not used."""

    radius, decay, noise, max_speed = 0.4, 0.94, 0.05, 2.7

    def goal_distance(self) -> float:
        """Return the distance to the goal line between the posts; 0 behind that line."""
        return math.hypot(max(FIELD_LENGTH - self.x, 0.0), max(abs(self.y) - GOAL_WIDTH / 2, 0.0))

    def in_goal(self) -> bool:
        """Return whether the centre is in the net."""
        return 0 <= self.x - FIELD_LENGTH <= GOAL_DEPTH and abs(self.y) <= GOAL_WIDTH / 2

    def in_field(self) -> bool:
        """Return whether the centre is on the field."""
        return 0 <= self.x <= FIELD_LENGTH and abs(self.y) <= FIELD_WIDTH / 2


class Striker(Body):
    """The player that the agent controls."""

    def can_kick(self, ball: Ball) -> bool:
        """Return whether the ball is in reach."""
        return self.distance(ball) <= KICKABLE

    def kick_to(self, ball: Ball, target: Point) -> None:
        """Kick a ball in reach with the velocity that takes it from the striker's position to a stop at ``target``."""
        ax = (1 - ball.decay) * (target[0] - self.x) - ball.vx
        ay = (1 - ball.decay) * (target[1] - self.y) - ball.vy
        off = abs(wrapped(self.angle_to((ball.x, ball.y)) - self.orientation))
        strength = 1 - 0.25 * off / math.pi - 0.25 * self.distance(ball) / KICKABLE
        ball.accelerate(min(math.hypot(ax, ay), KICK_POWER * strength), math.atan2(ay, ax))

    def approach(self, ball: Ball) -> None:
        """Turn to the ball, or run if the striker faces it."""
        turn = wrapped(self.angle_to((ball.x, ball.y)) - self.orientation)
        if abs(turn) < FACING:
            self.accelerate(RUN, self.orientation)
        else:
            self.orientation += turn / (1 + INERTIA * math.hypot(self.vx, self.vy))


class Keeper(Body):
    """The goalkeeper, whose policy is fixed."""

    def guard(self, ball: Ball) -> None:
        """Walk to where the ball will stop, or sprint across the path of a ball that will go in at an angle."""
        end = ball.x + ball.vx / (1 - ball.decay), ball.y + ball.vy / (1 - ball.decay)
        slope = ball.vy / ball.vx if ball.vx else 0.0
        at_line = ball.y + slope * (FIELD_LENGTH - ball.x)
        if end[0] > FIELD_LENGTH and abs(at_line) <= GOAL_WIDTH / 2 + CATCHABLE and slope:
            # The point of the ball's path that is nearest to the keeper.
            along = ((self.x - ball.x) + slope * (self.y - ball.y)) / (1 + slope * slope)
            target, acceleration = (ball.x + along, ball.y + slope * along), SPRINT
        else:
            target, acceleration = end, WALK
        self.orientation = self.angle_to(target)
        self.accelerate(acceleration, self.orientation)


class GoalWorld:
    """Striker, keeper and ball; it begins at the start of an episode.

    Args:
        uniform: returns one random number in [0, 1) per call.
    """

    def __init__(self, uniform: Callable[[], float]):
        self.striker = Striker((0.0, FIELD_WIDTH * (uniform() - 0.5)), uniform)
        self.striker.orientation = angle = self.striker.angle_to((FIELD_LENGTH, 0.0))
        # Slightly inside the reach, so that rounding never makes the first kick impossible.
        reach = KICKABLE - 1e-12
        self.ball = Ball((reach * math.cos(angle), self.striker.y + reach * math.sin(angle)), uniform)
        # At the edge of the goal area, between the ball and the middle of the goal.
        share = GOAL_AREA_LENGTH / (FIELD_LENGTH - self.ball.x)
        self.keeper = Keeper((FIELD_LENGTH - GOAL_AREA_LENGTH, self.ball.y * share), uniform)
        self.keeper.orientation = self.keeper.angle_to((self.ball.x, self.ball.y))
        self.outcome: str | None = None
        self.path: list[Point] = []
        self.moments: list[Moment] | None = None  # a list while rendering: every substep is appended

    @property
    def moment(self) -> Moment:
        """The current positions of players and ball."""
        striker, keeper = ((body.x, body.y, body.orientation) for body in (self.striker, self.keeper))
        return striker, keeper, (self.ball.x, self.ball.y)

    def kick_to(self, target: Point) -> int:
        """Kick, and go on until the ball is slow and in reach again or the episode ends; return the substeps."""
        ball = self.ball
        return self._play(target, lambda: math.hypot(ball.vx, ball.vy) <= SLOW and self.striker.can_kick(ball))

    def shoot(self, height: float) -> int:
        """Kick at y = ``height`` on the goal line until the episode ends; return the number of substeps."""
        return self._play((FIELD_LENGTH + self.ball.radius, height), lambda: False)

    def _play(self, target: Point, enough: Callable[[], bool]) -> int:
        striker, keeper, ball = self.striker, self.keeper, self.ball
        self.path = [(ball.x, ball.y)]
        while True:
            if striker.can_kick(ball):
                striker.kick_to(ball, target)
            else:
                striker.approach(ball)
            keeper.guard(ball)
            for body in (striker, keeper, ball):
                body.move()
            striker.collide(keeper)
            striker.collide(ball)
            keeper.collide(ball)
            self.path.append((ball.x, ball.y))
            if self.moments is not None:
                self.moments.append(self.moment)
            self.outcome = self._outcome()
            if self.outcome or enough():
                return len(self.path) - 1

    def _outcome(self) -> str | None:
        if self.ball.in_goal():
            return "goal"
        if self.keeper.distance(self.ball) < CATCHABLE:
            return "saved"
        return None if self.ball.in_field() else "out"
