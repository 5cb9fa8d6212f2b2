"""A study's report on runs written by hand, and the command from end to end."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from remains import assert_same
from small_studies import train_by_hand

from ddpg import DDPGConfig, train
from ddpg.checkpoints import atomic_write
from ddpg.cli.main import main
from ddpg.cli.studies import WithEngine
from ddpg.runs import run_directory, signals
from ddpg.studies import scheduler, study_report
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.study import FILES, cells_of, read_study
from ddpg.studies.study_folder import CellFolder, write_study
from ddpg.studies.study_report import write_report


@pytest.fixture(autouse=True)
def curves(monkeypatch):
    """The function that draws the curves, which takes longer than the rest: most tests do without them."""
    real = study_report.plot_curves
    monkeypatch.setattr(study_report, "plot_curves", lambda curves, path: path.write_text("a figure"))
    return real


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_aggregates_finished_seeds(stubbed, curves, monkeypatch):
    """The interquartile mean of the final returns 0, 2, 30, 1 is that of 1 and 2; of the maxima 5, 5, 30, 5 it is 5."""
    monkeypatch.setattr(study_report, "plot_curves", curves)
    study = stubbed(6)
    for cell_folder, last in zip(study.cell_folders, (0.0, 2.0, 30.0, 1.0), strict=False):
        train_by_hand(cell_folder, [5.0, last])
    train_by_hand(study.cell_folders[4], [700.0], steps=50)  # unfinished
    report = write_report(study.root, study.groups)
    (row,) = table(report.files["table"])
    assert (row["env"], row["config"], row["seeds"], row["seeds_asked"]) == ("Pendulum-v1", "plain", "4", "6")
    assert (float(row["final"]), float(row["maximum"])) == (1.5, 5.0)
    assert 0 <= float(row["final_low"]) < 1.5 < float(row["final_high"]) <= 30
    assert "| Pendulum-v1 | plain | 100 | 4 of 6 | 1.5 (" in report.files["text"].read_text()
    # Three final returns are 0, 0.4 and 0.2 of the maximum 5, and dips; the fourth run ends at its maximum, so that it
    # keeps 1 and has no later evaluation that could dip.
    assert float(row["kept"]) == pytest.approx(0.4)
    assert 0 <= float(row["kept_low"]) < 0.4 < float(row["kept_high"]) <= 1
    assert [float(row[f"dips{end}"]) for end in ("", "_low", "_high")] == [1, 1, 1]
    assert "| Pendulum-v1 | plain | 100 | 4 of 6 | 0.4 (" in report.files["text"].read_text()
    assert report.files["figure"].stat().st_size > 1000
    written = [report.files[name].name for name in ("results", "table", "text", "figure")]
    assert written == ["results.csv", "table.csv", "table.md", "curves.png"]


def test_a_finished_cell_without_evaluations_is_named(stubbed):
    """It is skipped as finished, and would be missing from the table forever."""
    study = stubbed(2)
    for cell_folder in study.cell_folders:
        train_by_hand(cell_folder, [5.0, 7.0])
    (study.cell_folders[0].run / "evaluations.csv").unlink()
    report = write_report(study.root, study.groups)
    assert report.rows[0]["seeds"] == 1
    (line,) = report.unread
    assert "evaluations.csv is missing" in line
    assert f"remove {study.cell_folders[0].run}" in line


def test_a_run_that_was_extended_by_hand_counts_up_to_the_steps_of_the_study(stubbed):
    """``ddpg resume RUN --total-timesteps`` is for any run; the others in the table end at 100 steps."""
    study = stubbed(1)
    train_by_hand(study.cell_folders[0], [5.0, 3.0, 9.0, 9.0], steps=200)
    (row,) = write_report(study.root, study.groups).rows
    assert (row["steps"], row["final"], row["maximum"], row["kept"]) == (100, 3.0, 5.0, 0.6)


def test_unknown_seconds_are_left_out_of_the_results(stubbed):
    study = stubbed(1)
    (cell_folder,) = study.cell_folders
    train_by_hand(cell_folder, [5.0])
    (cell_folder.run / "metrics.csv").unlink()
    measures = [row["measure"] for row in table(write_report(study.root, study.groups).files["results"])]
    assert measures == ["evaluation_mean_return", "evaluation_std_return"]


def test_seeds_without_a_share_are_left_out_of_its_mean(stubbed):
    """Returns 5, 2 keep 0.4 and dip; 5, 5 keep 1 without a dip; 1, 2 end at the maximum; -5, -7 never rise."""
    study = stubbed(4)
    for cell_folder, returns in zip(
        study.cell_folders, ([5.0, 2.0], [-5.0, -7.0], [5.0, 5.0], [1.0, 2.0]), strict=True
    ):
        train_by_hand(cell_folder, returns)
    report = write_report(study.root, study.groups)
    (row,) = table(report.files["table"])
    assert [row[name] for name in ("seeds", "kept_seeds", "dips_seeds")] == ["4", "3", "2"]
    assert (float(row["kept"]), float(row["dips"])) == (pytest.approx(0.8), 0.5)
    line = next(line for line in report.files["text"].read_text().splitlines() if "| 0.8 (" in line)
    _, _, _, _, seeds, kept, dips, _ = line.split("|")
    assert (seeds, kept[-13:], dips[-13:]) == (" 4 ", ", of 3 seeds ", ", of 2 seeds ")


def test_a_finished_run_that_never_rose_has_no_shares(stubbed):
    study = stubbed(1)
    train_by_hand(study.cell_folders[0], [-5.0, -7.0])
    text = write_report(study.root, study.groups).files["text"].read_text()
    assert "| Pendulum-v1 | plain | 100 | 1 | n/a | n/a |" in text
    assert "none yet" not in text


@pytest.mark.parametrize("name", ["config.json", "evaluations.csv"])
def test_a_cell_with_a_damaged_file_is_left_out_of_the_report_and_named(name, stubbed, capsys):
    study = stubbed(2)
    damaged, sound = study.cell_folders
    train_by_hand(damaged, [5.0, 7.0])
    train_by_hand(sound, [1.0, 3.0])
    (damaged.run / name).write_text("[\n")
    report = write_report(study.root, study.groups)
    assert (report.rows[0]["final"], report.rows[0]["seeds"], report.rows[0]["seeds_asked"]) == (3, 1, 2)
    assert {row["seed"] for row in table(report.files["results"])} == {str(sound.cell.seed)}
    (line,) = report.unread
    assert str(damaged.run / name) in line
    assert f"or remove {damaged.run}" in line
    write_study(study.root, study.file, study.groups)
    assert main(["study", str(study.file), "--root", str(study.root), "--report"]) == 4
    out, stderr = capsys.readouterr()
    assert "| 1 of 2 | 3 (3 to 3) |" in out
    assert line in stderr
    shutil.rmtree(damaged.run)
    assert damaged.stage == "train"


def test_what_can_no_longer_be_compared_or_drawn_leaves_no_earlier_file(stubbed):
    """The cell that is left out would still be in comparison.csv and curves.png."""
    study = stubbed(1)
    study.file.write_text(study.file.read_text() + "other = {}\n")
    groups = read_study(study.file)
    folders = [CellFolder(study.root, cell) for cell in cells_of(groups)]
    for folder in folders:
        train_by_hand(folder, [1.0, 3.0])
    files = write_report(study.root, groups).files
    assert files["comparison"].exists()
    for folder, left in zip(folders, ("comparison", "figure"), strict=True):
        (folder.run / "evaluations.csv").write_text("[\n")
        assert write_report(study.root, groups).files[left] is None
        assert not files[left].exists()


def test_a_report_waits_for_one_that_another_process_writes(stubbed, monkeypatch):
    """Both write to the same temporary files."""
    pytest.importorskip("fcntl")
    study, begun = stubbed(1), threading.Event()
    study.root.mkdir()
    reports, write_text = [], atomic_write.write_text
    other = threading.Thread(target=lambda: reports.append(write_report(study.root, study.groups)))

    def write(path, text):
        if threading.current_thread() is other:
            begun.set()
        elif other.ident is None:
            other.start()
            assert not begun.wait(0.5)
        write_text(path, text)

    monkeypatch.setattr(atomic_write, "write_text", write)
    write_report(study.root, study.groups)
    other.join(60)
    assert reports[0].files["results"].exists()


def test_a_report_that_cannot_be_written_is_printed(stubbed, capsys):
    study = stubbed(1)
    study.root.mkdir()
    write_study(study.root, study.file, study.groups)
    for name in (FILES.results, FILES.table, FILES.text):
        (study.root / name).mkdir()  # in place of a file
    words = ["study", str(study.file), "--root", str(study.root), "--report"]
    assert main(words) == 4
    assert "Written" not in capsys.readouterr().out
    train_by_hand(study.cell_folders[0], [1.0, 3.0])
    assert main(words) == 4
    out, said = capsys.readouterr()
    assert "| Pendulum-v1 | plain | 100 | 1 | 3 (3 to 3) |" in out
    assert out.endswith(f"Written: {study.root / FILES.figure}\n")
    assert f"files left out of the report: 3; the first: {study.root / FILES.results}: Is a directory" in said
    assert "nothing else" not in said
    assert main([*words, "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert (told["table"], told["figure"], len(told["unwritten"])) == (None, str(study.root / FILES.figure), 3)


def test_a_directory_in_place_of_the_figure_leaves_out_the_figure(stubbed, curves, monkeypatch):
    monkeypatch.setattr(study_report, "plot_curves", curves)
    study = stubbed(1)
    train_by_hand(study.cell_folders[0], [1.0, 3.0])
    (study.root / FILES.figure).mkdir()
    report = write_report(study.root, study.groups)
    assert (report.files["figure"], report.files["table"], len(report.rows)) == (None, study.root / FILES.table, 1)
    (line,) = report.unwritten
    assert str(study.root / FILES.figure) in line


def test_a_study_without_cells_is_damaged(stubbed, capsys):
    study = stubbed(1)
    study.root.mkdir()
    (study.root / FILES.cells).write_text('{"format": 1, "groups": []}')
    assert main(["study", str(study.file), "--root", str(study.root), "--report"]) == 4
    assert str(study.root / FILES.cells) in capsys.readouterr().err


def test_configurations_are_compared_by_seed(stubbed):
    study = stubbed(2)
    study.file.write_text(study.file.read_text() + "slow = { gamma = 0.9 }\n")
    study.groups = read_study(study.file)
    for cell_folder in (CellFolder(study.root, cell) for cell in cells_of(study.groups)):
        level = 10.0 if cell_folder.cell.group.configuration == "slow" else 0.0
        train_by_hand(cell_folder, [99.0, level + cell_folder.cell.seed])
    report = write_report(study.root, study.groups)
    (row,) = table(report.files["comparison"])
    assert (row["env"], row["config"], row["reference"], row["seeds"]) == ("Pendulum-v1", "slow", "plain", "2")
    assert [float(row[f"difference{end}"]) for end in ("", "_low", "_high")] == [10, 10, 10]
    assert [float(row[f"improvement{end}"]) for end in ("", "_low", "_high")] == [1, 1, 1]
    assert "| Pendulum-v1 | slow | 2 | 10 (10 to 10) | 1 (1 to 1) |" in report.files["text"].read_text()
    # These lie beside the folders of configurations, which therefore must not have these names.
    write_study(study.root, study.file, study.groups)
    assert {path.name for path in study.root.iterdir() if path.is_file()} == {*FILES}


def test_the_reference_is_the_first_configuration_of_the_first_environment(stubbed):
    """In the file's table it is the second; where both are trained, ``plain`` ends 10 below it."""
    study = stubbed(2)
    tables = '[environments.Pendulum-v1]\nconfigurations = ["slow"]\n[environments."ddpg_envs/LQR-v0"]\n'
    text = study.file.read_text().replace('environments = ["Pendulum-v1"]\n', "") + "slow = { gamma = 0.9 }\n"
    study.file.write_text(text.replace("[configurations]", f"{tables}[configurations]"))
    study.groups = read_study(study.file)
    for cell_folder in (CellFolder(study.root, cell) for cell in cells_of(study.groups)):
        level = 10.0 if cell_folder.cell.group.configuration == "slow" else 0.0
        train_by_hand(cell_folder, [99.0, level + cell_folder.cell.seed])
    found = [
        (row["env"], row["config"], row["reference"]) for row in write_report(study.root, study.groups).comparisons
    ]
    assert found[0] == ("ddpg_envs/LQR-v0", "plain", "slow")
    assert {names[1:] for names in found} == {("plain", "slow")}
    assert write_report(study.root, study.groups).comparisons[0]["difference"] == -10


