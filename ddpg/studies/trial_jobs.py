"""The cells of trials in processes, as those of a study; they come as they are proposed, and may be ended early."""

import contextlib
from collections.abc import Callable, Sequence

from ddpg.runs import signals
from ddpg.studies.cell_process import Engine
from ddpg.studies.study_folder import Place
from ddpg.studies.study_jobs import Job, Scheduler


class TrialScheduler(Scheduler):
    """A scheduler that is given cells, and told to end some, while it runs."""

    def __init__(self, engine: Engine, request: signals.Request, say: Callable[[str], None]):
        """Prepare; see :class:`~ddpg.studies.study_jobs.Scheduler`."""
        super().__init__([], engine, request, say)
        self._ended_early: set[Place] = set()

    @property
    def free(self) -> int:
        """How many more cells could be trained at once."""
        return self._engine.slots() - len(self.running) - len(self._waiting)

    def add(self, places: Sequence[Place]) -> None:
        """Take more cells."""
        self._waiting.extend(places)

    def is_busy(self, place: Place) -> bool:
        """Return whether a cell waits or is trained."""
        return place in self.running or place in self._waiting

    def end(self, place: Place) -> None:
        """Let a cell save and end, or never begin. It has not failed."""
        self._ended_early.add(place)
        with contextlib.suppress(ValueError):
            self._waiting.remove(place)
        job = self.running.get(place)
        if job is not None and job.process.poll() is None:
            job.process.terminate()

    def _ended(self, job: Job) -> None:
        if job.place in self._ended_early and job.process.returncode != 0:
            del self.running[job.place]
        else:
            super()._ended(job)
