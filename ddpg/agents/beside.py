"""One thing done in a thread while the caller does another, for what spends its time outside Python."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")


class Beside:
    """A thread of its own, to be had by :func:`beside`."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._answers: queue.SimpleQueue = queue.SimpleQueue()

    def both(self, there: Callable[[], Result], here: Callable[[], Any]) -> Result:
        """Call ``there`` in the thread and ``here`` in this one, and wait for both.

        Returns:
            What ``there`` returned.

        Raises:
            BaseException: what ``here`` raised, once ``there`` has ended too; otherwise what ``there`` raised.
        """
        self._asked.put(there)
        del there
        try:
            here()
        finally:
            result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def serve(self) -> None:
        """Call what is asked for until that is nothing: the thread's life."""
        while (there := self._asked.get()) is not None:
            result = error = None
            try:
                result = there()
            except BaseException as raised:
                error = raised
            del there  # or it would keep what it knows until the next one
            self._answers.put((result, error))
            del result, error

    def end(self) -> None:
        """Let the thread end once it has nothing to do."""
        self._asked.put(None)


@contextlib.contextmanager
def beside() -> Iterator[Beside]:
    """Yield a thread to do things in.

    It is a daemon: where one of its things never ends, the process can.
    """
    made = Beside()
    threading.Thread(target=made.serve, name="ddpg-beside", daemon=True).start()
    try:
        yield made
    finally:
        made.end()
