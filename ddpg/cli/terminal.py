"""Standard streams of the command: stdout reserved for answers, and readers that may go away.

With ``head`` or ``grep -q`` ends what is printed, not what is being done.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


@contextlib.contextmanager
def stdout_reserved_for_answer(enabled: bool = True) -> Iterator[None]:
    """Let what is printed inside go to stderr: by Python, by libraries in C, by processes that begin here.

    Nothing is done where not ``enabled``, or without a stdout.
    """
    if not enabled or sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        _point_at_stderr()
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def silence_stdout_at_exit() -> None:
    """Let what is printed while this process ends go to stderr: what C held back, what objects say when they go."""
    if sys.stdout is not None:
        sys.stdout.flush()
        _point_at_stderr()


def _point_at_stderr() -> None:
    if sys.stderr is not None:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)  # as after ``2>&-``
    os.dup2(nowhere, 1)
    os.close(nowhere)


class BrokenPipeTolerantStream:
    """A text stream of this process; once nobody reads it any more, what is written to it goes nowhere.

    What its encoding has no letters for, as ASCII for ``×``, is escaped.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as a text stream's method."""
        with self._patience():
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                letters = self._stream.encoding
                self._stream.write(text.encode(letters, "backslashreplace").decode(letters))
        return len(text)

    def flush(self) -> None:
        """Flush, as a text stream's method."""
        with self._patience():
            self._stream.flush()

    def close(self) -> None:
        """Flush, and stay open: what this process has to say at its end is still to come."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _patience(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Below the stream, for what its buffer still holds would fail again when the interpreter ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):  # a full disk
                raise


@contextlib.contextmanager
def tolerate_broken_pipes() -> Iterator[None]:
    """Let stdout and stderr be patient; where one was closed, as by ``>&-``, it goes nowhere."""
    with contextlib.ExitStack() as stack:
        for descriptor, stream, redirect in (
            (1, sys.stdout, contextlib.redirect_stdout),
            (2, sys.stderr, contextlib.redirect_stderr),
        ):
            patient: Any = BrokenPipeTolerantStream(stream or stack.enter_context(_null_stream(descriptor)))
            stack.enter_context(redirect(patient))
            stack.callback(patient.flush)
        yield


def _null_stream(descriptor: int) -> TextIO:
    """Return a stream that goes nowhere, in the place of a closed one: of its descriptor, too.

    The next file to be opened would get that, and what libraries and other processes write to stderr.
    """
    try:
        os.fstat(descriptor)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere == descriptor:
            os.set_inheritable(descriptor, True)
        else:
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
        return open(descriptor, "w", encoding="utf-8", closefd=False)
    return open(os.devnull, "w", encoding="utf-8")
