"""Tests of ``refuses``: it fails when it should."""

import pytest
from refusals import lacking, refuses

from ddpg.errors import FileFault, UsageError


def test_words_are_found_anywhere_as_whole_words():
    message = "batch_size=10 must be at most 0.5 of 'size' (2, 8), in /tmp/a.toml at index [1]"
    assert lacking(message, "batch_size 10", 0.5, (2, 8), "'size' [1] /tmp/a.toml a.toml") == []
    assert lacking(message, "batch 1 0 5 toml siz 2.5 tmp") == ["batch", "0", "5", "siz", "2.5"]


def test_another_type_a_missing_word_and_no_error_fail():
    with refuses(UsageError, "x 3") as caught:
        raise FileFault("x is 3")
    assert type(caught.value) is FileFault
    with pytest.raises(AssertionError), refuses(UsageError, "x 4"):
        raise UsageError("x is 3")
    with pytest.raises(KeyError), refuses(FileFault, "x 3"):
        raise KeyError("x is 3")
    with pytest.raises(pytest.fail.Exception), refuses(UsageError):
        pass
