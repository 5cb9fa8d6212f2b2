"""Learning curves and the list of runs, from run directories that the tests write by hand."""

import contextlib
import itertools
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from refusals import lacking, refuses
from scipy import stats

from ddpg import DDPGConfig, UsageError
from ddpg.config.presets import preset_config
from ddpg.runs import curves, listing, lock, plotting, run_config
from ddpg.runs.curves import centre_and_interval, labels, learning_curves, trimmed_mean
from ddpg.runs.found_runs import find_runs
from ddpg.runs.listing import list_runs
from ddpg.runs.lock import is_run_locked, lock_cell_log, run_lock


def write_run(
    root, number, returns, env_id="Pendulum-v1", seed=0, steps=None, total=300, algorithm="DDPG", fields=None, **options
):
    """Write a run, evaluated every 100 steps at 50 steps a second; ``fields``: more entries of its config.json."""
    run = root / env_id.rpartition(":")[2] / str(number)
    run.mkdir(parents=True)
    config = preset_config(env_id.rpartition(":")[2]).to_json() | options
    schedule = {"total_timesteps": total, "evaluation_interval": 100, "evaluation_episodes": 1}
    rest = {"n_envs": 1, "vectorization": "sync", "config": config, "versions": {}, "command": []} | (fields or {})
    run_config.write(run, {"env_id": env_id, "algorithm": algorithm, "seed": seed, **schedule, **rest})
    steps = steps or [100 * (index + 1) for index in range(len(returns))]
    rows = [f"{step},{value}" for step, value in zip(steps, returns, strict=True)]
    (run / "evaluations.csv").write_text("\n".join(["timesteps,mean_return", *rows, ""]))
    rows = [f"{step},{step / 50}" for step in steps]
    (run / "metrics.csv").write_text("\n".join(["timesteps,seconds", *rows, ""]))
    return run


def test_seeds_of_a_configuration_are_one_curve(tmp_path):
    """The interquartile mean of four seeds leaves out the lowest and the highest: that of 0, 1, 2, 30 is 1.5."""
    for seed, last in enumerate((0.0, 2.0, 30.0, 1.0)):
        write_run(tmp_path, seed, [5.0, last], seed=seed)
    for seed in range(2):
        write_run(tmp_path, 10 + seed, [7.0, 9.0], seed=seed, gamma=0.5)
    write_run(tmp_path, 1, [3.0], env_id="Other-v0")
    found = learning_curves(find_runs([tmp_path]))
    assert {(curve.env_id, curve.label, curve.seeds) for curve in found} == {
        ("Pendulum-v1", "gamma=0.98", 4),
        ("Pendulum-v1", "gamma=0.5", 2),
        ("Other-v0", "DDPG", 1),
    }
    curve = next(curve for curve in found if curve.seeds == 4)
    assert curve.times.tolist() == [100, 200]
    assert curve.centre.tolist() == [5.0, 1.5]
    mean = next(curve for curve in learning_curves(find_runs([tmp_path]), measure="mean") if curve.seeds == 4)
    assert mean.centre.tolist() == [5.0, 8.25]


def test_curves_over_seconds_of_training(tmp_path):
    write_run(tmp_path, 1, [1.0, 2.0, 4.0])
    (curve,) = learning_curves(find_runs([tmp_path]), "seconds")
    assert curve.times.tolist() == [2.0, 4.0, 6.0]
    assert curve.centre.tolist() == [1.0, 2.0, 4.0]


def test_seconds_before_the_first_row_of_metrics_are_interpolated(tmp_path):
    path = write_run(tmp_path, 1, [1.0, 2.0])
    (path / "metrics.csv").write_text("timesteps,seconds\n200,8.0\n")
    (run,) = find_runs([tmp_path])
    assert run.times("seconds").tolist() == [4.0, 8.0]  # between (0 steps, 0 s) and (200 steps, 8 s)


def test_seconds_that_no_file_has_are_not_drawn(tmp_path):
    """They would all be 0."""
    run = write_run(tmp_path, 1, [1.0, 2.0])
    (run / "metrics.csv").write_text("timesteps,seconds\n")
    assert find_runs([run])[0].times("steps").tolist() == [100, 200]
    with refuses(UsageError, str(run / "metrics.csv"), "seconds"):
        find_runs([run], "seconds")


def test_a_curve_covers_the_steps_that_all_its_seeds_cover(tmp_path):
    write_run(tmp_path, 1, [0.0, 10.0, 20.0], seed=1)
    write_run(tmp_path, 2, [4.0, 8.0], seed=2, steps=[150, 250])
    (curve,) = learning_curves(find_runs([tmp_path]), measure="mean")
    assert curve.times.tolist() == [150, 200, 250]
    assert curve.centre.tolist() == [(5 + 4) / 2, (10 + 6) / 2, (15 + 8) / 2]


