"""Progress messages and bars on stderr, and rounded numbers for people."""

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def progress_message(text: str, enabled: bool = True) -> Iterator[None]:
    """Show a line on the terminal while the block runs; do nothing if stderr is no terminal, or not ``enabled``."""
    enabled = enabled and sys.stderr.isatty()
    if enabled:
        print(f"{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if enabled:
            blank = " " * len(f"{text} ...")  # not an escape sequence, which a console of Windows may show as text
            print(f"\r{blank}\r", end="", file=sys.stderr, flush=True)


def print_to_stderr(text: str) -> None:
    """Print a line to stderr, if the process has one."""
    if sys.stderr is not None:  # print would write to stdout instead
        print(f"ddpg: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print each warning once, as one line without the source location that Python adds and gymnasium's colours."""
    before = warnings.formatwarning
    printed: set[str] = set()

    def formatted(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        kind = "" if category is UserWarning else f"{category.__name__}: "
        text = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(str(message).split())).removeprefix("WARN: ")
        line = f"ddpg: warning: {kind}{text}\n"
        if line in printed:
            return ""
        printed.add(line)
        return line

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = before


def tqdm_bar(**options: Any) -> Any:
    """Return a tqdm bar (in a notebook: its widget) that adapts to the width of the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets a notebook shows the text bar
        from tqdm.auto import tqdm
    return tqdm(dynamic_ncols=True, **options)


def is_narrow(bar: Any) -> bool:
    """Return whether a bar of :func:`tqdm_bar` has fewer than 100 columns."""
    columns = bar.format_dict.get("ncols")
    return bool(columns) and columns < 100


def format_number(value: float) -> str:
    """Return a number rounded to four significant digits, or to an integer from 1,000 up to what floats hold exactly.

    >>> format_number(0.20512), format_number(-1234.56), format_number(-0.0), format_number(1.7e308)
    ('0.2051', '-1235', '0', '1.7e+308')
    """
    return f"{value:.0f}" if 1000 <= abs(value) <= 2**53 else f"{value + 0.0:.4g}"
