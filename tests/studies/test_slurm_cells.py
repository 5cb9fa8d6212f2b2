"""Cells as array jobs of Slurm, whose commands ``tests/fake_slurm.py`` replaces: submission, and how jobs end."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from small_studies import train_by_hand
from small_tunings import Tuning

from ddpg import UsageError
from ddpg.cli.main import main
from ddpg.cli.studies import Study, Tune
from ddpg.errors import EnvironmentFault, FileFault
from ddpg.runs.lock import run_lock
from ddpg.runs.signals import StopRequest
from ddpg.studies import scheduler, slurm_cells, slurm_commands, slurm_node, tuning
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.scheduler import Scheduler, run_study, study_resume_hint
from ddpg.studies.slurm_cells import SlurmEngine
from ddpg.studies.slurm_commands import ENDED, JobState, SlurmOptions
from ddpg.studies.slurm_node import CellBatch, NodeJob, job_prefix

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no Slurm for Windows")
RUNNING = frozenset(("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"))


REAL_NODE = slurm_node._NODE_MAIN
# Trains one stage and writes its status; importing what a node needs would take ten times as long.
SHORT_NODE = """
import json, os, pathlib, subprocess, sys
file, _, *command = sys.argv[1:]
index, batch = os.environ["SLURM_ARRAY_TASK_ID"], pathlib.Path(file)
record = json.loads(batch.read_text())
number, seed = record["cells"][int(index)]
group = record["groups"][number]
root = batch.parents[2] / group["configuration"] / str(seed)
words = ["train", group["env_id"], "--seed", str(seed), "--root", str(root)]
status = subprocess.call([*command, *words], env=os.environ | {"TF_NUM_INTRAOP_THREADS": "1"})
batch.with_name(f"{index}.json").write_text(json.dumps({"status": status}))
sys.exit(status)
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_node, "_NODE_MAIN", SHORT_NODE)
    monkeypatch.setattr(slurm_cells, "INTERVAL", 0.0)
    monkeypatch.setattr(slurm_cells, "PATIENCE", 0.0)
    return FakeSlurm(tmp_path, monkeypatch)


@pytest.fixture
def real_node(slurm, monkeypatch):
    monkeypatch.setattr(slurm_node, "_NODE_MAIN", REAL_NODE)


def run(study, retry=False, **options):
    engine = EngineChoice("slurm", command=study.command, **options)
    return run_study(study.file, study.root, study.groups, engine, retry=retry, progress_bar=False)


def engine_of(study):
    return SlurmEngine(None, SlurmOptions(), study.command)


def started(study):
    """Submit the jobs of all cells of a study with one engine; return their processes."""
    engine = engine_of(study)
    for cell_folder in study.cell_folders:
        cell_folder.path.mkdir(parents=True)
    return [engine.start(cell_folder) for cell_folder in study.cell_folders]


@pytest.mark.usefixtures("real_node")
def test_a_study_is_one_array_whose_jobs_train_and_evaluate(slurm, stubbed, capsys):
    study = stubbed(2, "final_episodes = 30")
    outcome = run(study, slurm=SlurmOptions(slurm_partition="long", slurm_time="2:00:00", slurm_cpus=2))
    assert (outcome.cells, outcome.finished, outcome.failed) == (2, 2, {})
    (words,) = slurm.calls("sbatch")
    assert "--array=0-1" in words
    assert {"--partition=long", "--time=2:00:00", "--cpus-per-task=2", "--requeue", "--signal=B:USR1@120"} <= {*words}
    assert not any(word.startswith(("--mem", "--account")) for word in words)
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate"] * 2
    assert {threads for _, threads in study.calls} == {"2"}
    assert [cell_folder.evaluated for cell_folder in study.cell_folders] == [{"mean_return": 5.5}] * 2
    messages = capsys.readouterr().err
    assert "plain seed 1: queued" in messages
    assert "plain seed 1: finished, evaluation return 5.5" in messages
    run(study)
    assert len(slurm.calls("sbatch")) == 1


