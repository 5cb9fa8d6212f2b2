"""What is to be measured, in which order, and what of it is there already."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from benchmarks.speed.kinds import KINDS
from benchmarks.speed.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement: how ``peer`` does ``task`` on ``cores`` cores, for the time ``repeat``; also its seed."""

    kind: str
    task: str
    cores: int
    peer: str
    repeat: int


def jobs(
    kinds: Sequence[str], tasks: Collection[str], cores: Collection[int], peers: Collection[str], repeats: int
) -> Iterator[Job]:
    """Yield all that is asked for, everything once before anything again.

    A machine that drifts then does so for all: the packages alternate within a kind, a task and a number of cores.
    """
    for repeat in range(repeats):
        for kind in kinds:
            able = [peer for peer in KINDS[kind].peers(kind) if peer in peers]
            for task in KINDS[kind].tasks:
                for count in KINDS[kind].cores:
                    if count in cores and (task in tasks or task not in TASKS):
                        yield from (Job(kind, task, count, peer, repeat) for peer in able)


def left(planned: Sequence[Job], rows: Sequence[dict]) -> list[Job]:
    """Return the jobs of which ``rows`` have no number yet; what failed is tried again."""
    done = {job_of(row) for row in rows if "failed" not in row}
    return [job for job in planned if job not in done]


def job_of(row: dict) -> Job:
    """Return the job that a row of results is of."""
    return Job(**{field.name: row[field.name] for field in dataclasses.fields(Job)})
