"""Texts of pictures whose length is not known in advance, such as a title with the name of an environment."""

from typing import Any


def fit_text(text: Any, width: float) -> None:
    """Make the font of a matplotlib text smaller until it is at most ``width`` pixels wide."""
    while (extent := text.get_window_extent().width) > width:  # again, because letters are rounded to pixels
        text.set_fontsize(text.get_fontsize() * min(width / extent, 0.99))