@pytest.mark.usefixtures("real_node")
def test_a_final_evaluation_that_fails_is_not_submitted_again(slurm, stubbed, capsys):
    study = stubbed([5], "final_episodes = 30")
    (why,) = run(study).failed.values()
    assert why.endswith("something else was printed beside the evaluation's result (status 4)")
    assert len(slurm.calls("sbatch")) == 1
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate"]
    assert study.cell_folders[0].state == "failed"
    assert "results are complete" not in capsys.readouterr().err
    run(study, retry=True)
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate", "evaluate"]


@pytest.mark.slow
def test_jobs_bound_how_many_are_submitted_at_a_time(slurm, stubbed):
    study = stubbed(3)
    assert run(study, jobs=2).finished == 3
    assert [word for words in slurm.calls("sbatch") for word in words if "--array" in word] == [
        "--array=0-1",
        "--array=0-0",
    ]


@pytest.mark.slow
def test_an_array_has_no_more_cells_than_slurm_allows(slurm, stubbed, monkeypatch):
    monkeypatch.setattr(slurm_cells, "_MAX_ARRAY", 2)
    study = stubbed(3)
    assert run(study).finished == 3
    assert len(slurm.calls("sbatch")) == 2


@pytest.mark.usefixtures("real_node")
def test_a_cells_failure_is_one_line_with_its_log(slurm, stubbed, capsys):
    study = stubbed([7, 9, 6])
    outcome = run(study)
    assert (outcome.cells, outcome.finished) == (3, 0)
    assert outcome.failed == {
        "Pendulum-v1 plain seed 7": "bad luck (status 3)",
        "Pendulum-v1 plain seed 9": "ended by SIGKILL",
        "Pendulum-v1 plain seed 6": "ended before its goal without a reason",
    }
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "seed 7: failed" in line]
    assert line.endswith(f"bad luck (status 3); its log: {study.cell_folders[0].log}")
    assert [cell_folder.state for cell_folder in study.cell_folders] == ["failed", "interrupted", "failed"]


def test_out_of_memory_is_a_failure_until_retried(slurm, stubbed):
    study = stubbed(2)
    slurm.plan({1: ["OUT_OF_MEMORY"]})
    reason = run(study).failed["Pendulum-v1 plain seed 1"]
    assert "1_1 on node7 ended as OUT_OF_MEMORY" in reason
    assert "--slurm-memory" in reason
    assert study.cell_folders[1].state == "failed"
    assert len(study.calls) == 1
    assert run(study).finished == 1
    assert run(study, retry=True, slurm=SlurmOptions(slurm_memory="4G")).finished == 2
    assert "--mem=4G" in slurm.calls("sbatch")[-1]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(state, marks=[pytest.mark.slow] * (state != "NODE_FAIL"))
        for state in sorted(ENDED - {"COMPLETED", "CANCELLED", "FAILED", "OUT_OF_MEMORY"})
    ],
)
def test_a_job_that_slurm_ended_is_submitted_again(state, slurm, stubbed, capsys):
    study = stubbed(1)
    slurm.plan({0: ["RUNNING", state]})
    assert run(study).finished == 1
    assert f"lost at step 0 (Slurm job 1_0 on node7 ended as {state}), begins there again" in capsys.readouterr().err
    assert len(slurm.calls("sbatch")) == 2


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_job_cancelled_by_hand_is_reported_and_resumed_by_the_next_call(forgotten, slurm, stubbed):
    """If squeue no longer lists it, accounting says how it ended."""
    study = stubbed(1)
    if forgotten:
        (slurm.folder / "forgets").touch()
    slurm.plan({0: ["CANCELLED"]})
    assert "1_0 on node7 ended as CANCELLED" in run(study).failed["Pendulum-v1 plain seed 0"]
    assert run(study).finished == 1


@pytest.mark.parametrize("state", sorted(RUNNING))
def test_a_job_in_any_other_state_is_waited_for(state, slurm, stubbed):
    study = stubbed(1)
    slurm.plan({0: [state, "RUNNING"]})
    (process,) = started(study)
    assert (process.poll(), process.poll()) == (None, None)
    assert len(slurm.calls("squeue")) == 2


