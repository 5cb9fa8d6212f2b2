"""The kinds of measurements: of which tasks, on how many cores, and what is told of each."""

import dataclasses

from benchmarks.speed.packages import OURS, OURS_EMPTY, OURS_PLUS, OURS_SINGLE, PEERS
from benchmarks.speed.tasks import CHEETAH, LEARNED, PENDULUM, REMEMBERED, SOON, STRONGER, TASKS, Task

MORE, LESS = "more", "less"  # what is better


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number that a script prints.

    Attributes:
        key: its name there.
        title: the head of its column, with the unit.
        better: more of it, or less.
        digits: behind the point.
    """

    key: str
    title: str
    better: str = LESS
    digits: int = 0


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is measured of every package.

    Attributes:
        says: what it is, in a sentence.
        tasks: by name.
        quantities: the first is the one by which packages are compared.
        cores: numbers of cores to which processes are pinned.
        without: peers for which it is nothing of its own.
        at_once: processes side by side, each pinned to a core of its own, whose first quantities are added.
        warmed: packages that keep what they compiled run once before, so that it is there.
        ours: the one of ours with which the others are compared.
    """

    says: str
    tasks: dict[str, Task]
    quantities: tuple[Quantity, ...]
    cores: tuple[int, ...] = (1, 2)
    without: tuple[str, ...] = ()
    at_once: int = 1
    warmed: bool = False
    ours: str = OURS

    def peers(self, name: str) -> list[str]:
        """Return the names of those that have a call for it; ``name`` is the kind's own."""
        special = {peer for peer, of_peer in PEERS.items() if of_peer.only == name}
        able = special or {
            peer for peer, of_peer in PEERS.items() if of_peer.only is None and name not in of_peer.lacks
        }
        return [peer for peer in PEERS if peer in able and peer not in self.without]


_RATE = Quantity("steps_per_second", "steps/s", MORE)
_CPU = Quantity("cpu_seconds_per_1000_steps", "CPU s per 1,000 steps", digits=2)
_FEW = {name: TASKS[name] for name in (PENDULUM, CHEETAH)}
_EMPTY_AND_SLOW = (OURS_EMPTY, "ours, uncompiled")
# Whose only difference is in training: how often, or by what, updates are made.
_SAME_OTHERWISE = (*_EMPTY_AND_SLOW, OURS_SINGLE, "ours, XLA", "SBX, 32 updates per 32 steps")

KINDS = {
    "training": Kind(
        "Whole training at one update a step, after everything is compiled",
        TASKS,
        (_RATE, _CPU, Quantity("megabytes", "peak memory, MB")),
        without=(OURS_EMPTY,),
    ),
    "stronger": Kind(
        "Whole training of recipe plus beside stronger algorithms than DDPG, each with its package's options",
        {"HalfCheetah": STRONGER},
        (_RATE, _CPU, Quantity("megabytes", "peak memory, MB")),
        ours=OURS_PLUS,
    ),
    "seeds": Kind(
        "Two seeds at once, a core each: their steps together, to compare with one seed on both cores",
        {CHEETAH: TASKS[CHEETAH]},
        (_RATE, _CPU),
        cores=(2,),
        without=_SAME_OTHERWISE,
        at_once=2,
    ),
    "learner": Kind(
        "Updates alone, from a filled memory, minibatches drawn",
        TASKS,
        (Quantity("updates_per_second", "updates/s", MORE),),
        without=(OURS_EMPTY, OURS_SINGLE, "SBX, 32 updates per 32 steps"),
    ),
    "acting": Kind(
        "The action for one observation, as the package's user asks for it",
        _FEW,
        (Quantity("microseconds", "µs, median", digits=1),),
        cores=(1,),
        without=_SAME_OTHERWISE,
    ),
    "memory": Kind(
        "What the process grows by for each transition remembered (17 observations, 6 actions)",
        {"200,000 transitions": REMEMBERED},
        (Quantity("bytes_per_transition", "bytes a transition"),),
        cores=(1,),
        without=_SAME_OTHERWISE,
    ),
    "start": Kind(
        "From the command's start until the package is imported, and until 64 steps with updates are done after 100 "
        "without",
        {PENDULUM: SOON},
        (
            Quantity("first_updates_seconds", "s to the first updates", digits=2),
            Quantity("import_seconds", "s to import", digits=2),
        ),
        without=(OURS_SINGLE, "SBX, 32 updates per 32 steps"),
        cores=(2,),
        warmed=True,
    ),
    "solve": Kind(
        "Pendulum until an evaluation (10 episodes of fixed seeds, every 500 steps, its own time not counted) has a "
        "mean return of at least -200",
        {PENDULUM: LEARNED},
        (
            Quantity("seconds", "s from the command's start", digits=1),
            Quantity("training_seconds", "s from the first step", digits=1),
            Quantity("steps", "steps"),
            Quantity("evaluation_seconds", "s of evaluation, not counted", digits=1),
        ),
        without=(OURS_SINGLE,),
        cores=(2,),
        warmed=True,
    ),
}


def compared(name: str) -> Quantity:
    """Return the quantity by which packages are compared, of the kind ``name``."""
    return KINDS[name].quantities[0]


__all__ = ["KINDS", "LESS", "MORE", "OURS", "Kind", "Quantity", "compared"]
