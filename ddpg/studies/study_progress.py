"""Progress lines and bar of a running study or tuning."""

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

LOOK = 2.0  # seconds between looks at how far it is


class ProgressLines:
    """Lines above a bar.

    Args:
        shown: whether there is a bar, where stderr is a terminal; the lines are always there.
        bar: of :func:`ddpg.progress.tqdm_bar`.
    """

    def __init__(self, shown: bool, **bar: Any):
        self._shown = shown and sys.stderr.isatty()
        self._bar: Any = progress.tqdm_bar(disable=not self._shown, **bar)
        self._looked = 0.0

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.write(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)
        sys.stderr.flush()

    def _looks(self, at_once: bool = False) -> bool:
        """Tell whether the bar is to be moved: now and then, or ``at_once``."""
        if not self._shown or not (at_once or time.monotonic() - self._looked >= LOOK):
            return False
        self._looked = time.monotonic()
        return True


class StudyProgress(ProgressLines):
    """A bar over the steps of all cells."""

    def __init__(self, places: Sequence[CellFolder], shown: bool):
        self._steps: dict[CellFolder, int] = {}
        total = sum(place.cell.group.total_timesteps for place in places)
        super().__init__(shown, total=total, unit="step", unit_scale=True, smoothing=0.1)
        if self._shown:
            self._steps = {place: place.steps for place in places}
            self._bar.initial = self._bar.n = sum(self._steps.values())

    def look(self) -> None:
        """Move the bar to where the cells are."""
        if self._looks():
            left = [place for place, steps in self._steps.items() if steps < place.cell.group.total_timesteps]
            self._steps |= {place: place.steps for place in left}
            self._bar.update(sum(self._steps.values()) - self._bar.n)


class TuningProgress(ProgressLines):
    """A bar over the trials that are over."""

    def __init__(self, wanted: int, shown: bool):
        super().__init__(shown, total=wanted, unit="trial")

    def move(self, trials: Trials, at_once: bool = False) -> None:
        """Move the bar to how many trials are over; not every time, but ``at_once``."""
        if self._looks(at_once):
            best = trials.best
            if best is not None and best.value is not None:
                self._bar.set_postfix_str(f"best {format_number(best.value)}", refresh=False)
            self._bar.update(sum(trial.state != "running" for trial in trials.all()) - self._bar.n)
