"""Threads beside the caller's, for native functions that wait for each other.

Ctrl-C raises ``KeyboardInterrupt`` between any two steps of the main thread's Python, also within the methods and locks
of a ``ThreadPoolExecutor``. One of the functions would then wait for others that never come, on a core, without end.
What is called between here is C, which is not interrupted, and what is left undone is made up for.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any


class Helpers:
    """Threads that wait for work until this object is gone.

    Args:
        count: how many.
        name: of the threads, before their number.
    """

    def __init__(self, count: int, name: str):
        self._tasks: SimpleQueue = SimpleQueue()
        for number in range(count):
            threading.Thread(target=_serve, args=(self._tasks,), name=f"{name}-{number}", daemon=True).start()
        weakref.finalize(self, _dismiss, self._tasks, count)

    def together(self, function: Callable[..., Any], calls: Sequence[tuple]) -> None:
        """Make calls of a function at the same time, the first here; return when all have ended.

        Where this is interrupted, all of them have ended too.

        Args:
            function: a native one, which raises nothing.
            calls: the arguments of each, no more than there are helpers and one.
        """
        here, others = calls[0], calls[1:]
        waiting = iter(others)
        ended: list[None] = []
        over: SimpleQueue = SimpleQueue()

        def help_out() -> None:
            call = next(waiting, None)
            if call is not None:
                function(*call)
                ended.append(None)
                if len(ended) == len(others):
                    over.put(None)

        begun = False
        try:
            for _ in others:
                self._tasks.put(help_out)
            begun = True
            function(*here)
            over.get()
        except BaseException:
            for _ in others:  # how many had been asked is not known; one too many finds nothing to do
                self._tasks.put(help_out)
            if not begun:
                function(*here)
            if len(ended) < len(others):
                over.get()
            raise


def _serve(tasks: SimpleQueue) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # and what it was about, while there is nothing to do


def _dismiss(tasks: SimpleQueue, count: int) -> None:
    for _ in range(count):
        tasks.put(None)
