"""The kinds of measurements: their tables' titles and columns, tasks, numbers of cores, and excluded packages."""

import dataclasses

from benchmarks.speed.packages import (
    OURS,
    OURS_BFLOAT16,
    OURS_BFLOAT16X3,
    OURS_DQN,
    OURS_EMPTY,
    OURS_PLUS,
    OURS_SINGLE,
    PEERS,
)
from benchmarks.speed.tasks import CHEETAH, DISCRETE, LEARNED, PENDULUM, REMEMBERED, SOON, STRONGER, TASKS, Task

MORE, LESS = "more", "less"  # which is better


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number that a script prints.

    Attributes:
        key: its key in the script's JSON.
        title: the column's heading, with the unit.
        better: whether ``MORE`` or ``LESS`` is better.
        digits: number of decimals.
    """

    key: str
    title: str
    better: str = LESS
    digits: int = 0


@dataclasses.dataclass(frozen=True)
class Kind:
    """A measurement that is made of every package.

    Attributes:
        title: of the table, in one sentence.
        tasks: by name.
        quantities: packages are compared by the first one.
        cores: numbers of cores to which processes are pinned.
        excluded: peers that are not measured, since they would repeat another peer's measurement.
        processes: processes that run at the same time, each pinned to its own core; their first quantities are added.
        warm_cache: whether packages that cache compiled code on disk run once before the measurement.
        ours: the variant of this package with which the others are compared.
    """

    title: str
    tasks: dict[str, Task]
    quantities: tuple[Quantity, ...]
    cores: tuple[int, ...] = (1, 2)
    excluded: tuple[str, ...] = ()
    processes: int = 1
    warm_cache: bool = False
    ours: str = OURS

    def peers(self, name: str) -> list[str]:
        """Return the names of the peers that support this measurement; ``name`` is this kind's key in ``KINDS``."""
        special = {peer for peer, of_peer in PEERS.items() if of_peer.only == name}
        supported = special or {
            peer for peer, of_peer in PEERS.items() if of_peer.only is None and name not in of_peer.lacks
        }
        return [peer for peer in PEERS if peer in supported and peer not in self.excluded]


_RATE = Quantity("steps_per_second", "steps/s", MORE)
_CPU = Quantity("cpu_seconds_per_1000_steps", "CPU s per 1,000 steps", digits=2)
_OF_TRAINING = _RATE, _CPU, Quantity("megabytes", "peak memory, MB")
_TWO_TASKS = {name: TASKS[name] for name in (PENDULUM, CHEETAH)}
_EMPTY_AND_UNCOMPILED = (OURS_EMPTY, "ours, uncompiled")
_NARROW = (OURS_BFLOAT16, OURS_BFLOAT16X3)
# Peers that differ from another one only in how updates are compiled or grouped.
_SAME_BUT_FOR_UPDATES = (
    *_EMPTY_AND_UNCOMPILED,
    OURS_SINGLE,
    *_NARROW,
    "ours, XLA",
    "SBX, 32 updates per 32 steps",
)

KINDS = {
    "training": Kind(
        "Training: one environment, one update per step; compilation is not counted",
        TASKS,
        _OF_TRAINING,
        excluded=(OURS_EMPTY,),
    ),
    "stronger": Kind(
        "Training with stronger algorithms than DDPG: recipe plus, and other packages' algorithms with their defaults",
        {"HalfCheetah": STRONGER},
        _OF_TRAINING,
        ours=OURS_PLUS,
    ),
    "dqn": Kind(
        "Training with DQN: one environment, one update per step; compilation is not counted",
        {"CartPole 64-64": DISCRETE},
        _OF_TRAINING,
        ours=OURS_DQN,
    ),
    "seeds": Kind(
        "Two seeds at the same time, one core each: the sum of their steps/s, to compare with one seed on two cores",
        {CHEETAH: TASKS[CHEETAH]},
        (_RATE, _CPU),
        cores=(2,),
        excluded=_SAME_BUT_FOR_UPDATES,
        processes=2,
    ),
    "learner": Kind(
        "Updates alone, including the drawing of minibatches from the replay memory",
        TASKS,
        (Quantity("updates_per_second", "updates/s", MORE),),
        excluded=(OURS_EMPTY, OURS_SINGLE, "SBX, 32 updates per 32 steps"),
    ),
    "acting": Kind(
        "Acting: the call that a user makes for one observation",
        _TWO_TASKS,
        (Quantity("microseconds", "µs, median", digits=1),),
        cores=(1,),
        excluded=_SAME_BUT_FOR_UPDATES,
    ),
    "memory": Kind(
        "Memory: growth of the process per stored transition (17 observations, 6 actions)",
        {"200,000 transitions": REMEMBERED},
        (Quantity("bytes_per_transition", "bytes per transition"),),
        cores=(1,),
        excluded=_SAME_BUT_FOR_UPDATES,
    ),
    "start": Kind(
        "Start: from the command until the package is imported, and until 100 random steps and 64 steps with updates "
        "are done",
        {PENDULUM: SOON},
        (
            Quantity("first_updates_seconds", "s to the first updates", digits=2),
            Quantity("import_seconds", "s to import", digits=2),
        ),
        excluded=(OURS_SINGLE, *_NARROW, "SBX, 32 updates per 32 steps"),
        cores=(2,),
        warm_cache=True,
    ),
    "solve": Kind(
        "Time to a goal: Pendulum until an evaluation has a mean return of at least -200 (10 episodes of fixed seeds, "
        "every 500 steps; their time is not counted)",
        {PENDULUM: LEARNED},
        (
            Quantity("seconds", "s from the command's start", digits=1),
            Quantity("training_seconds", "s from the first step", digits=1),
            Quantity("steps", "steps"),
            Quantity("evaluation_seconds", "s of evaluation, not counted", digits=1),
        ),
        excluded=(OURS_SINGLE, OURS_BFLOAT16),
        cores=(2,),
        warm_cache=True,
    ),
}


def main_quantity(name: str) -> Quantity:
    """Return the quantity by which the kind ``name`` compares packages."""
    return KINDS[name].quantities[0]
