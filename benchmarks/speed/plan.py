"""Plan the measurements: their order, and which are still missing in the results."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from benchmarks.speed.kinds import KINDS
from benchmarks.speed.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement of ``peer`` in ``task`` on ``cores`` cores; ``repeat`` numbers repetitions and is the seed."""

    kind: str
    task: str
    cores: int
    peer: str
    repeat: int


def jobs(
    kinds: Sequence[str], tasks: Collection[str], cores: Collection[int], peers: Collection[str], repeats: int
) -> Iterator[Job]:
    """Yield all measurements once, then all again, and so on.

    Packages alternate within a kind, a task and a number of cores, so that changes in the machine's speed affect all.
    """
    for repeat in range(repeats):
        for kind in kinds:
            supported = [peer for peer in KINDS[kind].peers(kind) if peer in peers]
            for task in KINDS[kind].tasks:
                for count in KINDS[kind].cores:
                    if count in cores and (task in tasks or task not in TASKS):
                        yield from (Job(kind, task, count, peer, repeat) for peer in supported)


def remaining(planned: Sequence[Job], rows: Sequence[dict]) -> list[Job]:
    """Return the jobs that have no successful row yet; failed ones are tried again."""
    done = {job_of(row) for row in rows if "failed" not in row}
    return [job for job in planned if job not in done]


def job_of(row: dict) -> Job:
    """Return the job whose result a row holds."""
    return Job(**{field.name: row[field.name] for field in dataclasses.fields(Job)})
