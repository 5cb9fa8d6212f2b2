"""Errors whose cause lies outside this package (bad input, environments, files), and the wording of their messages."""

import contextlib
import difflib
import errno
import functools
import importlib
import os
import re
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


class UsageError(ValueError):
    """Bad input: the message names the value, what was expected and what to do.

    The command line prints it as one line and exits with status 2.
    """


class EnvironmentFault(UsageError):
    """The environment failed: it raised an exception, returned an invalid value, or did not answer in time."""


class OwnCodeFault(UsageError):
    """A user's own function, such as a policy path or noise, raised an exception."""


class FileFault(UsageError):
    """A file is damaged, or cannot be read or written."""


class CellsFailed(UsageError):
    """Some runs of a study failed; the results of the others are kept."""


@contextlib.contextmanager
def file_faults(advice: str | Callable[[], str]) -> Iterator[None]:
    """Turn an ``OSError`` into one line: the path, the reason, the errno and ``advice`` (or its result, if callable).

    Raises:
        FileFault: if the block raises an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        where = f"{error.filename}: " if error.filename is not None else ""
        raise FileFault(
            f"{where}{error.strerror or error} ({name}); {advice if isinstance(advice, str) else advice()}"
        ) from error


@contextlib.contextmanager
def with_filename(path: Any) -> Iterator[None]:
    """Add ``path`` to an ``OSError`` without a file name: writing to an open file raises such errors."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # without an errno the text would no longer be shown
            error.filename = str(path)
        raise


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Prefix a ``UsageError`` of the block with its place in the input."""
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{where}: {error}") from None


def format_error(error: BaseException) -> str:
    """Return type and message of an exception in one line, shortened; for a UsageError the message only."""
    kind = type(error).__name__
    try:
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())  # Keras colours its messages
    except Exception:  # a foreign exception whose __str__ fails
        return kind
    if isinstance(error, UsageError):
        return text
    if isinstance(error, SystemExit):
        kind = "it called sys.exit (SystemExit)"
    # MuJoCo's, where it draws observations and there is no display.
    hint = "; MUJOCO_GL=egl or osmesa draws without a display" if "OpenGL context" in text else ""
    return f"{kind}{': ' * bool(text)}{text if len(text) <= 300 else f'{text[:300]}...'}{hint}"


def without_opengl(error: BaseException) -> str:
    """Return what to do about an exception of Python's OpenGL, which found no library; empty for any other.

    Its own text, ``'NoneType' object has no attribute 'glGetError'``, does not say so.
    """
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__))
    if not any(module.partition(".")[0] == "OpenGL" for module in modules):
        return ""
    return (
        f"MUJOCO_GL={brief(os.environ.get('MUJOCO_GL', ''))} needs a graphics library that this machine lacks "
        f"({format_error(error)}); install it (for egl libegl1, for osmesa libosmesa6), or set MUJOCO_GL to the other"
    )


@contextlib.contextmanager
def own_code(what: str | Callable[[], str], function: Any) -> Iterator[None]:
    """Turn an exception of a user's function into one line that says where it was raised.

    Args:
        what: the option, the function and what it was called with, for the message; a callable is called on failure.
        function: the function, whose file's last line in the traceback is named.

    Raises:
        OwnCodeFault: if the block raises an exception; a UsageError passes as it is.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # the user's code can raise anything
        what = what if isinstance(what, str) else what()
        raise OwnCodeFault(f"{what} failed: {format_error(error)}{_line_of(error, function)}") from error


def guarded(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's function as one that runs in :func:`own_code`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with own_code(what, function):
            return function(*args, **kwargs)

    return call


def _line_of(error: Exception, function: Any) -> str:
    """Return the file and the line of ``function``'s module at which an exception passed, or the empty string."""
    try:
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        owner = function if isinstance(function, type) or code is not None else type(function)
        files = {getattr(sys.modules.get(owner.__module__), "__file__", None), getattr(code, "co_filename", None)}
        found = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
        return f" ({Path(found[-1].filename).name}, line {found[-1].lineno})" if found else ""
    except Exception:  # a foreign object may raise anything when its attributes are read
        return ""


class _Brief(reprlib.Repr):
    """``repr`` for messages: bounded in length and in time, whatever the object."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxlong, self.maxother = 4, 200, 60, 300
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxarray = 20

    def repr_int(self, x: int, level: int) -> str:
        """Return an integer's digits, or how many bits it has where writing them out would take long."""
        return f"an integer of {x.bit_length()} bits" if abs(x) >> 512 else super().repr_int(x, level)

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the ``repr`` of an object, or its type's name if that fails."""
        try:
            return super().repr_instance(x, level)
        except Exception:  # a foreign object's ``__repr__`` may raise anything
            return f"<{type(x).__name__}>"


_BRIEF = _Brief()


def brief(value: Any, quotes: bool = True) -> str:
    """Return ``repr(value)`` for a message: one line, shortened where it is long; a string without quotes if asked."""
    text = _BRIEF.repr(value)
    if isinstance(value, str) and not quotes:
        text = value if len(value) <= _BRIEF.maxother else f"{value[: _BRIEF.maxother]}..."
    return text if text.isprintable() else printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return ``text`` with line breaks, control sequences and other unprintable characters escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a hint such as ``; did you mean 'Pendulum-v1'?``, or the empty string.

    ``cutoff`` is the smallest similarity of a suggestion, in [0, 1].
    """
    known = list(known)
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(str(name).lower(), lowered, n=1, cutoff=cutoff)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


def users_level() -> int:
    """Return the ``stacklevel`` with which a ``warnings.warn`` beside this call names the user's line, not ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "ddpg":
        level, frame = level + 1, frame.f_back
    return level


def choose(
    option: str, value: Any, table: Mapping[str, Any], own: str, is_own: Callable[[Any], bool] = callable
) -> Any:
    """Return ``table[value]`` for a name, or ``value`` itself if it is the user's own object.

    Args:
        option, value: the option's name, and a key of ``table`` or a user's own object that can be used instead.
        table: the supplied choices.
        own, is_own: a description of such an object, and a function that tells whether ``value`` is one.

    Raises:
        UsageError: if ``value`` is neither.
    """
    if is_own(value):
        return value
    if isinstance(value, str) and value in table:
        return table[value]
    hint = did_you_mean(value, table) if isinstance(value, str) else ""
    raise UsageError(f"{option}={brief(value)} is not one of {sorted(table)}, nor {own}{hint}")


def import_optional(name: str, user: str, advice: str) -> ModuleType:
    """Return an optional package.

    A mere folder of that name, such as one in the working directory, does not count: Python imports any folder.

    Args:
        name: the package's module.
        user: what needs it, for the message.
        advice: how to install it or do without, for the message.

    Raises:
        UsageError: if it, or a package that it needs, is not installed or cannot be imported.
    """
    try:
        module = importlib.import_module(name)
        if getattr(module, "__file__", "") is None:  # a namespace package, which has no code
            del sys.modules[name]
            raise ModuleNotFoundError(name=name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{user} needs the package {brief(error.name)}; {advice}") from None
    except ImportError as error:
        raise UsageError(
            f"{user} needs the package {name!r}, whose import fails ({brief(str(error))}); {advice}"
        ) from None
    return module
