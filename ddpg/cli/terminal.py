"""Standard streams of the command: stdout is reserved for the answer, and its reader may close the pipe early.

Piped into ``head`` or ``grep -q``, a command does its work to the end; only the rest of its output is dropped.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_READER_IS_GONE = (errno.EPIPE, errno.EINVAL, errno.EIO)  # a closed pipe, the same on Windows, a closed terminal


@contextlib.contextmanager
def stdout_reserved_for_answer(enabled: bool = True) -> Iterator[None]:
    """Redirect everything printed inside the block to stderr, also by C libraries and by child processes.

    Does nothing unless ``enabled``, or if there is no stdout.
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
    """Redirect to stderr what is printed while this process exits: C buffers, finalizers."""
    if sys.stdout is not None:
        sys.stdout.flush()
        _point_at_stderr()


def _point_at_stderr() -> None:
    if sys.stderr is not None:
        os.dup2(2, 1)
    else:  # stderr is closed, as by ``2>&-``
        _point_at_devnull(1)


def _point_at_devnull(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere == descriptor:  # it was closed, and is the lowest free number
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


class BrokenPipeTolerantStream:
    """A text stream that discards what is written to it once its reader is gone.

    Characters that its encoding lacks, such as ``×`` in ASCII, are escaped.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as a text stream's method."""
        with self._discarding_if_closed():
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                letters = self._stream.encoding
                self._stream.write(text.encode(letters, "backslashreplace").decode(letters))
        return len(text)

    def flush(self) -> None:
        """Flush, as a text stream's method."""
        with self._discarding_if_closed():
            self._stream.flush()

    def close(self) -> None:
        """Flush, and stay open for what is printed when this process exits."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _discarding_if_closed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Replace the descriptor: what the buffer still holds would fail again when the interpreter exits.
            _point_at_devnull(self._stream.fileno())
            if error.errno not in _READER_IS_GONE:  # a full disk
                raise


@contextlib.contextmanager
def tolerate_broken_pipes() -> Iterator[None]:
    """Make stdout and stderr tolerate a reader that is gone; a closed one, as by ``>&-``, discards everything."""
    with contextlib.ExitStack() as stack:
        for descriptor, stream, redirect in (
            (1, sys.stdout, contextlib.redirect_stdout),
            (2, sys.stderr, contextlib.redirect_stderr),
        ):
            tolerant: Any = BrokenPipeTolerantStream(stream or stack.enter_context(_null_stream(descriptor)))
            stack.enter_context(redirect(tolerant))
            stack.callback(tolerant.flush)
        yield


def _null_stream(descriptor: int) -> TextIO:
    """Return a stream that discards everything, and occupies the descriptor of the closed one.

    Otherwise the next file opened would get that descriptor, and with it what libraries write to stderr.
    """
    try:
        os.fstat(descriptor)
    except OSError:
        _point_at_devnull(descriptor)
        return open(descriptor, "w", encoding="utf-8", closefd=False)
    return open(os.devnull, "w", encoding="utf-8")