def test_results_are_written_in_long_form(stubbed):
    study = stubbed([3], "final_episodes = 20")
    (cell_folder,) = study.cell_folders
    train_by_hand(cell_folder, [5.0, 7.0])
    assert write_report(study.root, study.groups).rows[0]["seeds"] == 0  # the final evaluation is missing
    cell_folder.final.write_text('{"mean_return": -2.5, "std_return": 0.5, "mean_length": null, "episodes": 20}')
    report = write_report(study.root, study.groups)
    assert report.rows[0]["final"] == -2.5
    rows = [list(row.values()) for row in table(report.files["results"])]
    cell = ["Pendulum-v1", "plain", "3"]
    assert rows == [
        [*cell, "50", "evaluation_mean_return", "5.0"],
        [*cell, "50", "evaluation_std_return", "1.5"],
        [*cell, "50", "training_seconds", "1"],
        [*cell, "100", "evaluation_mean_return", "7.0"],
        [*cell, "100", "evaluation_std_return", "1.5"],
        [*cell, "100", "training_seconds", "2"],
        [*cell, "100", "last_training_seconds", "2.0"],
        [*cell, "100", "last_steps_per_second", "50"],
        [*cell, "100", "final_mean_return", "-2.5"],
        [*cell, "100", "final_std_return", "0.5"],
    ]


