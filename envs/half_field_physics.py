"""One player and one ball on the offensive half of a RoboCup 2D pitch: the server's motion model, simplified.

The constants are the defaults of ``rcssserver`` 15.2, the server of Half Field Offense; ``docs/environments.md`` lists
which of its rules are kept and which are left out. Units: metres, radians, and cycles of 0.1 s. The axes are the
server's: the goal is at x = 52.5, y grows to the right of a player who faces the goal, and angles grow with y.

The code uses plain floats and ``math``, because one NumPy call on two numbers takes longer than a whole cycle here.
"""

import math

HALF_LENGTH, HALF_WIDTH, HALF_GOAL = 52.5, 34.0, 14.02 / 2
MARGIN = 5.0

PLAYER_SIZE, PLAYER_DECAY, PLAYER_SPEED_MAX = 0.3, 0.4, 1.05
BALL_SIZE, BALL_DECAY, BALL_SPEED_MAX = 0.085, 0.94, 3.0
CONTACT = PLAYER_SIZE + BALL_SIZE
KICKABLE_MARGIN = 0.7
KICKABLE = CONTACT + KICKABLE_MARGIN

DASH_POWER_RATE, SIDE_DASH_RATE, BACK_DASH_RATE = 0.006, 0.4, 0.6
INERTIA_MOMENT = 5.0
KICK_POWER_RATE = 0.027
TACKLE_POWER_RATE, TACKLE_POWER_MAX = 0.027, 100.0
TACKLE_LENGTH, TACKLE_WIDTH, TACKLE_EXPONENT, TACKLE_CYCLES = 2.0, 1.25, 6, 10

PLAYER_SPEED, BALL_SPEED = PLAYER_SPEED_MAX * PLAYER_DECAY, BALL_SPEED_MAX * BALL_DECAY  # left after a cycle, at most

_ROUNDING = 1e-9  # tolerance for rounding, e.g. so that two bodies that were pushed apart no longer overlap


