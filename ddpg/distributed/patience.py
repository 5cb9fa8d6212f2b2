"""How long a worker may take for a rollout before it is taken to hang: many times the longest that any has taken."""

from ddpg.errors import UsageError

FACTOR = 10.0  # times the longest rollout so far
LEAST = 60.0  # seconds, whatever the rollouts took: an environment may now and then load something


class Patience:
    """Learns from the rollouts that come how long one may take.

    Until the first has come nothing is known, and nobody hangs: an environment may compile in its first step.

    Args:
        least: seconds that any rollout may take.

    Raises:
        UsageError: they are none.
    """

    def __init__(self, least: float = LEAST):
        if not least > 0:
            raise UsageError(f"rollout_timeout={least!r} must be seconds, more than 0")
        self._least = least
        self._longest: float | None = None

    def note(self, seconds: float) -> None:
        """Take note of what a rollout took its worker."""
        self._longest = max(seconds, self._longest or 0.0)

    @property
    def seconds(self) -> float | None:
        """What a rollout may take; ``None``: as long as it likes."""
        return None if self._longest is None else max(self._least, FACTOR * self._longest)