def test_an_interpreter_that_the_node_lacks_is_named(slurm, stubbed, monkeypatch):
    study = stubbed(1)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    reason = run(study).failed["Pendulum-v1 plain seed 0"]
    assert "/nowhere/python" in reason
    assert "(status 127)" in reason


@pytest.mark.slow
def test_the_result_of_a_job_that_slurm_forgot_counts(slurm, stubbed):
    study = stubbed([0, 7])
    (slurm.folder / "forgets").touch()
    outcome = run(study)
    assert (outcome.finished, outcome.failed) == (1, {"Pendulum-v1 plain seed 7": "bad luck (status 3)"})


def test_without_a_result_and_without_accounting_a_job_is_submitted_again(slurm, stubbed, capsys):
    study = stubbed(1)
    (slurm.folder / "forgets").touch()
    slurm.fails("sacct", "Slurm accounting storage is disabled")
    slurm.plan({0: ["TIMEOUT"]})
    assert run(study).finished == 1
    assert "Slurm job 1_0 has ended without a result" in capsys.readouterr().err


def test_a_result_may_arrive_after_its_job_has_ended(slurm, stubbed, monkeypatch):
    monkeypatch.setattr(slurm_cells, "PATIENCE", 1000.0)
    study = stubbed(1)
    slurm.plan({0: ["COMPLETED"]})
    (process,) = started(study)
    assert (process.poll(), process.poll()) == (None, None)
    CellBatch(study.root, 0).write_status(0, 3)
    assert process.poll() == 3


def test_an_unreachable_controller_is_waited_for(slurm, stubbed):
    study = stubbed(1)
    slurm.plan({0: ["RUNNING"]})
    (process,) = started(study)
    assert process.poll() is None
    slurm.fails("squeue", "squeue: error: Unable to contact slurm controller")
    assert (process.poll(), process.poll()) == (None, None)
    slurm.fails("squeue", None)
    assert process.poll() == 0


@pytest.mark.slow  # as the test above, for jobs of an earlier call
def test_a_restarted_study_waits_for_an_unreachable_controller(slurm, stubbed, capsys, monkeypatch):
    """No job is submitted before it is known which cells have one; ``squeue`` runs once per interval."""
    study = stubbed(1)
    CellBatch(study.root, 0).script.parent.mkdir(parents=True)  # an earlier call left it
    slurm.fails("squeue", "squeue: error: Unable to contact slurm controller")
    sleep, rounds = time.sleep, []

    def slept(seconds):
        rounds.append(seconds)
        if len(rounds) == 5:
            assert not slurm.calls("sbatch")
            assert len(slurm.calls("squeue")) == 1
            slurm.fails("squeue", None)
        sleep(seconds)

    monkeypatch.setattr(scheduler.time, "sleep", slept)
    monkeypatch.setattr(slurm_cells, "INTERVAL", 1.0)
    assert run(study).finished == 1
    assert len(slurm.calls("sbatch")) == 1
    assert capsys.readouterr().err.count("waiting for the cluster: squeue failed with status 1") == 1


@pytest.mark.slow
@pytest.mark.parametrize("arrives", [True, False])
def test_an_sbatch_that_times_out_is_repeated_unless_its_jobs_are_found_by_name(arrives, slurm, stubbed, monkeypatch):
    study = stubbed(2)
    submit = slurm_commands.submit

    def timed_out(*arguments):
        if arrives:
            submit(*arguments)
        monkeypatch.setattr(slurm_commands, "submit", submit)
        raise slurm_commands.Unavailable("sbatch: error: Socket timed out on send/recv operation")

    monkeypatch.setattr(slurm_commands, "submit", timed_out)
    assert run(study).finished == 2
    assert len(slurm.calls("sbatch")) == 1


@pytest.mark.slow
def test_a_refusal_by_slurm_is_one_line_and_ends_the_study(slurm, stubbed):
    study = stubbed(3)
    slurm.fails(
        "sbatch", "sbatch: error: invalid partition specified: nope\nsbatch: error: CellBatch job submission failed"
    )
    with refuses(EnvironmentFault, "sbatch nope --slurm --jobs") as caught:
        run(study, slurm=SlurmOptions(slurm_partition="nope"))
    assert "\n" not in str(caught.value)
    assert study.calls == []
    slurm.fails("sbatch", None)
    assert run(study).finished == 3


