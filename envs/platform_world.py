"""The rules of the platform domain: geometry, motion, collisions. See ``platform.PlatformEnv``."""

from collections.abc import Callable

Moment = tuple[float, float, float, float]  # the player's x and y, and the enemies' x

PLATFORMS = ((0.0, 250.0), (475.0, 275.0), (985.0, 50.0))  # left edge and width of each
TOTAL_WIDTH = 1035.0
GROUND = 40.0  # height of a platform's top
BODY_WIDTH, BODY_HEIGHT = 20.0, 30.0  # of player and enemies, whose positions are those of their lower left corners

DT = 0.05  # s
GRAVITY = 9.8
DECAY = 0.99  # of the player's horizontal speed, per substep
MAX_PUSH = 30.0  # maximum change of the horizontal speed in one substep
MAX_SPEED = 70.0
ENEMY_SPEED = 30.0
SPEED_NOISE = 0.5 * DT  # standard deviation per substep, of player and enemies
JUMP_NOISE = 1.0
RUN_SUBSTEPS = 20  # one second

SECOND_PLATFORM = PLATFORMS[1][0]

RUN, HOP, LEAP = range(3)
RISE = {HOP: 35.0, LEAP: 25.0}  # vertical speed at take-off


class Enemy:
    """An enemy that patrols its platform and turns around at the edges."""

    def __init__(self, platform: tuple[float, float]):
        left, width = platform
        self.left, self.right = left, left + width - BODY_WIDTH
        self.x, self.speed = self.right, -ENEMY_SPEED

    def move(self, noise: float) -> None:
        """Move for one substep; ``noise`` is a standard normal number."""
        x, speed = self.x, self.speed
        if not self.left < x < self.right:
            speed = -speed
        # Comparisons instead of min and max, whose calls would take most of this method's time.
        speed += SPEED_NOISE * noise
        if speed > ENEMY_SPEED:
            speed = ENEMY_SPEED
        elif speed < -ENEMY_SPEED:
            speed = -ENEMY_SPEED
        x += speed * DT
        if x > self.right:
            x = self.right
        elif x < self.left:
            x = self.left
        self.x, self.speed = x, speed


class PlatformWorld:
    """One player, two enemies, three platforms.

    Args:
        normal: returns one standard normal number per call.
    """

    def __init__(self, normal: Callable[[], float]):
        self.normal = normal
        self.x, self.y, self.vx, self.vy = 0.0, GROUND, 0.0, 0.0
        self.enemies = [Enemy(platform) for platform in PLATFORMS[:2]]
        self.outcome: str | None = None
        self.path: list[tuple[float, float]] = []
        self.moments: list[Moment] | None = None  # a list while rendering: every substep is appended

    @property
    def moment(self) -> Moment:
        """The current positions of player and enemies."""
        first, second = self.enemies
        return self.x, self.y, first.x, second.x

    @property
    def enemy(self) -> Enemy:
        """The enemy near the player; the other one stands still."""
        return self.enemies[self.x > SECOND_PLATFORM]

    def act(self, action: int, parameter: float) -> int:
        """Run for a second, or jump until landing; return the number of substeps.

        If the player has run off a platform, every action only lets it fall. ``outcome`` is set if the episode ends
        within the action; ``path`` holds the player's positions.
        """
        self.path = [(self.x, self.y)]
        substeps = 0
        while True:
            if self.y == GROUND and self._above_platform():
                self._push_off(action, parameter)
            else:
                self.vx -= SPEED_NOISE * abs(self.normal())
                self.vy -= GRAVITY * DT
            if self.vx < 0.0:
                self.vx = 0.0
            self._move()
            self.path.append((self.x, self.y))
            if self.moments is not None:
                self.moments.append(self.moment)
            substeps += 1
            # During most of a jump the player is too high for anything that could end it.
            if action != RUN and self.y >= GROUND + BODY_HEIGHT and self.x < TOTAL_WIDTH:
                continue
            self.outcome = self._outcome()
            landed = self.y == GROUND and self._above_platform()
            if self.outcome or (substeps == RUN_SUBSTEPS if action == RUN else landed):
                return substeps

    def _move(self) -> None:
        """Move the player and the enemy for one substep."""
        enemy = self.enemy
        self.x += self.vx * DT
        self.y += self.vy * DT
        self.vx *= DECAY
        enemy.move(self.normal())
        if self.x > TOTAL_WIDTH:
            self.x = TOTAL_WIDTH
        if self.y < GROUND:
            self._land()

    def _above_platform(self) -> bool:
        return any(-BODY_WIDTH <= self.x - left <= width for left, width in PLATFORMS)

    def _push_off(self, action: int, parameter: float) -> None:
        """Gain speed: a run's parameter, or the speed with which a jump would reach its distance without friction.

        Noise only ever reduces the speed.
        """
        push = parameter
        if action != RUN:
            seconds = 2 * RISE[action] / GRAVITY + 1
            push = parameter / seconds - self.vx - JUMP_NOISE * abs(self.normal())
            self.vy += RISE[action] - JUMP_NOISE * abs(self.normal())
        push = min(max(push, -MAX_PUSH), MAX_PUSH)
        self.vx = min(self.vx + push - SPEED_NOISE * abs(self.normal()), MAX_SPEED)

    def _land(self) -> None:
        """Push a player who overlaps a platform out of it by the shortest way: up onto it, or sideways into the gap."""
        sink = GROUND - self.y
        for left, width in PLATFORMS:
            if not left - BODY_WIDTH < self.x < left + width:
                continue
            self.vx = 0.0
            if self.x < left and self.x - (left - BODY_WIDTH) < sink:
                self.x = left - BODY_WIDTH
            elif self.x > left + width - BODY_WIDTH and left + width - self.x < sink:
                self.x = left + width
            else:
                self.y, self.vy = GROUND, 0.0

    def _outcome(self) -> str | None:
        """Return the outcome if the episode ends here, else None; reaching the end takes precedence."""
        if self.x >= TOTAL_WIDTH:
            return "finished"
        if self.y < GROUND:
            return "fell"
        if self.y < GROUND + BODY_HEIGHT and any(abs(self.x - enemy.x) < BODY_WIDTH for enemy in self.enemies):
            return "enemy"
        return None
