"""Return per core-minute, from runs and rates that are made by hand."""

import json

import numpy as np
import pytest
from learning_cells import cell

from benchmarks.learning import core_minutes, figures, peer_algorithms, tables

TQC, SAC = peer_algorithms.TQC, peer_algorithms.SAC


@pytest.fixture
def speed(tmp_path):
    """A file of rates: 100 steps take 4/3 core-minutes with `plus`, 10/3 with the peers."""
    rates = {"ours, recipe plus": (1.0, 1.5), TQC: (0.5, 0.5), SAC: (0.5, 0.5)}
    rows = [
        {"kind": "stronger", "task": "HalfCheetah", "cores": cores, "peer": peer, "repeat": repeat}
        | {"steps_per_second": (1 if cores == 1 else 9) * value}
        for cores in (1, 2)
        for peer, values in rates.items()
        for repeat, value in enumerate(values)
    ]
    rows += [row | {"kind": "training", "task": "HalfCheetah 256-256", "steps_per_second": 99.0} for row in rows[:1]]
    path = tmp_path / "speed.json"
    path.write_text(json.dumps({"machine": {"processor": "P", "generation": "G"}, "rows": rows}))
    return path


def ours():
    """Runs evaluated after 4/3, 8/3, 4 and 16/3 core-minutes, an unfinished seed, and runs that are not compared."""
    cells = [cell("table", "E", "plus", 0, [10, 20, 30, 40]), cell("table", "E", "plus", 1, [30, 40, 50, 60])]
    cells += [cell("table", "E", "plus", 2, [900], asked=400), cell("table", "F", "plus", 0, [1])]
    return [*cells, cell("table", "E", "td3", 0, [1]), cell("long", "E", "plus", 0, [1])]


def peer(label=TQC, returns=(5, 45, 70, 70)):
    """A run evaluated after 10/3, 20/3, 10 and 40/3 core-minutes."""
    return cell(tables.STRONGER_STUDY, "E", label, 0, returns)


def test_rates_are_medians_on_one_core(speed):
    assert core_minutes.steps_per_second(speed) == {
        **{"ours, recipe plus": 1.25, TQC: 0.5, SAC: 0.5},
        **{"plus": 1.25, "plus_averaged": 1.25},
    }


def test_every_algorithm_has_a_committed_rate():
    stronger = [label for label, one in peer_algorithms.ALGORITHMS.items() if one.study == tables.STRONGER_STUDY]
    assert {*stronger, "plus", "plus_averaged"} <= {*core_minutes.steps_per_second()}


def test_the_table_has_the_last_evaluation_by_each_moment(speed):
    cells = [*ours(), peer(), cell(tables.STRONGER_STUDY, "E", TQC, 1, [3], asked=400)]
    cells += [cell("averaged", "E", "plus_averaged", 0, [1, 2, 3, 4])]
    lines = core_minutes.table(cells, speed).splitlines()
    assert lines[0].startswith(
        "| environment | algorithm | seeds | steps/s | core-minutes of 400 steps | return after 2 |"
    )
    assert lines[2:6] == [
        "| E | plus | 2 of 3 | 1 | 5.3 | 20 (10 to 30) | 40 (30 to 50) | ended | ended | 50 (40 to 60) |",
        "| E | plus_averaged | 1 | 1 | 5.3 | 1 (1 to 1) | 3 (3 to 3) | ended | ended | 4 (4 to 4) |",
        "| E | SBX TQC | 1 of 2 | 0 | 13.3 | none yet | 5 (5 to 5) | 70 (70 to 70) | ended | 70 (70 to 70) |",
        "",
    ]
    assert lines[6].startswith("Steps/s: medians in HalfCheetah on one pinned core of P (G)")


def test_without_a_finished_peer_the_table_is_one_line(speed, tmp_path):
    cells = [*ours(), cell(tables.STRONGER_STUDY, "E", TQC, 0, [1], asked=400)]
    assert core_minutes.table(cells, speed) == core_minutes.NONE_YET
    assert core_minutes.ahead(cells, speed) == ""
    assert core_minutes.compared(cells, speed) == []


def test_the_share_of_moments_at_which_ours_is_higher(speed):
    """Until 6.6 both seeds are above 5, until 9.9 the mean of 40 and 60 is above 45, until 13.3 nothing is above 70."""
    assert core_minutes.ahead([*ours(), peer()], speed).splitlines()[2:] == [
        "| E | SBX TQC | 3.4 to 13.3 | 66 % | 33 % | none yet | none yet |"
    ]


def test_moments_end_with_the_shortest_run_of_a_peer(speed):
    """Until 10.0 there are 67 moments: 33, 33, and the last one, at which TQC has 70. SAC is never above 9."""
    cells = [*ours(), peer(), peer(SAC, (9, 9, 9)), cell("averaged", "E", "plus_averaged", 0, [9, 9, 9, 99])]
    assert core_minutes.ahead(cells, speed).splitlines()[2:] == [
        "| E | SBX TQC | 3.4 to 10.0 | 98 % | 49 % | 100 % | 100 % |",
        "| E | Stable-Baselines3 SAC | 3.4 to 10.0 | 100 % | 100 % | 70 % | 70 % |",
    ]


def test_a_peer_evaluated_only_at_its_end_leaves_no_moment(speed):
    """Its only evaluation and its end are at 10/3 core-minutes, before the next moment, 3.4."""
    assert core_minutes.ahead([*ours(), peer(returns=(5,))], speed).splitlines()[2:] == [
        "| E | SBX TQC | none | none yet | none yet | none yet | none yet |"
    ]


def test_curves_are_drawn_over_core_minutes(speed, tmp_path):
    from matplotlib.figure import Figure

    timed = core_minutes.compared([*ours(), peer()], speed)
    axes = Figure().add_subplot()
    for one in timed:
        figures._timed_line(axes, one, "black")
    figures._finish_panel(axes, "E")
    lines, ends = axes.get_lines()[::2], axes.get_lines()[1::2]
    assert np.allclose(lines[0].get_xdata(), np.array([1, 2, 3, 4]) * 4 / 3)
    assert np.allclose(lines[0].get_ydata(), [20, 30, 40, 50])
    assert np.allclose(lines[1].get_xdata(), np.array([1, 2, 3, 4]) * 10 / 3)
    assert np.allclose([line.get_xdata()[0] for line in ends], [16 / 3, 40 / 3])
    assert axes.get_xscale() == "log"
    assert axes.get_title() == "E, at HalfCheetah's steps/s"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("plus (2 of 3 seeds; 1 steps/s)", "SBX TQC (1 seed; 0 steps/s)")
    ]
    assert figures._core_minutes(timed, tmp_path / "it.png", "P").stat().st_size > 10_000


def test_the_picture_is_drawn_if_a_peer_has_finished(tmp_path):
    own = [cell("table", "E", "plus", 0, [1, 2, 3])]
    assert figures.CORE_MINUTES not in [path.name for path in figures.draw(own, tmp_path)]
    assert figures.CORE_MINUTES in [path.name for path in figures.draw([*own, peer()], tmp_path)]