def test_a_run_that_ends_its_curve_early_is_named(tmp_path, capsys):
    whole = [write_run(tmp_path, seed, [1.0, 2.0, 3.0], seed=seed) for seed in range(2)]
    interrupted = write_run(tmp_path, 2, [1.0, 2.0], seed=2)
    (curve,) = learning_curves(find_runs([tmp_path]))
    assert curve.times.tolist() == [100, 200]
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"ddpg: Pendulum-v1, DDPG: drawn up to step 200, the last evaluation of {interrupted}; other seeds have "
        "evaluations up to step 300"
    )
    learning_curves(find_runs(whole))
    assert capsys.readouterr().err == ""


def test_a_single_run_is_drawn_with_all_of_its_evaluations(tmp_path):
    """One dip among 301 evaluations, in none of 200 equal steps."""
    returns = [100.0] * 301
    returns[100] = 0.0
    write_run(tmp_path, 1, returns)
    (curve,) = learning_curves(find_runs([tmp_path]))
    assert [*curve.centre] == [*curve.low] == [*curve.high] == returns


def test_a_curve_of_several_seeds_has_all_of_their_evaluations(tmp_path):
    """One dip among 301 evaluations of each; the times of the seeds alternate."""
    returns = [100.0] * 301
    returns[100] = 0.0
    for seed in range(2):
        steps = [100 * (index + 1) + seed for index in range(301)]
        write_run(tmp_path, seed, returns, seed=seed, steps=steps)
    (curve,) = learning_curves(find_runs([tmp_path]), measure="mean")
    assert curve.times.tolist() == [step + seed for step in range(100, 30_200, 100) for seed in range(2)][1:-1]
    assert curve.centre.min() == pytest.approx(0.5, abs=0.01)
    assert len(curve.low) == len(curve.high) == len(curve.times)


def test_of_very_many_times_those_that_are_drawn_are_spread_over_the_curve(tmp_path):
    for seed in range(2):
        write_run(tmp_path, seed, [float(step) for step in range(4999)], seed=seed)
    (curve,) = learning_curves(find_runs([tmp_path]))
    assert (len(curve.times), curve.times[0], curve.times[-1]) == (2000, 100, 499_900)
    assert set(np.diff(curve.times)) == {200, 300}
    np.testing.assert_array_equal(curve.centre, curve.times / 100 - 1)


def test_a_seed_without_a_common_time_is_left_out_and_named(tmp_path, capsys):
    together = [write_run(tmp_path, seed, [1.0, 2.0, 3.0], seed=seed) for seed in range(2)]
    later = write_run(tmp_path, 2, [7.0, 8.0], seed=2, steps=[400, 500])
    for names in (None, ["a"] * 3):
        (curve,) = learning_curves(find_runs([tmp_path]), names=names)
        assert (curve.seeds, curve.times.tolist(), curve.centre.tolist()) == (2, [100, 200, 300], [1, 2, 3])
        (line,) = capsys.readouterr().err.splitlines()
        assert f"left out: {later}, " in line
    learning_curves(find_runs(together))
    assert capsys.readouterr().err == ""


def test_single_evaluations_at_different_times_are_one_point(tmp_path):
    for seed in range(2):
        write_run(tmp_path, seed, [1.0 + seed], seed=seed, steps=[100 + seed])
    (curve,) = learning_curves(find_runs([tmp_path]), measure="mean")
    assert (curve.seeds, curve.times.tolist(), curve.centre.tolist()) == (2, [101], [1.5])


def test_over_seconds_the_run_that_takes_the_fewest_ends_the_curve(tmp_path, capsys):
    """It may be the one with the most steps."""
    slow = write_run(tmp_path, 1, [1.0, 2.0])
    (slow / "metrics.csv").write_text("timesteps,seconds\n100,10\n200,20\n")
    fast = write_run(tmp_path, 2, [1.0] * 20, seed=1)
    (fast / "metrics.csv").write_text("timesteps,seconds\n100,0.6\n2000,12.5\n")
    (curve,) = learning_curves(find_runs([tmp_path]), "seconds")
    assert curve.times[-1] == 12.5
    told = capsys.readouterr().err
    assert str(fast) in told
    assert str(slow) not in told
    assert "12.5" in told


@settings(max_examples=25)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=7), st.sampled_from(["iqm", "mean"]))
def test_band_stays_within_the_seeds(values, measure):
    column = np.array(values)[:, None]
    centre, low, high = centre_and_interval(column, measure)
    tiny = 1e-9 * (1 + np.abs(column).max())
    assert column.min() - tiny <= low[0] <= high[0] <= column.max() + tiny
    assert column.min() - tiny <= centre[0] <= column.max() + tiny


