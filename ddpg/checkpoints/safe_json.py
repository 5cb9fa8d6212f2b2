"""Read JSON files of unknown origin safely: bounded in size and depth, and checked against a schema with msgspec."""

import contextlib
import hashlib
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ddpg.errors import FileFault, printable

LARGEST = 1 << 20  # bytes of a file: enough for a manifest of ten thousand arrays; parsing takes less than 50 MB
DEPTH = 12  # levels of nesting; a manifest has 7: the shape of a box in a tuple in a tuple
DIGITS = 39  # of 2^128 - 1, the largest number in the state of a random generator

ADVICE = "take another checkpoint"
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 60


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """End the messages of this module with ``advice`` in place of :data:`ADVICE` if the block reads another file."""
    try:
        yield
    except FileFault as error:
        if (text := str(error)).endswith(ADVICE):
            raise FileFault(text.removesuffix(ADVICE) + advice) from None
        raise


def refusal(where: str, value: Any, expected: str) -> FileFault:
    """Return a one-line error: the field ``where`` holds ``value``, and what was ``expected``."""
    return FileFault(f"{printable(where)} is {short_repr(value)}, expected {expected}; {ADVICE}")


def short_repr(value: Any) -> str:
    """Return ``repr(value)``, shortened where it is long."""
    return printable(_brief.repr(value))


def one_line(text: str) -> str:
    """Return text from a file for a message: printable, at most 300 characters."""
    return printable(text if len(text) <= 300 else f"{text[:300]}...")


@contextlib.contextmanager
def open_regular_file(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file and yield it with its size; links, devices and pipes are refused, as they may never end.

    Raises:
        FileFault: if ``path`` is no regular file, or cannot be read.
        FileNotFoundError: if ``path`` does not exist.
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


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return the parsed JSON file at ``path``.

    Raises:
        FileFault: if it is no regular file, has more than ``largest`` bytes, or :func:`parse_json` refuses it.
        FileNotFoundError: if ``path`` does not exist.
    """
    with open_regular_file(path) as (file, size):
        if size > largest:
            raise FileFault(f"{path} has {size} bytes, expected at most {largest}; {ADVICE}")
        return parse_json(str(path), file.read(largest))


def parse_json(where: str, data: bytes) -> Any:
    """Parse UTF-8 JSON whose numbers are finite, whose keys are unique and which is nested at most ``DEPTH`` deep.

    Raises:
        FileFault: if ``data`` is anything else; ``where`` names its origin.
    """
    try:
        _check_nesting(data)
        text = data.decode()
        document = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            parse_int=_parse_int,
        )
        if "\\ud" in text.lower():  # an escaped lone surrogate parses, but is no text
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except (ValueError, RecursionError) as error:
        raise FileFault(f"{where} is not readable as JSON ({one_line(str(error))}); {ADVICE}") from None


def canonical_json(document: Any) -> bytes:
    """Return JSON values as canonical bytes: the same for any order of keys and any spacing in a file."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def document_sha256(document: Mapping[str, Any], checksum_field: str) -> str:
    """Return the SHA-256 of all fields of a JSON object except the one that holds this checksum."""
    return hashlib.sha256(
        canonical_json({name: value for name, value in document.items() if name != checksum_field})
    ).hexdigest()


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileFault(f"{path} is a {kind_of(status.st_mode)}, expected a regular file; {ADVICE}")


def kind_of(mode: int) -> str:
    """Return what the mode of something other than a regular file says it is, such as ``pipe``, for a message."""
    kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def _check_nesting(data: bytes) -> None:
    """Refuse deep nesting before parsing, since the parser recurses."""
    strings = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    brackets = b"".join(strings[::2]).translate(None, _ALL_BUT_BRACKETS)
    for _ in range(DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise ValueError(f"its brackets do not match, or are nested deeper than {DEPTH}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"it has the key {short_repr(twice)} twice")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), -float("inf")):
        raise ValueError(f"{short_repr(text)} is beyond the range of floats")
    return value


def _parse_int(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS:
        raise ValueError(f"the number {short_repr(text)} has more than {DIGITS} digits")
    return int(text)


def convert(where: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as the msgspec type ``kind``, strictly: no text for a number, no unknown field.

    Raises:
        FileFault: if it does not match; the message names the field below ``where``, its value and what was expected.
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
    """Return the type of a string that is one of ``names``; the error message lists them all."""
    return Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(names)})\Z")]


def _at(value: Any, place: str) -> Any:
    """Return the value at a path such as ``.spaces[0].n``, or at the deepest part of the path that exists."""
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            break
    return value
