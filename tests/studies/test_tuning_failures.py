"""The error of ``ddpg tune`` after failures, which names the first cause that applies."""

import types

import pytest

from ddpg.cli.studies import _failures
from ddpg.errors import CellsFailed

TRIALS = [
    types.SimpleNamespace(number=0, state="complete", reason=None),
    types.SimpleNamespace(number=1, state="failed", reason="no such key"),
]


@pytest.mark.parametrize(
    ("stopped", "cells", "trials", "words", "absent"),
    [
        ("three trials failed", {"a/1": "disk full"}, 3, ["three trials failed", "what is left"], "--trials"),
        ("three trials failed", {}, 2, ["three trials failed", "--trials of more than 2"], "the same command"),
        (None, {"a/1": "disk full", "a/2": "killed"}, 2, ["2 cells", "a/1", "disk full"], "--trials"),
        (None, {}, 2, ["1 of 2 trials", "no such key", "--trials of more than 2"], "the same command"),
    ],
)
def test_the_first_cause_is_named(stopped, cells, trials, words, absent):
    failure = _failures(types.SimpleNamespace(stopped=stopped, failed=cells, trials=TRIALS), trials)
    assert isinstance(failure, CellsFailed)
    assert all(word in str(failure) for word in words)
    assert absent not in str(failure)


def test_without_failures_there_is_no_error():
    assert _failures(types.SimpleNamespace(stopped=None, failed={}, trials=TRIALS[:1]), 1) is None