@pytest.mark.parametrize("seeds", [1, 3, 4, 7, 8])
def test_trimmed_mean_equals_that_of_scipy(seeds):
    values = np.random.default_rng(0).normal(size=(5, seeds, 2))
    for cut in (0.0, 0.25):
        np.testing.assert_allclose(trimmed_mean(values, cut, axis=1), stats.trim_mean(values, cut, axis=1))
    assert trimmed_mean(np.array([8.0, 1.0, 2.0, 4.0]), 0.25, axis=0) == 3.0


def test_interval_is_close_to_that_of_scipy():
    values = np.random.default_rng(0).normal(size=(12, 1))
    _, low, high = centre_and_interval(values, "iqm")
    expected = stats.bootstrap(
        (values[:, 0],), lambda x, axis: stats.trim_mean(x, 0.25, axis=axis), n_resamples=9999, method="percentile"
    ).confidence_interval
    np.testing.assert_allclose([low[0], high[0]], expected, atol=0.1)
    _, mean_low, mean_high = centre_and_interval(values, "mean")
    assert (mean_low[0], mean_high[0]) != (low[0], high[0])


def test_interval_by_hand():
    """One of the 27 resamples of 0, 0 and 1 has the mean 1: 3.7 %, more than the 2.5 % above the interval."""
    assert [value[0] for value in centre_and_interval(np.array([[0.0], [0.0], [1.0]]), "mean")] == [1 / 3, 0, 1]


def test_labels_name_the_options_that_differ(tmp_path):
    write_run(tmp_path, 1, [1.0], hidden=[64, 64], norm="layer")
    write_run(tmp_path, 2, [1.0], hidden=[8], norm="layer")
    write_run(tmp_path, 3, [1.0], algorithm="DQN", hidden=[8], norm=None, double_q=True)
    assert labels(find_runs([tmp_path])) == [
        "DDPG, hidden=64×64, norm=layer",
        "DDPG, hidden=8, norm=layer",
        "DQN, hidden=8, norm=none",
    ]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.1 + 0.2, 0.00034719283746), ("0.3", "0.000347193")),
        ((0.1 + 0.2, 0.3, 0.9), ("0.30000000000000004", "0.3", "0.9")),
    ],
)
def test_labels_have_no_more_digits_than_tell_them_apart(values, texts, tmp_path):
    for number, value in enumerate(values):
        write_run(tmp_path, number, [1.0], gamma=value)
    assert labels(find_runs([tmp_path])) == [f"gamma={text}" for text in texts]


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"evaluation_episodes": 10}, "evaluation_episodes=10"),
        ({"n_envs": 4}, "n_envs=4"),
        ({"n_envs": 4, "vectorization": "async"}, "n_envs=4, vectorization=async"),
        ({"collector": "process", "workers": 2}, "collector=process, workers=2"),
        ({"dataset": "a.npz"}, "dataset=a.npz"),
        ({"dataset": "a.npz", "offline_timesteps": 100}, "dataset=a.npz, offline_timesteps=100"),
        ({"wrappers": ["FlattenObservation", "TimeAwareObservation"]}, "FlattenObservation+TimeAwareObservation"),
    ],
)
def test_runs_with_other_settings_are_not_seeds_of_one_curve(fields, label, tmp_path, capsys):
    for number in (0, 1):
        write_run(tmp_path, number, [1.0], seed=number)
    write_run(tmp_path, 2, [5.0], seed=2, fields=fields)
    two, one = learning_curves(find_runs([tmp_path]))
    assert (two.seeds, one.seeds, one.centre.tolist()) == (2, 1, [5.0])
    assert one.label.endswith(label)
    assert capsys.readouterr().err == ""


def test_total_timesteps_separate_runs_only_if_a_schedule_depends_on_them(tmp_path):
    """An interrupted run has the schedule of its goal, like a finished one."""
    for number, total in enumerate((300, 600)):
        write_run(
            tmp_path / "constant", number, [1.0, 2.0], seed=number, total=total, learning_rate_schedule="constant"
        )
    assert [curve.seeds for curve in learning_curves(find_runs([tmp_path / "constant"]))] == [2]
    scheduled = tmp_path / "scheduled"
    for number, (total, returns) in enumerate([(300, [1.0] * 3), (300, [1.0]), (600, [1.0] * 3)]):
        write_run(scheduled, number, returns, seed=number, total=total, learning_rate_schedule="cooldown")
    found = {curve.label: curve.seeds for curve in learning_curves(find_runs([scheduled]))}
    assert found == {"total_timesteps=300": 2, "total_timesteps=600": 1}


