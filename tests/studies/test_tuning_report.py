"""The figure of a tuning: values of its trials, with the best so far and the pruned ones."""

import types

import pytest

from ddpg.studies import tuning_report


@pytest.mark.parametrize("pruned", [[], [(1, -3.0)], [(1, -3.0), (3, -9.0)]])
def test_the_history_shows_the_best_so_far_and_the_pruned_trials(pruned, monkeypatch, tmp_path):
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
