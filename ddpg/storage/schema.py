"""Values checked against types with ranges, by msgspec; what is wrong is named by its place."""

import re
from typing import Annotated, Any

import msgspec

from ddpg.errors import FileFault
from ddpg.storage.document import ADVICE, brief, one_line, printable


def converted(where: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``, of which it must be exactly: no text for a number, no unknown field.

    Raises:
        FileFault: it is not; names the field below ``where``, its value, and what was expected.
    """
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`")
        found = brief(_at(value, place))
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
