"""Check an error's type and the names and values in its message, but not its wording."""

import contextlib
import re

import pytest


@contextlib.contextmanager
def refuses(error, *words):
    """Fail unless the block raises ``error`` with every word in its message.

    A word is a field's name, a value or a number, anywhere in the message: ``refuses(UsageError, "batch_size 0")``
    passes for ``batch_size=0 must be at least 1``, but not for ``batch_size=10``. Yields
    what :func:`pytest.raises` yields.

    Args:
        error: the type, or a base class.
        words: texts of words, separated by white space.
    """
    with pytest.raises(error) as caught:
        yield caught
    missing = lacking(str(caught.value), *words)
    assert not missing, f"{missing} not in the message {str(caught.value)!r}"


def lacking(message, *words):
    """Return the words that are not in the message as whole words: ``0`` is neither in ``10`` nor in ``0.5``."""
    return [word for text in words for word in str(text).split() if not re.search(_pattern(word), message)]


def _pattern(word):
    before = r"(?<![\w.])" if word[0].isdigit() else r"(?<!\w)" if word[0].isalpha() or word[0] == "_" else ""
    after = r"(?!\w|\.\d)" if word[-1].isalnum() or word[-1] == "_" else ""
    return before + re.escape(word) + after