def test_a_seed_is_counted_once(tmp_path, capsys):
    """Its run that was evaluated last counts, whatever the number; another configuration may have the same seed."""
    same_seed = [write_run(tmp_path, number, [float(number)], seed=5) for number in (1, 2, 3)]
    write_run(tmp_path, 4, [4.0], seed=6)
    write_run(tmp_path, 5, [4.0], seed=5, gamma=0.5)
    for run, age in zip(same_seed, (200, 100, 300), strict=True):
        os.utime(run / "evaluations.csv", times=(0, time.time() - age))
    curve, other = learning_curves(find_runs([tmp_path]), measure="mean")
    assert (curve.seeds, other.seeds, curve.centre.tolist()) == (2, 1, [3.0])  # the mean of 2 and 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"ddpg: Pendulum-v1, {curve.label}: seed 5 is counted once, by the newest run, {same_seed[1]}; left out: "
        f"{same_seed[2]}, {same_seed[0]}"
    )
    (named,) = learning_curves(find_runs([tmp_path]), names=["mine"] * 5)
    assert (named.seeds, capsys.readouterr().err) == (5, "")  # named runs are all counted


def test_a_run_without_evaluations_is_left_out_with_the_reason(tmp_path, capsys):
    """The second run stopped before its first evaluation; the others have lost their table, or the table's rows."""
    drawn, begun, lost, emptied = (write_run(tmp_path, n, [1.0][: n == 1], seed=n) for n in (1, 2, 3, 4))
    for run, checkpoint in ((drawn, "best"), (begun, "77"), (lost, "77"), (emptied, "best")):
        (run / "checkpoints" / checkpoint).mkdir(parents=True)
    (lost / "evaluations.csv").unlink()
    assert [curve.seeds for curve in learning_curves(find_runs([tmp_path]))] == [1]
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == f"ddpg: left out: {begun}: not evaluated yet"
    assert second == f"ddpg: left out: {lost}: evaluations.csv is missing"
    assert not lacking(third, f"left out {emptied} evaluations.csv no rows best")
    with refuses(UsageError, f"nothing to draw {begun} not evaluated yet {lost} missing"):
        learning_curves(find_runs([begun, lost]))


def test_names_with_control_characters_are_printed_escaped(tmp_path, capsys):
    for number in (1, 2):
        write_run(tmp_path / "a\x1b[2Jb\nc", number, [1.0])
    learning_curves(find_runs([tmp_path]))
    (line,) = capsys.readouterr().err.splitlines()
    text = listing.runs_text(list_runs(tmp_path))
    assert len(text.splitlines()) == 3
    for printed in (line, *text.splitlines()[1:]):
        assert printed.isprintable()
        assert r"a\x1b[2Jb\nc" in printed


def test_a_share_far_below_its_floor_is_listed_without_its_number(tmp_path):
    """The gain over the first evaluation is 10, 10 and 100."""
    for number, returns in enumerate(([-1200, -1190, -1700], [-1200, -1190, -1210], [-200, -100, -150]), start=1):
        write_run(tmp_path, number, returns)
    rows = list_runs(tmp_path)
    assert [row["kept"] for row in rows] == [-50, -1, 0.5]
    shown = [line.split() for line in listing.runs_text(rows).splitlines()[1:]]
    assert [("<-100%" in words, "-100%" in words, "50%" in words) for words in shown] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_runs_are_found_once_and_in_order(tmp_path):
    for number in (10, 2, 1):
        write_run(tmp_path, number, [1.0])
    run = tmp_path / "Pendulum-v1" / "2"
    assert [found.path.name for found in find_runs([run, tmp_path])] == ["2", "1", "10"]


def test_a_search_skips_what_is_no_valid_run(tmp_path, capsys):
    """It warns about damaged and foreign files, not about a run being created; a damaged run by name is an error."""
    runs = tmp_path / "runs"
    intact = write_run(runs, 1, [1.0])
    (runs / "Pendulum-v1" / "3").mkdir()
    (runs / "Pendulum-v1" / "3" / "config.json").write_text("{}")
    damaged = write_run(runs, 4, [1.0])
    (damaged / "evaluations.csv").write_text("timesteps,mean_return\nx,1\n")
    lost = write_run(runs, 6, [1.0]) / "config.json"
    lost.unlink()
    (lost.parent / "checkpoints").mkdir()
    begun = write_run(tmp_path, 5, [1.0])
    begun.rename(runs / "Pendulum-v1" / ".ddpg-begun-0123")
    for search in (
        lambda: [run.path for run in find_runs([runs])],
        lambda: [Path(row["run"]) for row in list_runs(runs)],
    ):
        assert search() == [intact]
        foreign, row, absent = capsys.readouterr().err.splitlines()
        assert foreign.startswith(f"ddpg: skipped: {runs / 'Pendulum-v1' / '3' / 'config.json'} is not the config")
        assert row.startswith(f"ddpg: skipped: {damaged / 'evaluations.csv'} line 2 is damaged")
        assert absent.startswith(f"ddpg: skipped: {str(lost.parent)!r} is not a run directory: it has no config.json")
    with refuses(UsageError, "line 2"):
        find_runs([runs, damaged])
    with refuses(UsageError, "line 2"):
        list_runs(damaged)