def test_jobs_of_a_killed_study_are_followed_not_submitted_again(slurm, stubbed, capsys):
    study = stubbed(2)
    slurm.plan({0: ["RUNNING"] * 2, 1: ["PENDING"] * 2})
    engine = engine_of(study)
    for cell_folder in study.cell_folders:
        cell_folder.path.mkdir(parents=True)
        engine.start(cell_folder)
    engine.refresh()
    assert run(study).finished == 2
    assert len(slurm.calls("sbatch")) == 1
    assert "plain seed 1: its job of before is followed" in capsys.readouterr().err


def test_a_cell_in_an_earlier_job_is_not_taken_for_another_process(slurm, stubbed):
    study = stubbed(1)
    slurm.plan({0: ["RUNNING"] * 9})
    (cell_folder,) = study.cell_folders
    engine = engine_of(study)
    train_by_hand(cell_folder, [1.0], steps=50)
    engine.start(cell_folder)
    engine.refresh()
    with run_lock(cell_folder.run):
        assert cell_folder.state == "running"
        assert engine.holds(cell_folder) is False  # its own job
        cells = Scheduler([cell_folder], engine_of(study), StopRequest(), print)
        cells._start_waiting()
        assert [job.process.job for job in cells.running.values()] == ["1_0"]


def test_jobs_of_another_folder_are_ignored(slurm, stubbed, tmp_path):
    study = stubbed(1)
    slurm.plan({0: ["RUNNING"] * 4})
    started(study)[0].poll()
    study.root.rename(tmp_path / "moved")
    study.root = tmp_path / "moved"
    study.describe(1)
    assert not engine_of(study).holds(study.cell_folders[0])
    assert job_prefix(tmp_path / "a") != job_prefix(tmp_path / "b")


def test_terminate_cancels_pending_jobs_and_signals_running_ones_until_they_end(slurm, stubbed):
    study = stubbed(3)
    slurm.plan({0: ["PENDING", "PENDING"], 1: ["RUNNING"] * 3})
    engine = engine_of(study)
    for cell_folder in study.cell_folders:
        cell_folder.path.mkdir(parents=True)
    waiting, running = (engine.start(cell_folder) for cell_folder in study.cell_folders[:2])
    assert (waiting.poll(), running.poll()) == (None, None)
    withdrawn = engine.start(study.cell_folders[2])
    for process in (waiting, running, withdrawn):
        process.terminate()
    assert withdrawn.returncode == -15
    assert slurm.jobs["1_0"]["state"] == "CANCELLED"
    assert slurm.calls("scancel") == [["1_0"], ["--batch", "--signal=USR2", "1_1"]]
    running.poll()
    assert slurm.calls("scancel")[2:] == [["--batch", "--signal=USR2", "1_1"]]
    assert waiting.returncode == -15
    assert len(slurm.calls("sbatch")) == 1


def test_a_signal_is_sent_once_although_scancel_would_repeat_it_while_others_wait(slurm, stubbed, monkeypatch):
    monkeypatch.setattr(slurm_commands, "DELIVERY", 2.0)
    study = stubbed(2)
    slurm.plan({0: ["RUNNING"] * 2, 1: ["PENDING"] * 2})
    running, waiting = started(study)
    assert (running.poll(), waiting.poll()) == (None, None)
    assert (running.waiting, waiting.waiting) == (False, True)
    running.terminate()
    waiting.terminate()
    assert slurm.calls("scancel") == [["--batch", "--signal=USR2", "1_0"], ["1_1"]]
    assert slurm.jobs["1_1"]["state"] == "CANCELLED"


def test_an_interrupt_cancels_waiting_jobs_before_it_signals_running_ones(slurm, stubbed):
    study, request = stubbed(2), StopRequest()
    slurm.plan({0: ["RUNNING"] * 6, 1: ["PENDING"] * 6})
    plan = Scheduler(study.cell_folders, engine_of(study), request, print)

    def look():
        request.number = signal.SIGINT

    plan.run(look)
    assert slurm.calls("scancel")[:2] == [["1_1"], ["--batch", "--signal=USR2", "1_0"]]


