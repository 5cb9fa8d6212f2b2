"""Read JSON files of unknown origin: regular files of bounded size and depth, checked against types."""

import contextlib
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ddpg.errors import FileFault

LARGEST = 1 << 20  # bytes of a manifest: room for ten thousand arrays; parsed it takes less than 50 MB
DEPTH = 12  # a manifest is 7 deep: a shape, of a box, in a tuple, in a tuple
DIGITS = 39  # of 2^128 - 1, the largest number in the state of a random generator

ADVICE = "take another checkpoint"
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 60


def refusal(where: str, value: Any, expected: str) -> FileFault:
    """Return the error of a value that is not what a checkpoint holds there, in one line."""
    return FileFault(f"{printable(where)} is {short_repr(value)}, expected {expected}; {ADVICE}")


def short_repr(value: Any) -> str:
    """Return ``repr(value)``, shortened where it is long."""
    return printable(_brief.repr(value))


def one_line(text: str) -> str:
    """Return what a message says of a file: printable, shortened where it is long."""
    return printable(text if len(text) <= 300 else f"{text[:300]}...")


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that is no letter, sign or space: line breaks, control sequences."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@contextlib.contextmanager
def open_regular_file(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file and yield it with its size: no link, device or pipe, which may block or never end.

    Raises:
        FileFault: something else is there, or it cannot be read.
        FileNotFoundError: nothing is there.
    """
    try:
        expected = os.lstat(path)
        _check_regular(path, expected)
        flags = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # not every system has all of them
        descriptor = os.open(path, os.O_RDONLY | sum(getattr(os, name, 0) for name in flags))
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            _check_regular(path, found)
            yield file, found.st_size
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(str(path)) from None
    except OSError as error:
        raise FileFault(f"{path} cannot be read ({error.strerror}); {ADVICE}") from None


def read_json(path: Path) -> Any:
    """Return what the JSON file at ``path`` holds.

    Raises:
        FileFault: not a regular file, a large one, or not JSON as :func:`parse` takes it.
        FileNotFoundError: nothing is there.
    """
    with open_regular_file(path) as (file, size):
        if size > LARGEST:
            raise FileFault(f"{path} has {size} bytes, expected at most {LARGEST}; {ADVICE}")
        return parse_json(str(path), file.read(LARGEST))


def parse_json(where: str, data: bytes) -> Any:
    """Return the values of UTF-8 JSON: finite numbers, no key twice, a dozen levels.

    Raises:
        FileFault: it is something else.
    """
    try:
        _check_nesting(data)
        text = data.decode()
        document = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
        )
        if "\\ud" in text.lower():  # half of a character may be written, but is no text
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except (ValueError, RecursionError) as error:
        raise FileFault(f"{where} is not readable as JSON ({one_line(str(error))}); {ADVICE}") from None


def canonical_json(document: Any) -> bytes:
    """Return JSON values as the bytes that stand for them, whatever their order and spacing in a file."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileFault(f"{path} is a {_kind(status.st_mode)}, expected a regular file; {ADVICE}")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def _check_nesting(data: bytes) -> None:
    """Refuse deep nesting before anything is parsed, with a few passes over the bytes."""
    strings = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    brackets = b"".join(strings[::2]).translate(None, _ALL_BUT_BRACKETS)
    for _ in range(DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ValueError(f"its brackets do not match, or are nested deeper than {DEPTH}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"it has the key {short_repr(twice)} twice")
    return document


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), -float("inf")):
        raise ValueError(f"{short_repr(text)} is beyond the range of floats")
    return value


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS:
        raise ValueError(f"the number {short_repr(text)} has more than {DIGITS} digits")
    return int(text)


def convert(where: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``, of which it must be exactly: no text for a number, no unknown field.

    Raises:
        FileFault: it is not; names the field below ``where``, its value, and what was expected.
    """
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`")
        found = short_repr(_at(value, place))
        field = printable(where) + one_line(place.replace(".", " ", 1) if where.endswith(":") else place)
        raise FileFault(f"{field} is {found}: {one_line(text[:1].lower() + text[1:])}; {ADVICE}") from None


def one_of(*names: str) -> Any:
    """Return the type of one of these words; what is wrong is then told with all of them."""
    return Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(names)})\Z")]


def _at(value: Any, place: str) -> Any:
    """Return what is at a place such as ``.spaces[0].n``, or as far down as it can be followed."""
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            break
    return value
