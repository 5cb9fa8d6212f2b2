"""Compare a notebook's new outputs with the committed ones, and the numbers in its texts with its outputs.

Outputs are compared as text: the words between the numbers must be the same, except for spaces, and the numbers nearly
the same (:func:`same_number`). Pictures are not compared. Two tags of cells relax the comparison:

    varies      times and random counts: the outputs of the cell are not compared
    training    results of training: their numbers are compared only if both ran on the same kind of processor

A text that quotes outputs ends with a comment that lists the quoted numbers, ``<!-- quoted: -180, 0.69 -->``. Each of
them must occur in the text, and in the notebook's outputs when these are rounded in the same way.
"""

import re
from typing import Any

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
QUOTED = re.compile(r"<!-- quoted: (.*?) -->", re.DOTALL)
RELATIVE, ABSOLUTE = 0.01, 1e-4  # differences below ABSOLUTE count as rounding


def outputs(cell: Any) -> str:
    """Return what a cell printed and returned, as text."""
    texts = []
    for output in cell.get("outputs", []):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        texts.append("".join(text))
    return "\n".join(texts)


def differences(committed: Any, executed: Any) -> list[str]:
    """Return how the outputs of an executed notebook differ from the committed ones, a line for each cell."""
    found = []
    other_processor = _processor(committed) != _processor(executed)
    pairs = zip(committed["cells"], executed["cells"], strict=True)
    for number, (old, new) in enumerate(pairs):
        tags = old["metadata"].get("tags", [])
        if "varies" in tags:
            continue
        before, after = outputs(old), outputs(new)
        if (difference := _difference(before, after, numbers=not (other_processor and "training" in tags))) is not None:
            found.append(f"cell {number}: {difference}")
    return found


def unsupported(notebook: Any) -> list[str]:
    """Return a line for each quoted number that is in no output or not in its text."""
    printed = " ".join(outputs(cell) for cell in notebook["cells"])
    values = [_value(match) for match in NUMBER.findall(printed)]
    found = []
    for number, cell in enumerate(notebook["cells"]):
        text = "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""
        for quotation in QUOTED.findall(text):
            visible = NUMBER.findall(QUOTED.sub("", text))
            for item in re.split(r",\s+", quotation.strip()):
                if _value(item) not in map(_value, visible):
                    found.append(f"cell {number}: its text does not have the {item} that it is to quote")
                elif not any(abs(abs(value) - abs(_value(item))) <= _unit(item, zeros=True) / 2 for value in values):
                    found.append(f"cell {number}: its text says {item}, and no output does")
    return found


def same_number(one: str, other: str) -> bool:
    """Tell whether two numbers are the same to 1 %, to a unit of the last place, or to 1e-4."""
    first, second = _value(one), _value(other)
    allowed = max(RELATIVE * max(abs(first), abs(second)), _unit(one), _unit(other), ABSOLUTE)
    return abs(first - second) <= allowed * (1 + 1e-9)


def _processor(notebook: Any) -> str:
    return str(notebook["metadata"]["execution"]["processor"])


def _difference(before: str, after: str, numbers: bool) -> str | None:
    if _words(before) != _words(after):
        return f"was {before.strip()!r}, is {after.strip()!r}"
    if numbers:
        for one, other in zip(NUMBER.findall(before), NUMBER.findall(after), strict=True):
            if not same_number(one, other):
                return f"was {one}, is {other} in {after.strip()!r}"
    return None


def _words(text: str) -> list[str]:
    return NUMBER.sub(" # ", text).split()


def _value(number: str) -> float:
    return float(number.replace("−", "-").replace(",", ""))


def _unit(number: str, zeros: bool = False) -> float:
    """Return the value of a number's last digit; with ``zeros``, trailing zeros of an integer do not count."""
    mantissa, _, exponent = number.replace(",", "").lower().partition("e")
    whole, point, decimals = mantissa.partition(".")
    insignificant = len(whole) - len(whole.rstrip("0")) if zeros and whole.strip("+-−0") else 0
    places = -len(decimals) if point else insignificant
    return 10.0 ** (places + int(exponent or 0))
