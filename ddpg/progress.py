"""Progress messages and bars on stderr, and how numbers are shown to people."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def progress_message(text: str, enabled: bool = True) -> Iterator[None]:
    """Show a line on a terminal as long as something takes; nothing where stderr is none, or not ``enabled``."""
    enabled = enabled and sys.stderr.isatty()
    if enabled:
        print(f"{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if enabled:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def print_to_stderr(text: str) -> None:
    """Say a line on stderr, where there is one."""
    if sys.stderr is not None:  # print would take stdout instead
        print(f"ddpg: {text}", file=sys.stderr, flush=True)


def tqdm_bar(**options: Any) -> Any:
    """Return a tqdm bar on stderr, or in a notebook its widget, that follows the width of its place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets the bar of characters
        from tqdm.auto import tqdm
    return tqdm(dynamic_ncols=True, **options)


def is_narrow(bar: Any) -> bool:
    """Return whether a bar of :func:`bar` is in a place of fewer than 100 columns."""
    columns = bar.format_dict.get("ncols")
    return bool(columns) and columns < 100


def format_number(value: float) -> str:
    """Return a number for people, with four significant digits, or the whole ones of a larger number.

    >>> significant(0.20512), significant(-0.0321), significant(-1234.56), significant(-0.0)
    ('0.2051', '-0.0321', '-1235', '0')
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value + 0.0:.4g}"