class World:
    """Positions (m) and velocities (m/cycle) of player and ball, and the effects of actions on them.

    One cycle is one action, then ``advance``. Velocities are those after the cycle's decay.

    Attributes:
        heading: direction of the player's body, in [−π, π]; 0 is towards the goal line.
        frozen: remaining cycles in which the player cannot act after a tackle.
    """

    __slots__ = (
        "ball_vx",
        "ball_vy",
        "ball_x",
        "ball_y",
        "frozen",
        "heading",
        "player_vx",
        "player_vy",
        "player_x",
        "player_y",
    )

    def __init__(self, player_x=0.0, player_y=0.0, heading=0.0, ball_x=10.0, ball_y=0.0):
        self.player_x, self.player_y, self.heading = player_x, player_y, heading
        self.ball_x, self.ball_y = ball_x, ball_y
        self.player_vx = self.player_vy = self.ball_vx = self.ball_vy = 0.0
        self.frozen = 0
        self._push_apart()

    # -- the four actions: powers in [0, 100], directions in degrees relative to the body ------------------

    def dash(self, power: float, direction: float) -> None:
        """Accelerate; the effect is full forward, 0.4 of that sideways, 0.6 backwards, and linear in between."""
        off = abs(direction) / 90.0
        if off <= 1.0:
            rate = 1.0 - (1.0 - SIDE_DASH_RATE) * off
        else:
            rate = SIDE_DASH_RATE + (BACK_DASH_RATE - SIDE_DASH_RATE) * (off - 1.0)
        acceleration, angle = power * DASH_POWER_RATE * rate, self.heading + math.radians(direction)
        vx = self.player_vx + acceleration * math.cos(angle)
        vy = self.player_vy + acceleration * math.sin(angle)
        self.player_vx, self.player_vy = _capped(vx, vy, PLAYER_SPEED_MAX)

    def turn(self, direction: float) -> None:
        """Turn the body; a faster player turns by less."""
        speed = math.hypot(self.player_vx, self.player_vy)
        turned = self.heading + math.radians(direction) / (1.0 + INERTIA_MOMENT * speed)
        self.heading = math.remainder(turned, math.tau)

    def kick(self, power: float, direction: float) -> None:
        """Accelerate the ball if it is kickable, with less effect if it is beside, behind or far from the player."""
        distance = self.ball_distance()
        if distance > KICKABLE:
            return
        aside, gap = abs(self.ball_angle()) / math.pi, (distance - CONTACT) / KICKABLE_MARGIN
        self._shoot(power * KICK_POWER_RATE * (1.0 - 0.25 * aside - 0.25 * gap), direction)

    def tackle(self, direction: float) -> None:
        """Hit the ball if it is within two metres in front of the player; then lie still for nine cycles.

        In the server a tackle fails at random, with a probability that grows from 0 at the player to 1 at the edge of
        this area; here it fails if that probability is at least one half.
        """
        self.frozen = TACKLE_CYCLES - 1
        distance, angle = self.ball_distance(), self.ball_angle()
        ahead, aside = distance * math.cos(angle), distance * math.sin(angle)
        if ahead <= 0.0:
            return
        failure = (ahead / TACKLE_LENGTH) ** TACKLE_EXPONENT + (abs(aside) / TACKLE_WIDTH) ** TACKLE_EXPONENT
        if failure < 0.5:
            power = TACKLE_POWER_MAX * (1.0 - abs(direction) / 180.0)
            self._shoot(power * TACKLE_POWER_RATE * (1.0 - 0.5 * abs(angle) / math.pi), direction)

    def _shoot(self, acceleration: float, direction: float) -> None:
        angle = self.heading + math.radians(direction)
        vx = self.ball_vx + acceleration * math.cos(angle)
        vy = self.ball_vy + acceleration * math.sin(angle)
        self.ball_vx, self.ball_vy = _capped(vx, vy, BALL_SPEED_MAX)

    # -- one cycle -----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Move both bodies by their velocities, then decay the velocities; overlapping bodies bounce off each other."""
        self.player_x += self.player_vx
        self.player_y += self.player_vy
        self.player_vx *= PLAYER_DECAY
        self.player_vy *= PLAYER_DECAY
        self._stay_near_the_pitch()
        self.ball_x += self.ball_vx
        self.ball_y += self.ball_vy
        self.ball_vx *= BALL_DECAY
        self.ball_vy *= BALL_DECAY
        if self._push_apart():
            self.player_vx *= -0.1
            self.player_vy *= -0.1
            self.ball_vx *= -0.1
            self.ball_vy *= -0.1

    def _stay_near_the_pitch(self) -> None:
        if self._player_near():
            return
        x = min(max(self.player_x, -MARGIN), HALF_LENGTH + MARGIN)
        y = min(max(self.player_y, -HALF_WIDTH - MARGIN), HALF_WIDTH + MARGIN)
        if x != self.player_x:
            self.player_x, self.player_vx = x, 0.0
        if y != self.player_y:
            self.player_y, self.player_vy = y, 0.0

    def _player_near(self) -> bool:
        return -MARGIN <= self.player_x <= HALF_LENGTH + MARGIN and abs(self.player_y) <= HALF_WIDTH + MARGIN

    def _push_apart(self) -> bool:
        """If the bodies overlap, move both equally until they only touch; return whether they overlapped."""
        dx, dy = self.ball_x - self.player_x, self.ball_y - self.player_y
        distance = math.hypot(dx, dy)
        if distance >= CONTACT:
            return False
        if distance > 0.0:
            dx, dy = dx / distance, dy / distance
        else:
            dx, dy = math.cos(self.heading), math.sin(self.heading)
        middle_x, middle_y = (self.player_x + self.ball_x) / 2, (self.player_y + self.ball_y) / 2
        half = CONTACT / 2 + _ROUNDING
        self.player_x, self.player_y = middle_x - half * dx, middle_y - half * dy
        self.ball_x, self.ball_y = middle_x + half * dx, middle_y + half * dy
        return True

    # -- derived quantities and rules ----------------------------------------------------------------------

    def ball_distance(self) -> float:
        """Return the distance between the centres of player and ball (m)."""
        return math.hypot(self.ball_x - self.player_x, self.ball_y - self.player_y)

    def ball_angle(self) -> float:
        """Return the direction of the ball relative to the body, in [−π, π]; positive on the right."""
        seen = math.atan2(self.ball_y - self.player_y, self.ball_x - self.player_x)
        return math.remainder(seen - self.heading, math.tau)

    def goal_distance(self) -> float:
        """Return the distance between the ball and the middle of the goal (m)."""
        return math.hypot(self.ball_x - HALF_LENGTH, self.ball_y)

    def kickable(self) -> bool:
        """Return whether the ball is near enough to kick."""
        return self.ball_distance() <= KICKABLE

    def scored(self, before_x: float, before_y: float) -> bool:
        """Return whether the ball's centre, coming from ``before``, has crossed the goal line between the posts."""
        if self.ball_x <= HALF_LENGTH:
            return False
        share = (HALF_LENGTH - before_x) / (self.ball_x - before_x)
        return abs(before_y + share * (self.ball_y - before_y)) <= HALF_GOAL

    def ball_out(self) -> bool:
        """Return whether the ball's centre has left the offensive half, including into the goal."""
        return not (0.0 <= self.ball_x <= HALF_LENGTH and abs(self.ball_y) <= HALF_WIDTH)

    def can_occur(self) -> bool:
        """Return whether an episode that has not ended can be in this state."""
        speed, ball_speed = math.hypot(self.player_vx, self.player_vy), math.hypot(self.ball_vx, self.ball_vy)
        slow = speed <= PLAYER_SPEED + _ROUNDING and ball_speed <= BALL_SPEED + _ROUNDING
        return slow and self._player_near() and not self.ball_out() and 0 <= self.frozen < TACKLE_CYCLES


def _capped(vx: float, vy: float, limit: float) -> tuple[float, float]:
    """Shorten a velocity to ``limit``, keeping its direction."""
    speed = math.hypot(vx, vy)
    return (vx, vy) if speed <= limit else (vx * limit / speed, vy * limit / speed)
