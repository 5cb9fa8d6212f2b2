"""What is told while a tuning runs: lines, and on a terminal a bar over its trials."""

import sys
import time
from typing import Any

from ddpg import progress
from ddpg.progress import significant
from ddpg.studies.trials import Trials

_LOOK = 2.0  # seconds between looks at the trials


class TuningBar:
    """A bar over the trials that are over, with lines above it."""

    def __init__(self, wanted: int, shown: bool):
        """Show it.

        Args:
            wanted: how many trials there shall be.
            shown: whether there is a bar, where stderr is a terminal; the lines are always there.
        """
        self._shown = shown and sys.stderr.isatty()
        self._bar: Any = progress.bar(total=wanted, unit="trial", disable=not self._shown)
        self._looked = 0.0

    def __enter__(self) -> "TuningBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.write(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
        sys.stderr.flush()

    def move(self, trials: Trials, at_once: bool = False) -> None:
        """Move the bar to how many trials are over: now and then, or ``at_once``."""
        if self._shown and (at_once or time.monotonic() - self._looked >= _LOOK):
            self._looked = time.monotonic()
            best = trials.best
            if best is not None and best.value is not None:
                self._bar.set_postfix_str(f"best {significant(best.value)}", refresh=False)
            self._bar.update(sum(trial.state != "running" for trial in trials.all()) - self._bar.n)