def test_the_other_waiting_jobs_of_an_array_are_not_cancelled_with_one(slurm, stubbed, monkeypatch):
    """Without accounting Slurm says nothing about the one, which it lists no longer."""
    monkeypatch.setattr(slurm_cells, "PATIENCE", 1000.0)
    slurm.fails("sacct", "Slurm accounting storage is disabled")
    study = stubbed(2)
    slurm.plan({0: ["PENDING"] * 2, 1: ["PENDING"] * 2})
    ended, other = started(study)
    assert ended.poll() is None
    ended.terminate()
    assert (other.poll(), ended.returncode) == (None, -15)
    assert (other.poll(), other.gone) == (0, None)


def test_a_waiting_job_cancelled_by_hand_is_not_submitted_again(slurm, stubbed):
    slurm.fails("sacct", "Slurm accounting storage is disabled")
    study = stubbed(1)
    slurm.plan({0: ["PENDING"] * 2})
    (process,) = started(study)
    assert process.poll() is None
    subprocess.run(["scancel", "1_0"], check=True)
    assert (process.poll(), process.gone) == (143, None)
    assert "1_0 ended as CANCELLED" in study.cell_folders[0].log.read_text()


def test_the_newest_job_of_a_name_counts(monkeypatch):
    """A study begun anew in the same folder has the names of before; squeue lists cancelled jobs after waiting ones."""
    listed = "10_0 name PENDING 0\n9_0 name CANCELLED 0 node1\n"
    monkeypatch.setattr(slurm_commands, "_call", lambda *words: listed)
    assert slurm_commands.jobs() == {("name", 0): JobState("10_0", "PENDING", 0, "")}


def test_a_users_own_filters_of_squeue_hide_no_jobs(slurm, stubbed, monkeypatch):
    monkeypatch.setenv("SQUEUE_PARTITION", "short")
    started(stubbed(1))[0].poll()
    assert [state.job for state in slurm_commands.jobs().values()] == ["1_0"]


@pytest.mark.parametrize("name", slurm_commands.COMMANDS)
def test_a_missing_slurm_command_is_a_one_line_error(name, slurm, stubbed, monkeypatch):
    (slurm.folder / name).unlink()
    monkeypatch.setenv("PATH", str(slurm.folder))
    with refuses(UsageError, f"slurm '{name}' PATH") as caught:
        run(stubbed(1))
    assert "\n" not in str(caught.value)
    assert not stubbed(1).root.exists()


def test_slurm_options_need_the_slurm_engine():
    with refuses(UsageError, "slurm_partition long engine process"):
        EngineChoice(slurm=SlurmOptions(slurm_partition="long")).check()
    EngineChoice(slurm=SlurmOptions()).check()


def test_the_command_line_passes_slurm_options_on(slurm, stubbed, monkeypatch):
    study = stubbed(1)
    given = []
    monkeypatch.setattr("ddpg.studies.scheduler.run_study", lambda *arguments, **_: given.extend(arguments) or exit(7))
    flags = ["--slurm-partition", "long", "--slurm-option=--gres=gpu:1", "--slurm-option=--qos=low"]
    with pytest.raises(SystemExit):
        main(["study", str(study.file), "--root", str(study.root), "--engine", "slurm", *flags])
    expected = SlurmOptions(slurm_partition="long", slurm_option=("--gres=gpu:1", "--qos=low"))
    assert given[3] == EngineChoice("slurm", slurm=expected)
    hint = study_resume_hint(Path("a.toml"), Path("b"), [], given[3])
    again = Study.parse(shlex.split(hint)[2:], "ddpg study")
    assert again.engine_choice() == given[3]
    tune = Tune.parse(["Pendulum-v1", "--engine", "slurm", "--jobs", "3", *flags], "ddpg tune")
    words = tune._command_words()
    assert words[:3] == ["ddpg", "tune", "Pendulum-v1"]
    assert Tune.parse(words[2:], "ddpg tune") == tune


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slurm_time", "soon"),
        ("slurm_time", "1:2"),
        ("slurm_memory", "4 GB"),
        ("slurm_partition", "--array=1"),
        ("slurm_account", ""),
        ("slurm_cpus", 0),
        ("slurm_option", ("gres",)),
        ("slurm_option", ("--comment=a\nb",)),
    ],
)
def test_invalid_slurm_options_are_refused(name, value):
    with refuses(UsageError, name):
        SlurmOptions(**{name: value})