def test_the_command_writes_a_report_and_returns_a_status_for_failed_cells(stubbed, tmp_path, monkeypatch, capsys):
    study = stubbed([7])
    monkeypatch.setattr(WithEngine, "engine_choice", lambda self: EngineChoice(jobs=1, command=study.command))
    words = ["study", str(study.file), "--root", str(study.root)]
    assert main([*words, "--report"]) == 2
    assert "start it without --report" in capsys.readouterr().err
    begun = tmp_path / "begun"
    begun.mkdir()
    write_study(begun, study.file, study.groups)
    assert main(["study", str(study.file), "--root", str(begun), "--report", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"][0]["final"], summary["rows"][0]["seeds_asked"], summary["figure"]) == (None, 1, None)
    assert not study.calls
    monkeypatch.setattr("ddpg.studies.study_report.write_report", lambda *_: write_report(begun, study.groups))
    assert main([*words, "--jobs", "1"]) == 1
    out, stderr = capsys.readouterr()
    assert "| Pendulum-v1 | plain | 100 | 0 of 1 | none yet | none yet |" in out
    assert "ddpg: error: 1 of 1 cells failed, Pendulum-v1 plain seed 7 with: bad luck (status 3)" in stderr
    assert main([*words, "--jobs", "0"]) == 2
    stopped = SimpleNamespace(failed={"a cell": "bad luck"}, cells=2)

    def interrupted(*_, **__):
        requests[-1].number, requests[-1].left = signal.SIGTERM, True
        return stopped

    requests = []
    stop_on_signals = signals.stop_on_signals
    monkeypatch.setattr(signals, "stop_on_signals", lambda **options: recorded(stop_on_signals(**options), requests))
    monkeypatch.setattr(scheduler, "run_study", interrupted)
    assert main([*words, "--jobs", "1"]) == 128 + signal.SIGTERM
    assert "1 of 2 cells failed" in capsys.readouterr().err


@contextlib.contextmanager
def recorded(context, entered):
    with context as value:
        entered.append(value)
        yield value


REAL = """
environments = ["ddpg_envs/LQR-v0"]
total_timesteps = 1500
evaluation_interval = 500
evaluation_episodes = 2

[configurations]
one = { hidden = [4], batch_size = 8, learning_starts = 50, jit = false }
two = { hidden = [4], batch_size = 8, learning_starts = 50, jit = false, gamma = 0.5 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_study_ends_like_an_uninterrupted_one(number, tmp_path, capsys):
    (tmp_path / "small.toml").write_text(REAL)
    words = ["study", "small.toml", "--jobs", "2"]
    process = subprocess.Popen([sys.executable, "-m", "ddpg", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    cell = tmp_path / "studies" / "small" / "one" / "0" / "ddpg_envs" / "LQR-v0"
    deadline = time.monotonic() + 120
    while not (cell / "1" / "checkpoints" / "500" / "manifest.json").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    stderr = process.communicate(timeout=120)[1]
    killed = number == signal.SIGKILL
    assert process.returncode == (-number if killed else 128 + number)
    assert killed or " finished; go on with: ddpg study small.toml --root studies/small" in stderr
    assert int(run_directory.checkpoints(cell / "1")[-1].name) < 1500
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert main([*words, "--json"]) == 0
    finally:
        os.chdir(before)
    summary = json.loads(capsys.readouterr().out)
    assert (summary["cells"], summary["finished"], summary["failed"]) == (2, 2, {})
    assert [row["seeds"] for row in summary["rows"]] == [1, 1]
    config = DDPGConfig.from_json(run_directory.read_config(cell / "1")["config"])
    asked = {"seed": 0, "total_timesteps": 1500, "evaluation_interval": 500, "evaluation_episodes": 2}
    straight = train("ddpg_envs/LQR-v0", config, root=tmp_path / "straight", progress_bar=False, **asked)
    assert_same(cell / "1", straight)


@pytest.mark.parametrize("words", [["study"], ["study", "none.toml"]])
def test_a_missing_study_file_creates_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert not [*tmp_path.iterdir()]
