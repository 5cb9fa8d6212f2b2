"""Read TOML files that a user names: regular files, bounded in size, nesting and range of numbers."""

import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

from ddpg.errors import UsageError, brief

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 256 * 1024  # the largest of our own has 5 KB; parsing takes about a microsecond a byte
MAX_DEPTH = 16  # levels of brackets, and parts of a dotted key; a study has 4
_INTEGERS = range(-(2**63), 2**63)  # the range that TOML guarantees

# Strings and comments, in which brackets and dots have no meaning. One that is not closed extends to the end of its
# line or of the file, so that every byte is scanned once.
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)' r"|'''.*?(?:'''|\Z)" r'|"(?:[^"\\\n]|\\.)*["\n]?' r"|'[^'\n]*['\n]?" r"|\#[^\n]*",
    re.DOTALL,
)
# Matches from the start of a part only: from within one, a long part would be scanned again from every character.
_DOTTED_KEY = re.compile(rf"""(?<![\w\-"])[\w\-"]+(?:[ \t]*\.[ \t]*[\w\-"]+){{{MAX_DEPTH}}}""")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables and values of a TOML file.

    A UTF-8 byte-order mark, which some editors write, is skipped. A link to a regular file is followed.

    Raises:
        UsageError: if there is no such file, it is not a regular file, cannot be read, is larger than ``MAX_BYTES``,
            nested deeper than ``MAX_DEPTH``, holds an integer of more than 64 bits, or is not TOML.
    """
    data = _read(path)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        _check_nesting(text)
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are the former
        raise UsageError(f"{path} is not a TOML file: {brief(str(error), quotes=False)}") from None
    for name, value in values.items():
        _check_integers(path, name, value)
    return values


def _read(path: str | Path) -> bytes:
    """Return the bytes of a regular file, without waiting for a pipe's writer or reading a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{path} is not a regular file; give the path of a TOML file")
            data = file.read(MAX_BYTES + 1)
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"no configuration file {brief(str(path))}; give the path of a TOML file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give the path of a TOML file") from None
    except ValueError as error:  # a path with a null character
        raise UsageError(f"{brief(str(path))} is not a path ({error}); give the path of a TOML file") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES} bytes; give a TOML file of options, which is smaller")
    return data


def _check_nesting(text: str) -> None:
    """Refuse text on which the parser would take very long or recurse too deeply."""
    skeleton = _TEXT.sub('"', text)
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", skeleton):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"its brackets are nested deeper than {MAX_DEPTH}")
    if _DOTTED_KEY.search(skeleton):
        raise ValueError(f"it has a key of more than {MAX_DEPTH} parts")


def _check_integers(path: str | Path, name: str, value: Any) -> None:
    if isinstance(value, int) and value not in _INTEGERS:
        raise UsageError(
            f"{path}: {brief(name, quotes=False)}={brief(value)} is beyond TOML's 64 bits; give a smaller one"
        )
    elif isinstance(value, dict):
        for part, one in value.items():
            _check_integers(path, part, one)
    elif isinstance(value, list):
        for one in value:
            _check_integers(path, name, one)