@pytest.mark.parametrize("text", ["90", "90:00", "02:00:00", "1-12", "1-12:30", "1-12:30:00"])
def test_all_time_formats_of_sbatch_are_accepted(text):
    assert f"--time={text}" in SlurmOptions(slurm_time=text).sbatch_words()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(sorted(ENDED | RUNNING)), st.integers(-60, 255))))
def test_squeue_output_is_parsed(jobs):
    lines, expected = [], {}
    for index, (name, state, status) in enumerate(jobs):
        raw = -status if status < 0 else status << 8
        lines.append(f"{name}_{index} name{name} {state} {raw} node1")
        expected[f"name{name}", index] = JobState(f"{name}_{index}", state, status if state in ENDED else 0, "node1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_commands, "_call", lambda *words: "\n".join(["17 other RUNNING 0", *lines, "odd"]))
        assert slurm_commands.jobs() == expected


def test_sacct_output_is_parsed(monkeypatch):
    monkeypatch.setattr(slurm_commands, "_call", lambda *words: "CANCELLED by 1000|0:15|node3\n")
    assert slurm_commands.ended_job("5_1") == JobState("5_1", "CANCELLED", -15, "node3")
    monkeypatch.setattr(slurm_commands, "_call", lambda *words: "")
    assert slurm_commands.ended_job("5_1") is None


def test_a_node_takes_allowed_imports_from_the_script_not_from_the_file(slurm, stubbed, monkeypatch, capfd):
    study = stubbed(1)
    batch = CellBatch(study.root, 0)
    batch.write(study.cell_folders, study.command)
    record = json.loads((batch.path / "cells.json").read_text())
    record["groups"][0]["env_id"] = "antigravity:Pendulum-v1"
    (batch.path / "cells.json").write_text(json.dumps(record))
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert slurm_node.main([str(batch.path / "cells.json"), "", *study.command]) == 1
    assert "allow-import antigravity" in capfd.readouterr().err
    assert (study.calls, batch.status(0)) == ([], 1)


def test_a_damaged_list_of_cells_is_refused(stubbed):
    study = stubbed(1)
    batch = CellBatch(study.root, 4)
    batch.write(study.cell_folders, study.command)
    assert [cell_folder.path for cell_folder in batch.folders()] == [
        cell_folder.path for cell_folder in study.cell_folders
    ]
    record = json.loads((batch.path / "cells.json").read_text())
    (batch.path / "cells.json").write_text(json.dumps(record | {"cells": [[1, 0]]}))
    with refuses(FileFault, "cells.json group"):
        batch.folders()
    (batch.path / "0.json").write_text('{"status": "0"}')
    assert batch.status(0) is None


class SignalledJob:
    """A cell's job on its node, which receives signals once its stub command is ready (seed 8)."""

    def __init__(self, study):
        self.job = NodeJob(study.cell_folders[0], study.command, 1)
        study.cell_folders[0].path.mkdir(parents=True, exist_ok=True)
        self.study = study

    def run(self, monkeypatch, *numbers):
        wait = slurm_node.CellProcess.wait

        def send(process):
            while not self.study.ready and process.poll() is None:
                pass
            for number in numbers:
                self.job._handle(number, None)
                if number == signal.SIGTERM:  # Slurm sends it to the cell too
                    process.terminate()
            wait(process)

        monkeypatch.setattr(slurm_node.CellProcess, "wait", send)
        return self.job.run()


@pytest.mark.parametrize(
    ("numbers", "status", "requeues"),
    [
        ([signal.SIGUSR1], 143, True),
        ([signal.SIGUSR2], 143, False),
        ([signal.SIGUSR1, signal.SIGUSR2], 143, False),
        ([signal.SIGUSR2, signal.SIGUSR1], 143, False),
        ([signal.SIGTERM], None, False),
    ],
)
def test_a_cell_on_a_node_saves_at_each_signal(numbers, status, requeues, stubbed, monkeypatch):
    study = stubbed([8])
    signalled = SignalledJob(study)
    assert (signalled.run(monkeypatch, *numbers), signalled.job.requeues) == (status, requeues)
    assert study.cell_folders[0].saved == 40


def test_a_node_evaluates_a_cell_whose_process_failed_after_its_results_were_complete(stubbed):
    """The environment raised in ``close``."""
    study = stubbed([10], "final_episodes = 30")
    study.cell_folders[0].path.mkdir(parents=True)
    NodeJob(study.cell_folders[0], study.command, 1).run()
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate"]
    assert study.cell_folders[0].evaluated == {"mean_return": 5.5}


def test_a_time_limit_too_short_for_one_step_does_not_requeue(stubbed, monkeypatch):
    study = stubbed([8])
    job = NodeJob(study.cell_folders[0], study.command, 1)
    study.cell_folders[0].path.mkdir(parents=True)
    job._process = type("Process", (), {"terminate": lambda self: None})()
    job._handle(signal.SIGUSR1, None)
    with refuses(UsageError, "--slurm-time"):
        job.run()
    assert (study.calls, job.requeues) == ([], False)


def test_a_job_requeues_itself_before_its_time_limit(slurm, stubbed, monkeypatch):
    study = stubbed([8])
    batch = CellBatch(study.root, 0)
    batch.write(study.cell_folders, study.command)
    study.cell_folders[0].path.mkdir(parents=True)
    batch.write_status(0, 3)  # of an earlier start
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setattr(NodeJob, "handle_signals", lambda job: None)
    monkeypatch.setattr(NodeJob, "run", lambda job: setattr(job, "requeues", True))
    assert slurm_node.main([str(batch.path / "cells.json"), "", *study.command]) == 143
    assert slurm.calls("scontrol") == [["requeue", "12_0"]]
    assert batch.status(0) is None


def test_a_cell_that_another_process_still_trains_is_waited_for(stubbed, monkeypatch):
    study = stubbed([0])
    (cell_folder,) = study.cell_folders
    train_by_hand(cell_folder, [1.0], steps=50)
    lock = run_lock(cell_folder.run)
    lock.__enter__()
    naps = []
    monkeypatch.setattr(slurm_node.time, "sleep", lambda _: naps.append(lock.__exit__(None, None, None)))
    monkeypatch.setattr(slurm_node.CellProcess, "__init__", lambda *_: exit(7))
    with pytest.raises(SystemExit):
        NodeJob(cell_folder, study.command, 1).run()
    assert len(naps) == 1


def test_a_tuning_on_slurm_runs_ten_trials_at_a_time_by_default(slurm, tmp_path, monkeypatch):
    study = Tuning(tmp_path, monkeypatch)
    given = []

    def started(engine):
        given.append(engine)
        raise EnvironmentFault("enough")

    monkeypatch.setattr(EngineChoice, "started", started)
    for jobs in (None, 3):
        with pytest.raises(EnvironmentFault, match="enough"):
            tuning.run_tuning(study.root, study.plan, 2, 0, EngineChoice("slurm", jobs=jobs))
    assert [engine.jobs for engine in given] == [10, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("real_node")
def test_a_tuning_on_slurm_equals_a_local_one(slurm, tmp_path, monkeypatch):
    values = []
    for engine in ("process", "slurm"):
        (tmp_path / engine).mkdir()
        study = Tuning(tmp_path / engine, monkeypatch)
        choice = EngineChoice(engine, jobs=1, command=study.command)
        tuned = tuning.run_tuning(study.root, study.plan, 2, 1, choice, progress_bar=False)
        values.append([(trial.changes, trial.value, trial.returns) for trial in tuned.trials])
    assert values[0] == values[1]
    assert len(values[0]) == 2
