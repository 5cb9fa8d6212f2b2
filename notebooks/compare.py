"""Compare a notebook that was executed again with the committed one, and its texts' numbers with its outputs.

Outputs are compared as text: what stands between the numbers must be the same but for spaces, and each number nearly
the same (:func:`same_number`). Pictures are not compared. Cells say by a tag where that would be too much:

    varies      times and counts of chance: the outputs of the cell are not compared
    training    results of training: their numbers are compared where both were executed on the same kind of processor

A text that quotes an output ends with a comment that lists what it quotes, ``<!-- quoted: -180, 0.69 -->``. Each of
these must stand in the text, and be a number of the notebook's outputs, rounded as it is written there.
"""

import re
from typing import Any

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
QUOTED = re.compile(r"<!-- quoted: (.*?) -->", re.DOTALL)
RELATIVE, ABSOLUTE = 0.01, 1e-4  # what is smaller than the latter is rounding


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
    """Return which quotations of a notebook's texts are in no output, or not in the text, a line for each."""
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
    """Return the worth of a number's last place; with ``zeros``, zeros at the end of an integer are no places."""
    mantissa, _, exponent = number.replace(",", "").lower().partition("e")
    whole, point, decimals = mantissa.partition(".")
    insignificant = len(whole) - len(whole.rstrip("0")) if zeros and whole.strip("+-−0") else 0
    places = -len(decimals) if point else insignificant
    return 10.0 ** (places + int(exponent or 0))
