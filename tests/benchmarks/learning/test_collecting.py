"""Collecting runs from study folders into the CSV, and merging different versions of a run."""

import msgspec
import pytest
from learning_cells import cell
from refusals import refuses
from small_studies import Stubbed, train_by_hand

from benchmarks.learning import collecting, long_form
from benchmarks.learning.__main__ import main
from ddpg import UsageError
from ddpg.errors import FileFault
from ddpg.studies.study_folder import write_study


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of three seeds: one finished, one half way, one not begun."""
    made = Stubbed(tmp_path, monkeypatch, 3)
    for place, returns in zip(made.cell_folders, ([5.0, 7.0], [4.0]), strict=False):
        train_by_hand(place, returns, steps=50 * len(returns))
    made.root.mkdir(exist_ok=True)
    write_study(made.root, made.file, made.groups)
    return made


def test_every_cell_of_a_study_is_collected_with_its_planned_steps(study):
    finished, under_way, waiting = collecting.collect(study.root)
    assert [one.key for one in (finished, under_way, waiting)] == [("out", "Pendulum-v1", "plain", n) for n in range(3)]
    assert [one.planned_steps for one in (finished, under_way, waiting)] == [100, 100, 100]
    assert [one.reached for one in (finished, under_way, waiting)] == [100, 50, 0]
    assert [one.finished for one in (finished, under_way, waiting)] == [True, False, False]
    assert (finished.returns.tolist(), finished.seconds.tolist(), finished.final) == ([5.0, 7.0], [1.0, 2.0], 7.0)
    measures = {measure for _, measure, _ in finished.values}
    assert measures == {
        *("asked_steps", "options_crc32", "evaluation_mean_return", "training_seconds", "last_steps_per_second")
    }


def test_the_command_writes_the_collected_runs_and_can_repeat_it(study, tmp_path, capsys):
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    for _ in range(2):  # the second time changes nothing
        assert main(["--collect", str(study.root)], root=tmp_path) == 0
        assert "1 of 3 runs are finished" in capsys.readouterr().out
        cells = long_form.read(tmp_path / "benchmarks" / "results" / "learning.csv")
        assert [one.values for one in cells] == [one.values for one in collecting.collect(study.root)]
    assert main(["--collect", str(tmp_path / "none")], root=tmp_path) == 2
    assert "no study in" in capsys.readouterr().err


def test_a_study_with_a_damaged_cell_is_not_collected(study):
    damaged = study.cell_folders[0].run / "evaluations.csv"
    damaged.write_text("[\n")
    with refuses(FileFault, str(damaged)):
        collecting.collect(study.root)


def test_the_longer_of_two_versions_of_a_run_is_kept():
    short, long = cell("s", "E", "r", 0, [1, 2], asked=400), cell("s", "E", "r", 0, [1, 2, 3], asked=400)
    other = cell("s", "E", "r", 0, [9, 9], asked=400)
    assert collecting.merged([long], [short]) == [long]
    assert collecting.merged([short], [long]) == [long]
    assert collecting.merged([short], [other]) == [other]  # equally long: the newer one
    assert collecting.merged([], [long], [short]) == [long]


def test_runs_with_former_options_are_dropped_and_other_studies_kept():
    elsewhere = cell("t", "E", "r", 0, [1])
    before = [cell("s", "E", "r", seed, [1, 2], options="1") for seed in (0, 1)]
    now = cell("s", "E", "r", 0, [8], asked=200, options="2")
    assert collecting.merged([elsewhere, *before], [now]) == [now, elsewhere]


def test_cells_are_in_the_order_of_their_study_file(tmp_path):
    (tmp_path / "s.toml").write_text('environments = ["F", "E"]\n[configurations]\nb = {}\na = {}\n')
    asked = [("F", "b", 0), ("F", "b", 2), ("F", "a", 1), ("E", "b", 0), ("E", "c", 0)]
    cells = [cell("s", *key, [1]) for key in asked]
    assert collecting.in_order([cells[i] for i in (4, 2, 0, 3, 1)], tmp_path) == cells
    elsewhere = [cell("t", "B", "r", 1, [1]), cell("t", "A", "r", 1, [1])]
    assert collecting.in_order(elsewhere, tmp_path) == elsewhere


def test_the_checksum_depends_on_options_and_evaluations_but_not_on_seeds(study):
    (group,) = study.groups
    made = collecting.checksum(group)
    assert made == collecting.checksum(group)
    assert made != collecting.checksum(msgspec.structs.replace(group, evaluation_episodes=11))
    assert made != collecting.checksum(msgspec.structs.replace(group, options=group.options | {"tau": 0.5}))
    assert made == collecting.checksum(msgspec.structs.replace(group, seeds=[7]))
    assert made != collecting.checksum(msgspec.structs.replace(group, options=group.options | {"gone": 1}))


def test_an_option_that_is_added_later_does_not_change_the_checksum(study):
    """An earlier study's file does not have the option, but its runs had the same default."""
    (group,) = study.groups
    before = {name: value for name, value in group.options.items() if name != "bc_final"}
    assert len(before) == len(group.options) - 1
    assert collecting.checksum(group) == collecting.checksum(msgspec.structs.replace(group, options=before))


def test_a_file_is_read_as_it_was_written_with_studies_in_order(tmp_path):
    cells = [cell("b", "E", "r", 3, [1.25, -2]), cell("a", "F", "r", 0, [], asked=100)]
    long_form.write(tmp_path / "it.csv", cells)
    assert long_form.read(tmp_path / "it.csv") == [cells[1], cells[0]]
    assert long_form.read(tmp_path / "none.csv") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study,env\n", "columns"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,one,100,m,1\n", "line 2"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,1,100,m,\n", "line 2"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,1,100\n", "line 2"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,1,100,m,1,5\n", "line 2"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, message):
    (tmp_path / "it.csv").write_text(text)
    with refuses(FileFault, message):
        long_form.read(tmp_path / "it.csv")
    assert issubclass(FileFault, UsageError)
