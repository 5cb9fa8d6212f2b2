"""Handle SIGINT, SIGTERM and SIGHUP during a run: the first requests a stop, a second one ends the process at once.

Python runs a signal handler only when the interpreter gets control again, which takes many seconds while TensorFlow
starts or compiles. So a thread reads the signals from a wakeup pipe and answers the user in the meantime.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

from ddpg.progress import print_to_stderr

SIGNALS = tuple(number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP"))
# An environment variable that is set in the processes of a study's cells. If a service manager stops a study, each cell
# gets SIGTERM from the manager and again from the study, so in a cell a second SIGTERM repeats the first request.
CELL = "DDPG_CELL"

_SAVED = (
    "the run will be saved and ended: at the end of the episode if that takes a few seconds at most, after "
    "TensorFlow's start-up or compiling if that is under way"
)
_AT_ONCE = "; a second signal ends it at once"
ANSWER_BEFORE_CELLS = f"the command ends when it has checked its input, and begins nothing{_AT_ONCE}"


def ignore() -> None:
    """Do nothing."""


class StopRequest:
    """A request to stop, set by one of :data:`SIGNALS`.

    Attributes:
        number: the first signal; ``None`` before it.
        left: whether a run was stopped before its goal because of this request.
        resumable: returns the sentence that says how to resume.
        answer: the message printed at the first signal.
        before_end: called by another thread before a second signal ends the process.
        again: whether a second signal came and was passed on to the previous handlers.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.left = False
        self.resumable: Callable[[], str] = lambda: "nothing was begun"
        self.answer = _SAVED if _in_cell() else _SAVED + _AT_ONCE
        self.before_end: Callable[[], object] = ignore
        self.again = False
        self._came = threading.Event()

    def came(self, within: float) -> bool:
        """Wait up to ``within`` seconds for a signal; return whether one has arrived."""
        return self._came.wait(within)

    @property
    def status(self) -> int:
        """The exit status: 128 plus the signal's number, as in shells, if the run was stopped early; otherwise 0."""
        return 128 + self.number if self.left and self.number is not None else 0

    def say(self, text: str) -> None:
        """Write a line to the terminal."""
        print_to_stderr(text)


class _WatchedStopRequest(StopRequest):
    """A stop request that a separate thread receives."""

    def __init__(self, ends_process: bool):
        super().__init__()
        self._ends_process = ends_process
        # A copy, since descriptor 2 is redirected while TensorFlow starts.
        self._terminal = os.dup(2) if _is_descriptor_2(sys.stderr) else None
        self._count = 0
        self._before = {number: signal.getsignal(number) for number in SIGNALS}

    def say(self, text: str) -> None:
        if self._terminal is None:
            super().say(text)
        else:
            begin = "\n" if os.isatty(self._terminal) else ""  # leaves the line of a progress bar
            with contextlib.suppress(OSError):  # the terminal or pipe may be closed
                os.write(self._terminal, f"{begin}ddpg: {text}\n".encode())

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Handle the signals until the block ends; a signal that is ignored, as under ``nohup``, stays ignored."""
        taken = [n for n, handler in self._before.items() if handler not in (signal.SIG_IGN, None)]
        read, write = os.pipe()
        if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12, where the pipe may block
            os.set_blocking(write, False)
        thread = threading.Thread(target=self._watch, args=(read,), name="ddpg-signals", daemon=True)
        thread.start()
        for number in taken:
            signal.signal(number, self._handle)
        self._forward_to = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(self._forward_to)
            for number in taken:
                signal.signal(number, self._before[number])
            os.close(write)
            thread.join()
            os.close(read)
            if self._terminal is not None:
                os.close(self._terminal)

    def _watch(self, read: int) -> None:
        while data := os.read(read, 64):
            for number in data:
                if number in SIGNALS:
                    self._arrived(number)
            if self._forward_to != -1:  # the wakeup descriptor that was set before
                os.write(self._forward_to, data)

    def _arrived(self, number: int) -> None:
        name = signal.Signals(number).name
        if self.number is None:
            self.number = number
            self._came.set()
            self.say(f"{name}: {self.answer}")
            return
        if number == self.number == signal.SIGTERM and _in_cell():
            return
        self.say(f"{name} again: ended at once; {self.resumable()}")
        if self._ends_process:
            with contextlib.suppress(Exception):
                self.before_end()
            os._exit(128 + number)

    def _handle(self, number: int, frame: object) -> None:
        """Restore the previous handlers at a second signal, unless this request may end the process."""
        self._count += 1
        if self._count > 1 and not self._ends_process:
            self.again = True
            for each, handler in self._before.items():
                signal.signal(each, handler)
            signal.raise_signal(number)


def _in_cell() -> bool:
    return CELL in os.environ


def _is_descriptor_2(stream: TextIO | None) -> bool:
    """Return whether a stream, or the one it wraps, writes to the process's own stderr."""
    try:
        return stream is not None and stream.fileno() == 2
    except OSError:  # a Python-only stream without a descriptor
        return False


_watching: _WatchedStopRequest | None = None


@contextlib.contextmanager
def stop_on_signals(ends_process: bool = False) -> Iterator[StopRequest]:
    """Turn :data:`SIGNALS` into a stop request until the block ends; a nested block shares the outer request.

    Only Python's main thread receives signals; in any other thread the request stays unset.

    Args:
        ends_process: whether a second signal ends the process at once; otherwise the previous handlers get it.
    """
    global _watching
    if threading.current_thread() is not threading.main_thread():
        yield StopRequest()
    elif _watching is not None:
        yield _watching
    else:
        _watching = request = _WatchedStopRequest(ends_process)
        try:
            with request.taken():
                yield request
        finally:
            _watching = None


@contextlib.contextmanager
def exit_on_termination() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise :class:`SystemExit` until the block ends, so that temporary files are removed.

    A signal that is ignored, as under ``nohup``, stays ignored.
    """
    numbers = [number for number in SIGNALS if number != signal.SIGINT]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)


def interrupted_without_signal() -> bool:
    """Return whether no signal caused a KeyboardInterrupt: we handle signals, and none arrives within half a second."""
    return _watching is not None and not _watching.came(within=0.5)
