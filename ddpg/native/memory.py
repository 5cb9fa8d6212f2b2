"""What steps leave to each other in memory, and what is cheaper computed again from what is there."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from ddpg.native.program import COMPUTED, Item, Value, Write
from ddpg.native.schedule import Loop, Step, arguments_of, is_sum, members_of

CHEAP = {"add", "sub", "mul", "neg", "relu", "max", "min", "same"}  # as fast as reading a number
MOST = 8  # of them, to get one number again


def in_memory(steps: Sequence[Step], outputs: Iterable[Value]) -> list[Value]:
    """Return the computed values that are kept in memory, in the order of computing.

    They are those that something outside their own loop reads, but for what a few cheap operations on one other value
    that is there give again: writing it would cost more.
    """
    home = {id(member): step for step in steps if isinstance(step, Loop) for member in step.members}
    kept = {id(value.base) for value in outputs}
    needed = set(kept)  # in memory itself
    for step in steps:
        for item in members_of(step):
            for argument in arguments_of(item):
                inside = home.get(id(argument.base)) is step and isinstance(step, Loop)
                if not inside or argument.kind == "view" or is_sum(argument):
                    kept.add(id(argument.base))
                in_place = isinstance(step, Loop) and argument.shape == step.space and not _windows(item)
                if not in_place or argument.kind == "view":
                    needed.add(id(argument.base))
    values = [item for step in steps for item in members_of(step) if isinstance(item, Value) and id(item) in kept]
    order = _Order(steps)
    for value in values:
        if id(value) not in needed and order.gives_again(value, kept):
            kept.remove(id(value))
    return [value for value in values if id(value) in kept]


def sources(item: Item, kept: Collection[int]) -> Iterator[Value]:
    """Yield what computing ``item`` reads, or what is there where an argument is computed again."""
    for argument in arguments_of(item):
        if argument.kind == "map" and id(argument) not in kept:
            yield from sources(argument, kept)
        else:
            yield argument


class _Order:
    """When values are read, and variables overwritten."""

    def __init__(self, steps: Sequence[Step]):
        self._read: dict[int, int] = {}  # the last step that does
        self._overwritten: dict[tuple[int, int], int] = {}
        for index, step in enumerate(steps):
            for item in members_of(step):
                self._read |= {id(argument.base): index for argument in arguments_of(item)}
                if isinstance(item, Write):
                    self._overwritten[item.variable, item.version] = index

    def gives_again(self, value: Value, kept: Collection[int]) -> bool:
        """Tell whether ``value`` may be computed where it is read, and take note of what that reads."""
        operations, read = self._operations(value, kept, self._read[id(value)])
        if operations > MOST or len({id(source) for source in read if source.shape == value.shape}) != 1:
            return False
        for source in read:
            self._read[id(source.base)] = max(self._read.get(id(source.base), 0), self._read[id(value)])
        return True

    def _operations(self, value: Value, kept: Collection[int], until: int) -> tuple[float, list[Value]]:
        """Return how many operations give ``value``, infinite where it cannot be, and what they read."""
        if value.kind != "map" or value.detail not in CHEAP:
            return math.inf, []
        operations = 1.0
        read: list[Value] = []
        for argument in value.arguments:
            base = argument.base
            if argument.kind == "literal":
                continue
            if base.kind == "stored" and self._overwritten.get(base.detail, math.inf) <= until:
                return math.inf, []
            if base.kind in COMPUTED and id(base) not in kept:
                more, other = self._operations(argument, kept, until)
                operations, read = operations + more, [*read, *other]
            else:
                read.append(argument)
        return operations, read


def _windows(item: Item) -> bool:
    return isinstance(item, Value) and item.kind == "window"