def test_a_search_reads_only_the_tables_that_it_needs(tmp_path, capsys):
    """A curve over steps does not need metrics.csv, which holds the seconds."""
    intact, damaged = (write_run(tmp_path, number, [1.0], seed=number) for number in (1, 2))
    (damaged / "metrics.csv").write_text("timesteps,seconds\n100,x\n")
    assert [run.path for run in find_runs([tmp_path])] == [intact, damaged]
    assert capsys.readouterr().err == ""
    assert [run.path for run in find_runs([tmp_path], "seconds")] == [intact]
    assert [row["run"] for row in list_runs(tmp_path)] == [str(intact)]
    assert capsys.readouterr().err.count(f"ddpg: skipped: {damaged / 'metrics.csv'} line 2") == 2


def test_symbolic_links_are_followed_without_loops(tmp_path):
    """Links to a folder elsewhere, back to a parent, and to a run that the search also finds without the link."""
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    inner = write_run(runs, 1, [1.0])
    outer = write_run(elsewhere, 7, [1.0], env_id="Other-v0")
    (runs / "Other-v0").symlink_to(outer.parent)
    (outer.parent / "back").symlink_to(runs)
    (runs / "Pendulum-v1" / "around").symlink_to(runs / "Pendulum-v1")
    (runs / "A-latest").symlink_to(inner)
    assert [run.path for run in find_runs([runs])] == [runs / "Other-v0" / "7", inner]
    assert [row["run"] for row in list_runs(runs)] == [str(runs / "Other-v0" / "7"), str(inner)]


def test_missing_runs_and_unknown_choices_are_refused(tmp_path):
    with refuses(UsageError, "run"):
        find_runs([tmp_path])
    run = find_runs([write_run(tmp_path, 1, [])])
    with refuses(UsageError, "nothing evaluated"):
        learning_curves(run)
    with refuses(UsageError, "against='episodes'"):
        learning_curves(run, "episodes")
    with refuses(UsageError, "measure='median'"):
        learning_curves(run, measure="median")
    with refuses(UsageError, "directory"):
        list_runs(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert list_runs(tmp_path / "empty") == []
    with refuses(UsageError, ".png"):
        plotting.plot_curves([], tmp_path / "a.txt")


def test_figure_has_one_panel_per_environment_and_one_line_per_configuration(tmp_path, monkeypatch):
    for number, gamma in enumerate((0.5, 0.5, 0.9)):
        write_run(tmp_path, number, [float(number), 3.0 * number], seed=number, gamma=gamma)
    write_run(tmp_path, 1, [3.0, 2.0], env_id="mine:Other-v0")
    figures = []
    savefig = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *to, **how: figures.append(self) or savefig(self, *to, **how))
    found = learning_curves(find_runs([tmp_path]), "seconds", "mean")
    path = plotting.plot_curves(found, tmp_path / "a.png", "seconds", "mean")
    assert path.stat().st_size > 10_000
    other, pendulum = sorted(figures[0].axes, key=lambda axes: axes.get_title())
    assert (other.get_title(), pendulum.get_title()) == ("Other-v0", "Pendulum-v1")
    assert pendulum.get_xlabel() == "seconds of training"
    assert [text.get_text() for text in pendulum.get_legend().texts] == ["gamma=0.5 (2 seeds)", "gamma=0.9 (1 seed)"]
    assert pendulum.lines[0].get_ydata().tolist() == [0.5, 1.5]
    assert pendulum.lines[0].get_color() != pendulum.lines[1].get_color()
    band = pendulum.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0.0, 3.0)
    assert "mean of the seeds" in figures[0]._supxlabel.get_text()


@pytest.mark.parametrize(
    "environments",
    [
        ("Pendulum-v1", "mine:Other-v0"),
        pytest.param(("Pendulum-v1",), marks=pytest.mark.slow),
        pytest.param(("Pendulum-v1", "mine:Other-v0", "mine:Third-v0"), marks=pytest.mark.slow),
    ],
)
def test_a_legend_of_many_options_is_inside_the_figure(environments, tmp_path, monkeypatch):
    """Runs of different recipes differ in some twenty options."""
    for env_id in environments:
        for number in range(4):
            options = {f"option_number_{index}": number for index in range(20)}
            write_run(tmp_path, number, [1.0, 2.0], env_id=env_id, **options)
    figures = []
    savefig = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *to, **how: figures.append(self) or savefig(self, *to, **how))
    plotting.plot_curves(learning_curves(find_runs([tmp_path])), tmp_path / "a.png")
    outline = figures[0].bbox
    boxes = [axes.get_legend().get_window_extent() for axes in figures[0].axes if axes.get_legend()]
    assert len(boxes) == len(environments)
    for box in boxes:
        assert outline.x0 <= box.x0 < box.x1 <= outline.x1
        assert outline.y0 <= box.y0 < box.y1 <= outline.y1
    for left, right in itertools.pairwise(boxes):
        assert left.x1 <= right.x0
    assert all(axes.get_window_extent().height > 250 for axes in figures[0].axes), "too little height for the curves"
    text = " ".join(figures[0].axes[0].get_legend().texts[3].get_text().split())
    assert text.startswith("option_number_0=3, option_number_1=3, ")
    assert text.endswith("option_number_19=3 (1 seed)")


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures instead of writing them."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *to, **how: figures.append(self))
    return figures


