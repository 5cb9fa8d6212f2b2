"""What a tuning shows: on a terminal a bar over its trials, and a picture of their values."""

import io
import re
import types

import pytest

from ddpg.studies import tuning_report
from ddpg.studies.study_progress import TuningProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def trials_of(*states, best=None):
    found = [types.SimpleNamespace(state=state) for state in states]
    return types.SimpleNamespace(all=lambda: found, best=best and types.SimpleNamespace(value=best))


def test_the_bar_counts_the_trials_that_are_over(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with TuningProgress(4, shown=True) as board:
        for states, best, expected in (
            (("running", "running"), None, "0/4"),
            (("complete", "running"), -12.5, "1/4"),
            (("complete", "pruned", "failed", "running"), -7.25, "3/4"),
            (("complete", "pruned", "failed", "complete"), -7.25, "4/4"),
        ):
            terminal.truncate(0)
            board.move(trials_of(*states, best=best), at_once=True)
            board._bar.refresh()
            assert expected in terminal.getvalue()
            assert re.search(r"trial(/s|\b)", terminal.getvalue())
            assert best is None or f"best {best}" in terminal.getvalue()


def test_the_bar_moves_now_and_then_or_at_once(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    with TuningProgress(2, shown=True) as board:
        board.move(trials_of("complete"), at_once=True)
        board.move(trials_of("complete", "complete"))  # too soon
        assert board._bar.n == 1
        board.move(trials_of("complete", "complete"), at_once=True)
        assert board._bar.n == 2


def test_without_a_terminal_there_is_no_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr", stderr := io.StringIO())
    with TuningProgress(2, shown=True) as board:
        board.move(trials_of("complete", best=1.0), at_once=True)
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("pruned", [[], [(1, -3.0)], [(1, -3.0), (3, -9.0)]])
def test_the_history_shows_the_best_so_far_and_what_was_pruned(pruned, monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(tuning_report.atomic_write, "write_figure", lambda path, figure: figures.append(figure) or path)
    trials = [types.SimpleNamespace(number=n, value=v, state="complete") for n, v in ((0, -5.0), (2, -8.0), (4, -1.0))]
    trials += [types.SimpleNamespace(number=n, value=v, state="pruned") for n, v in pruned]
    base = types.SimpleNamespace(algorithm="DDPG", name="Pendulum-v1", total_timesteps=100)
    tuning_report._history(tmp_path / "a.png", types.SimpleNamespace(base=base), trials)
    (axes,) = figures[0].axes
    drawn = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert drawn.pop("best so far") == [(0, -5.0), (2, -5.0), (4, -1.0)]
    assert drawn.pop("trial that reached its end") == [(0, -5.0), (2, -8.0), (4, -1.0)]
    assert list(drawn.values()) == ([pruned] if pruned else [])
    assert axes.get_xlabel() == "trial"
