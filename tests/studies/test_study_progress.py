"""The progress bar of a tuning on a terminal: finished trials and the best value."""

import io
import re
import types

from ddpg.studies.study_progress import TuningProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def trials_of(*states, best=None):
    found = [types.SimpleNamespace(state=state) for state in states]
    return types.SimpleNamespace(all=lambda: found, best=best and types.SimpleNamespace(value=best))


def test_the_bar_counts_finished_trials(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with TuningProgress(4, shown=True) as progress:
        for states, best, expected in (
            (("running", "running"), None, "0/4"),
            (("complete", "running"), -12.5, "1/4"),
            (("complete", "pruned", "failed", "running"), -7.25, "3/4"),
            (("complete", "pruned", "failed", "complete"), -7.25, "4/4"),
        ):
            terminal.truncate(0)
            progress.move(trials_of(*states, best=best), at_once=True)
            progress._bar.refresh()
            assert expected in terminal.getvalue()
            assert re.search(r"trial(/s|\b)", terminal.getvalue())
            assert best is None or f"best {best}" in terminal.getvalue()


def test_the_bar_is_updated_at_intervals_or_at_once(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    with TuningProgress(2, shown=True) as progress:
        progress.move(trials_of("complete"), at_once=True)
        progress.move(trials_of("complete", "complete"))  # too soon
        assert progress._bar.n == 1
        progress.move(trials_of("complete", "complete"), at_once=True)
        assert progress._bar.n == 2


def test_without_a_terminal_there_is_no_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr", stderr := io.StringIO())
    with TuningProgress(2, shown=True) as progress:
        progress.move(trials_of("complete", best=1.0), at_once=True)
    assert stderr.getvalue() == ""