def test_a_curve_of_one_evaluation_is_a_point_with_its_interval(drawn, tmp_path):
    """The resampled mean of 0 and 2 is 0, 1 or 2, so the interval goes from 0 to 2."""
    for seed, value in enumerate((0.0, 2.0)):
        write_run(tmp_path, seed, [value], seed=seed)
    plotting.plot_curves(learning_curves(find_runs([tmp_path])), tmp_path / "a.png")
    (axes,) = drawn[0].axes
    (line,) = axes.lines
    assert (line.get_xydata().tolist(), line.get_marker()) == ([[100, 1]], "o")
    (bar,) = axes.collections
    assert [segment.tolist() for segment in bar.get_segments()] == [[[100, 0], [100, 2]]]

    run = write_run(tmp_path, 5, [])
    evaluation = "timesteps,episodes,mean_return,ci95_low,ci95_high\n100,10,0.9,0.7,1.1\n"
    (run / "evaluations.csv").write_text(evaluation)
    plotting.plot_learning_curve(run, "title")
    (bar,) = drawn[1].axes[0].collections
    assert [segment.tolist() for segment in bar.get_segments()] == [[[100, 0.7], [100, 1.1]]]


@pytest.mark.parametrize(
    ("steps", "against"),
    [
        ((102, 112), "steps"),
        ((1, 2), "steps"),
        ((10**5, 10**6), "steps"),
        ((685, 715), "seconds"),
        ((9, 11), "seconds"),
    ],
)
def test_tick_labels_equal_the_tick_positions(steps, against, drawn, tmp_path):
    """At 50 steps a second, the steps 685 to 715 are 13.7 to 14.3 seconds."""
    run = write_run(tmp_path, 1, [1.0, 2.0], steps=steps)
    plotting.plot_curves(learning_curves(find_runs([tmp_path]), against), tmp_path / "a.png", against)
    (run / "evaluations.csv").write_text(
        "timesteps,mean_return,ci95_low,ci95_high\n" + "".join(f"{step},1,0,2\n" for step in steps)
    )
    plotting.plot_learning_curve(run, "title")
    for figure in drawn:
        axis = figure.axes[0].xaxis
        positions = axis.get_majorticklocs()
        texts = [label.get_text() for label in axis.get_majorticklabels()]
        assert [float(text.replace(",", "")) for text in texts] == pytest.approx(positions, rel=1e-9, abs=1e-12)
        assert len({*texts}) == len(texts) > 1


def test_the_band_of_a_run_stays_within_its_returns(drawn, tmp_path):
    run = write_run(tmp_path, 1, [])
    (run / "evaluations.csv").write_text(
        "timesteps,episodes,mean_return,ci95_low,ci95_high,min_return,max_return\n"
        "100,10,0.9,0.7,1.1,0.5,1.0\n"
        "200,10,0.9,0.7,1.1,,\n"
    )
    plotting.plot_learning_curve(run, "title")
    band = drawn[0].axes[0].collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 100, 1].max() == 1.0
    assert band[band[:, 0] == 100, 1].min() == 0.7
    assert band[band[:, 0] == 200, 1].max() == 1.1  # older versions did not write max_return


@pytest.mark.parametrize("largest", [1.7e308, np.inf])
def test_returns_that_cannot_be_drawn_are_left_out(largest, drawn, tmp_path, capsys, recwarn):
    """Matplotlib's ticks overflow between -1.7e308 and 1.7e308."""
    run = write_run(tmp_path, 1, [5.0, -largest, np.nan, largest])
    plotting.plot_curves(learning_curves(find_runs([run])), tmp_path / "a.png")
    assert drawn[0].axes[0].lines[0].get_ydata().tolist() == pytest.approx([5.0, *[np.nan] * 3], nan_ok=True)
    assert "3 of 4" in capsys.readouterr().err
    plotting.plot_learning_curve(write_run(tmp_path, 2, [largest, -largest]), "a run")
    assert not recwarn.list


