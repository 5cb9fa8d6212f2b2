"""The figure of a tuning: values of its trials, with the best so far and the pruned ones."""

import types

import pytest

from ddpg.studies import tuning_report

BASE = types.SimpleNamespace(algorithm="DDPG", name="Pendulum-v1", total_timesteps=100)


@pytest.mark.parametrize("pruned", [[], [(1, -3.0)], [(1, -3.0), (3, -9.0)]])
def test_the_history_shows_the_best_so_far_and_the_pruned_trials(pruned, monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(tuning_report.atomic_write, "write_figure", lambda path, figure: figures.append(figure) or path)
    trials = [types.SimpleNamespace(number=n, value=v, state="complete") for n, v in ((0, -5.0), (2, -8.0), (4, -1.0))]
    trials += [types.SimpleNamespace(number=n, value=v, state="pruned") for n, v in pruned]
    tuning_report._history(tmp_path / "a.png", types.SimpleNamespace(base=BASE), trials)
    (axes,) = figures[0].axes
    drawn = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert drawn.pop("best so far") == [(0, -5.0), (2, -5.0), (4, -1.0)]
    assert drawn.pop("trial that reached its end") == [(0, -5.0), (2, -8.0), (4, -1.0)]
    assert list(drawn.values()) == ([pruned] if pruned else [])
    assert axes.get_xlabel() == "trial"


def test_a_history_with_the_largest_floats_is_drawn(tmp_path, recwarn):
    values = enumerate((-1.7e308, 2.0, 1.7e308, float("inf")))
    trials = [types.SimpleNamespace(number=n, value=v, state=("complete", "pruned")[n % 2]) for n, v in values]
    path = tuning_report._history(tmp_path / "a.png", types.SimpleNamespace(base=BASE), trials)
    assert path.stat().st_size > 0
    assert not recwarn.list
