"""Show the progress of a study or tuning: a progress bar, and above it a line for each event."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpg import progress
from ddpg.progress import format_number
from ddpg.studies.study_folder import CellFolder
from ddpg.studies.trials import Trials

if TYPE_CHECKING:
    from typing_extensions import Self

REFRESH_INTERVAL = 2.0  # seconds


class ProgressLines:
    """A progress bar with lines of text above it.

    Args:
        shown: show the bar if stderr is a terminal; lines are always written.
        bar: arguments of :func:`ddpg.progress.tqdm_bar`.
    """

    def __init__(self, shown: bool, **bar: Any):
        self._shown = shown and sys.stderr.isatty()
        self._bar: Any = progress.tqdm_bar(disable=not self._shown, **bar)
        self._refreshed_at = 0.0

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.write(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
        sys.stderr.flush()

    def _is_refresh_due(self, at_once: bool = False) -> bool:
        """Return whether to update the bar now; always if ``at_once``."""
        if not self._shown or not (at_once or time.monotonic() - self._refreshed_at >= REFRESH_INTERVAL):
            return False
        self._refreshed_at = time.monotonic()
        return True


class StudyProgress(ProgressLines):
    """A bar over the steps of all cells."""

    def __init__(self, folders: Sequence[CellFolder], shown: bool):
        self._steps: dict[CellFolder, int] = {}
        total = sum(folder.cell.group.total_timesteps for folder in folders)
        super().__init__(shown, total=total, unit="step", unit_scale=True, smoothing=0.1)
        if self._shown:
            self._steps = {folder: folder.steps for folder in folders}
            self._bar.initial = self._bar.n = sum(self._steps.values())

    def look(self) -> None:
        """Move the bar to the cells' current steps."""
        if self._is_refresh_due():
            left = [folder for folder, steps in self._steps.items() if steps < folder.cell.group.total_timesteps]
            self._steps |= {folder: folder.steps for folder in left}
            self._bar.update(sum(self._steps.values()) - self._bar.n)


class TuningProgress(ProgressLines):
    """A bar over the finished trials."""

    def __init__(self, wanted: int, shown: bool):
        super().__init__(shown, total=wanted, unit="trial")

    def move(self, trials: Trials, at_once: bool = False) -> None:
        """Move the bar to the number of finished trials, at most every few seconds unless ``at_once``."""
        if self._is_refresh_due(at_once):
            best = trials.best
            if best is not None and best.value is not None:
                self._bar.set_postfix_str(f"best {format_number(best.value)}", refresh=False)
            self._bar.update(sum(trial.state != "running" for trial in trials.all()) - self._bar.n)