def test_list_of_runs(tmp_path):
    finished = write_run(tmp_path, 1, [-3.0, -1.0, -2.0], gamma=0.5, hidden=[64, 64])
    stopped = write_run(tmp_path, 2, [-3.0], seed=4)
    begun = write_run(tmp_path, 3, [])
    other = write_run(tmp_path, 1, [1.0, 2.0, 3.0], env_id="mine:Other-v0", algorithm="Unknown")
    for path in stopped.iterdir():
        os.utime(path, times=(0, time.time() - 7300))
    with run_lock(begun):
        rows = {row["run"]: row for row in list_runs(tmp_path)}
        text = listing.runs_text(list(rows.values()))
    states = {path: rows[str(path)]["state"] for path in (finished, stopped, begun, other)}
    assert states == {finished: "finished", stopped: "interrupted", begun: "running", other: "finished"}
    row = rows[str(finished)]
    assert (row["last_return"], row["best_return"], row["timesteps"]) == (-2.0, -1.0, 300)
    assert (row["kept"], row["dips"]) == (0.5, 1.0)  # -2 is half-way from the first, -3, to the best, -1
    assert (rows[str(begun)]["kept"], rows[str(stopped)]["dips"]) == (None, None)
    assert re.search(r" -2 +-1 +50% +100% ", text)
    assert row["options"] == {"gamma": 0.5}  # hidden is the preset's
    assert (rows[str(stopped)]["seed"], rows[str(stopped)]["options"]) == (4, {})
    assert rows[str(begun)]["best_return"] is None
    assert rows[str(other)]["options"] == {}
    assert 7290 < rows[str(stopped)]["age_seconds"] < 7400
    lines = text.splitlines()
    assert len(lines) == 5
    line = next(line for line in lines if line.startswith(str(stopped)))
    assert line.split()[1:] == ["DDPG", "100/300", "-3", "-3", "2", "h", "interrupted"]
    assert "gamma=0.5" in next(line for line in lines if line.startswith(str(finished)))
    assert {row["state"] for row in list_runs(tmp_path)} == {"finished", "interrupted"}
    assert listing.runs_text([]) == "no runs yet"


def test_a_run_of_a_recipe_is_listed_by_the_recipes_name(tmp_path):
    """Without the fifteen options in which the recipe differs from the preset."""
    plain = DDPGConfig().to_json()
    run = write_run(tmp_path, 1, [1.0], env_id="NoPreset-v0", **plain | {"gamma": 0.5})
    preset = write_run(tmp_path, 2, [1.0], env_id="NoPreset-v0")
    rows = {row["run"]: row for row in list_runs(tmp_path)}
    row = rows[str(run)]
    assert (row["recipe"], row["options"]) == ("ddpg", {"gamma": 0.5})
    assert (rows[str(preset)]["recipe"], rows[str(preset)]["options"]) == (None, {})
    assert listing.runs_text([row]).endswith("recipe=ddpg, gamma=0.5")


def test_runs_of_other_users_are_listed(tmp_path, monkeypatch):
    """Listing opens no file for writing; a patched ``os.open`` refuses it, as the superuser has every permission."""
    under_way, killed = (write_run(tmp_path, number, [1.0]) for number in (1, 2))
    with run_lock(killed):
        owner = (killed / ".owner.json").read_bytes()
    (killed / ".owner.json").write_bytes(owner)
    opened = os.open

    def read_only(path, flags, *rest, **more):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *rest, **more)

    with run_lock(under_way):
        monkeypatch.setattr(os, "open", read_only)
        assert [row["state"] for row in list_runs(tmp_path)] == ["running", "interrupted"]
        assert [row["state"] for row in list_runs(tmp_path)] == ["running", "interrupted"]
        monkeypatch.undo()


