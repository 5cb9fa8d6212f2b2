"""From study folders to the table in long form, and what of two versions of a run is kept."""

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
    """Three seeds: one finished, one half way, one not begun."""
    made = Stubbed(tmp_path, monkeypatch, 3)
    for place, returns in zip(made.places, ([5.0, 7.0], [4.0]), strict=False):
        train_by_hand(place, returns, steps=50 * len(returns))
    made.root.mkdir(exist_ok=True)
    write_study(made.root, made.file, made.groups)
    return made


def test_every_cell_of_a_study_is_collected_with_what_it_was_asked_for(study):
    finished, under_way, waiting = collecting.collect(study.root)
    assert [one.key for one in (finished, under_way, waiting)] == [("out", "Pendulum-v1", "plain", n) for n in range(3)]
    assert [one.asked for one in (finished, under_way, waiting)] == [100, 100, 100]
    assert [one.reached for one in (finished, under_way, waiting)] == [100, 50, 0]
    assert [one.finished for one in (finished, under_way, waiting)] == [True, False, False]
    assert (finished.returns.tolist(), finished.seconds.tolist(), finished.final) == ([5.0, 7.0], [1.0, 2.0], 7.0)
    measures = {measure for _, measure, _ in finished.values}
    assert measures == {
        *("asked_steps", "options_crc32", "evaluation_mean_return", "training_seconds", "last_steps_per_second")
    }


def test_the_command_writes_what_it_collected_and_reads_it_again(study, tmp_path, capsys):
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    for _ in range(2):  # again changes nothing
        assert main(["--collect", str(study.root)], root=tmp_path) == 0
        assert "1 of 3 runs are finished" in capsys.readouterr().out
        cells = long_form.read(tmp_path / "benchmarks" / "results" / "learning.csv")
        assert [one.values for one in cells] == [one.values for one in collecting.collect(study.root)]
    assert main(["--collect", str(tmp_path / "none")], root=tmp_path) == 2
    assert "no study in" in capsys.readouterr().err


def test_a_study_with_a_damaged_cell_is_not_collected(study):
    damaged = study.places[0].run / "evaluations.csv"
    damaged.write_text("[\n")
    with refuses(FileFault, str(damaged)):
        collecting.collect(study.root)


def test_of_a_run_that_is_there_twice_the_one_that_got_further_stays():
    short, long = cell("s", "E", "r", 0, [1, 2], asked=400), cell("s", "E", "r", 0, [1, 2, 3], asked=400)
    other = cell("s", "E", "r", 0, [9, 9], asked=400)
    assert collecting.merged([long], [short]) == [long]
    assert collecting.merged([short], [long]) == [long]
    assert collecting.merged([short], [other]) == [other]  # as far: the newer
    assert collecting.merged([], [long], [short]) == [long]


def test_runs_of_other_options_are_not_mixed_and_other_studies_stay():
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


def test_options_and_evaluations_make_the_number(study):
    (group,) = study.groups
    made = collecting.made_of(group)
    assert made == collecting.made_of(group)
    assert made != collecting.made_of(msgspec.structs.replace(group, evaluation_episodes=11))
    assert made != collecting.made_of(msgspec.structs.replace(group, options=group.options | {"tau": 0.5}))
    assert made == collecting.made_of(msgspec.structs.replace(group, seeds=[7]))
    assert made != collecting.made_of(msgspec.structs.replace(group, options=group.options | {"gone": 1}))


def test_an_option_that_was_added_later_leaves_the_number_as_it_was(study):
    """A study's file of before does not name it; the runs of both are of the same options."""
    (group,) = study.groups
    before = {name: value for name, value in group.options.items() if name != "bc_final"}
    assert len(before) == len(group.options) - 1
    assert collecting.made_of(group) == collecting.made_of(msgspec.structs.replace(group, options=before))


def test_a_file_comes_back_as_it_was_and_studies_are_in_order(tmp_path):
    cells = [cell("b", "E", "r", 3, [1.25, -2]), cell("a", "F", "r", 0, [], asked=100)]
    long_form.write(tmp_path / "it.csv", cells)
    assert long_form.read(tmp_path / "it.csv") == [cells[1], cells[0]]
    assert long_form.read(tmp_path / "none.csv") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("study,env\n", "columns"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,one,100,m,1\n", "line 2"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,1,100,m,\n", "line 2"),
        (",".join(long_form.COLUMNS) + "\ns,E,r,1,100\n", "line 2"),
    ],
)
def test_damage_is_named(tmp_path, text, told):
    (tmp_path / "it.csv").write_text(text)
    with refuses(FileFault, told):
        long_form.read(tmp_path / "it.csv")
    assert issubclass(FileFault, UsageError)
