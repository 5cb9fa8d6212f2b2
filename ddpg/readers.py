"""Streams that may lose their reader: with ``head`` or ``grep -q`` ends what is printed, not what is being done."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


class Patient:
    """A text stream of this process; once nobody reads it any more, what is written to it goes nowhere."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as a text stream's method."""
        with self._patience():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as a text stream's method."""
        with self._patience():
            self._stream.flush()

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
def may_leave() -> Iterator[None]:
    """Let stdout and stderr, where there are any, be patient."""
    with contextlib.ExitStack() as stack:
        for stream, redirect in (sys.stdout, contextlib.redirect_stdout), (sys.stderr, contextlib.redirect_stderr):
            if stream is not None:  # as after ``>&-``
                patient: Any = Patient(stream)
                stack.enter_context(redirect(patient))
                stack.callback(patient.flush)
        yield