def test_processes_that_check_a_lock_do_not_take_each_other_for_its_owner(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    run = write_run(tmp_path, 1, [1.0])
    (run / ".owner.json").touch()
    assert is_run_locked(run) is False  # no process holds a lock that does not exist
    with (run / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert is_run_locked(run) is False
        fcntl.flock(other, fcntl.LOCK_EX)
        assert is_run_locked(run) is True


def test_without_flock_a_lock_is_tried(tmp_path, monkeypatch):
    """As on Windows."""
    monkeypatch.setattr(lock, "fcntl", None)
    with run_lock(tmp_path):
        assert is_run_locked(tmp_path) is True
    (tmp_path / ".owner.json").touch()
    assert [is_run_locked(tmp_path), is_run_locked(tmp_path)] == [False, False]


def test_an_unreadable_lock_leaves_the_state_unknown(tmp_path):
    run = write_run(tmp_path, 1, [1.0])
    (run / ".owner.json").touch()
    (run / ".lock").mkdir()  # unreadable for the superuser, too
    assert [row["state"] for row in list_runs(tmp_path)] == ["unknown"]
    (run / ".lock").rmdir()
    os.mkfifo(run / ".lock")  # opening it would block
    assert [row["state"] for row in list_runs(tmp_path)] == ["unknown"]


def test_a_run_on_another_machine_is_running(tmp_path):
    """As a cell of a study on a cluster: this machine locks the cell's log, not the run."""
    write_run(tmp_path, 1, [1.0])
    write_run(tmp_path, 1, [1.0, 2.0, 3.0], env_id="Other-v0")
    states = lambda: [row["state"] for row in listing.list_runs(tmp_path)]  # noqa: E731
    with contextlib.ExitStack() as stack:
        for name in ("Pendulum-v1", "Other-v0"):
            stack.enter_context(lock_cell_log(tmp_path / name / "log.txt"))
        assert sorted(states()) == ["finished", "running"]
    assert sorted(states()) == ["finished", "interrupted"]


def test_resampling_is_repeatable():
    values = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(centre_and_interval(values, "iqm"), centre_and_interval(values, "iqm"))


def test_a_custom_option_is_formatted_as_its_name():
    assert curves.format_option({"custom": "mine"}) == "mine"


def test_options_of_layers_that_are_not_used_are_not_shown(tmp_path):
    """Networks of the user's own replace what hidden and norm describe; a critic of one's own does so alone."""
    own = {"actor_network": "mine:actor", "critic_network": "mine:critic"}
    config = DDPGConfig().to_json()
    for number, options in enumerate(
        (own | {"critic_hidden": [9]}, {"hidden": [64, 64]}, {"critic_network": "mine:critic"})
    ):
        write_run(tmp_path, number, [1.0], **config | options)
    runs = find_runs([tmp_path])
    assert labels(runs[:2]) == [
        "actor_network=mine:actor, critic_network=mine:critic",
        "actor_network=none, critic_network=none",
    ]
    assert labels(runs[1:]) == ["hidden=64×64, critic_network=none", "hidden=256×256, critic_network=mine:critic"]
    assert "hidden" not in list_runs(tmp_path)[0]["options"]


def test_many_curves_of_a_panel_differ_in_colour_or_line(drawn, tmp_path):
    for number in range(20):
        write_run(tmp_path, number, [1.0, 2.0], gamma=number / 100)
    plotting.plot_curves(learning_curves(find_runs([tmp_path])), tmp_path / "a.png")
    lines = drawn[0].axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 20


def test_names_are_drawn_as_they_are(drawn, tmp_path):
    """Matplotlib takes what is between two dollars for a formula, and clips a title that is wider than the figure."""
    for number, dataset in enumerate(("$HOME$.npz", "b.npz")):
        write_run(tmp_path, number, [1.0], env_id="mine:" + "Long" * 25 + "-v0", fields={"dataset": dataset})
    plotting.plot_curves(learning_curves(find_runs([tmp_path])), tmp_path / "a.png")
    (axes,) = drawn[0].axes
    FigureCanvasAgg(drawn[0]).draw()
    assert axes.title.get_window_extent().width < drawn[0].bbox.width
    entry = axes.get_legend().texts[0]
    assert entry._preprocess_math(entry.get_text()) == ("dataset=$HOME$.npz (1 seed)", False)


def test_the_legend_of_a_run_names_what_is_drawn_and_covers_nothing(drawn, tmp_path):
    """The running mean of five episodes is a point, which a line does not show."""
    for count in (5, 6):
        run = write_run(tmp_path, count, [1.0, 2.0])
        (run / "episodes.csv").write_text("timesteps,return\n" + "".join(f"{i},{-i}\n" for i in range(count)))
        plotting.plot_learning_curve(run, "title")
    more = drawn[1]
    assert [len(figure.legends[0].texts) for figure in drawn] == [2, 3]
    assert "running mean" in more.legends[0].texts[1].get_text()
    for figure in drawn:
        FigureCanvasAgg(figure).draw()
        assert figure.legends[0].get_window_extent().y1 < figure.axes[0].get_window_extent().y0


def test_a_label_has_one_colour_in_every_panel():
    """Also in a panel without the first label; with more labels than colours, each panel starts from the first."""

    def curve(env_id, label):
        return curves.Curve(env_id, label, 1, *(np.zeros(1) for _ in range(4)))

    first, second = plotting.COLOURS[:2]
    assert plotting._colours([curve("E", "a"), curve("E", "b")], ["a", "b"]) == [first, second]
    assert plotting._colours([curve("F", "b")], ["a", "b"]) == [second]
    many = [str(number) for number in range(len(plotting.COLOURS))]
    assert plotting._colours([curve("F", "x")], [*many, "x"]) == [first]
