"""The processes of a study: their number, their commands, and what happens when they fail or are interrupted."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusals import refuses
from small_studies import train_by_hand

from ddpg import UsageError
from ddpg.cli.inspect import Evaluate
from ddpg.cli.main import main
from ddpg.cli.train import Resume, Train
from ddpg.errors import FileFault
from ddpg.runs import signals
from ddpg.runs.env_source import EnvSource
from ddpg.runs.lock import lock_cell_log, run_lock
from ddpg.runs.run_directory import read_config
from ddpg.studies import cell_process, scheduler, study_progress
from ddpg.studies.cell_process import COMMAND, LocalEngine
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.parent_guard import with_parent_guard
from ddpg.studies.scheduler import Scheduler, run_study, study_resume_hint
from ddpg.studies.study import Cell, read_study
from ddpg.studies.study_folder import CellFolder


def run(study, jobs=None, **options):
    engine = EngineChoice(jobs=jobs, command=study.command)
    return run_study(study.file, study.root, study.groups, engine, **{"progress_bar": False, **options})


def scheduler_of(study, report=lambda line: None, request=None):
    """Return a scheduler of the study's cells, one at a time in processes of this machine."""
    engine = LocalEngine(1, study.command)
    return Scheduler(study.cell_folders, engine, request or signals.StopRequest(), report)


def test_cells_are_trained_then_evaluated_once(stubbed, capsys):
    study = stubbed(2, "final_episodes = 30")
    outcome = run(study, jobs=1)
    assert (outcome.cells, outcome.finished, outcome.failed) == (2, 2, {})
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate"] * 2
    trained, evaluated = (words for words, _ in study.calls[:2])
    assert trained[:2] == ["train", "Pendulum-v1"]
    assert trained[trained.index("--total-timesteps") + 1] == "100"
    assert trained[trained.index("--evaluation-interval") + 1] == "100"  # an episode lasts longer than the run
    assert evaluated[1:4] == [str(study.cell_folders[0].run), "--episodes", "30"]
    assert [cell_folder.evaluated for cell_folder in study.cell_folders] == [{"mean_return": 5.5}] * 2
    messages = capsys.readouterr().err
    assert "Pendulum-v1 plain seed 1: started" in messages
    assert "Pendulum-v1 plain seed 1: finished, evaluation return 5.5" in messages
    run(study)
    assert len(study.calls) == 4


def test_a_cell_whose_run_was_removed_is_trained_and_evaluated_again(stubbed):
    """As the report advises for a damaged run: the evaluation was that of the old run."""
    study = stubbed(1, "final_episodes = 30")
    run(study)
    shutil.rmtree(study.cell_folders[0].run)
    run(study)
    assert [words[0] for words, _ in study.calls] == ["train", "evaluate"] * 2


def test_mostly_random_runs_are_warned_of_before_they_start(stubbed, capsys):
    """Once for each configuration and environment with unfinished cells."""
    study = stubbed(2)
    late = "late = { learning_starts = 100 }\nhalf = { learning_starts = 50 }\nsoon = { learning_starts = 5 }\n"
    study.file.write_text(study.file.read_text().replace("plain = {}\n", late))
    study.groups = read_study(study.file)
    run(study, jobs=1)
    messages = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    advice = "random (learning_starts); train longer, or take e.g. learning_starts = 10 in its options"
    assert messages[:3] == [
        f"Pendulum-v1 late: nothing will be learned: all 100 steps are {advice}",
        f"Pendulum-v1 half: 50 of 100 steps are {advice.replace('random', 'random before learning begins')}",
        "Pendulum-v1 late seed 0: started",
    ]
    assert sum("random" in line for line in messages) == 2
    run(study)
    assert "random" not in capsys.readouterr().err


def test_commands_carry_all_settings_of_the_study(tmp_path, monkeypatch):
    path = tmp_path / "study.toml"
    path.write_text(
        "seeds = [3]\ntotal_timesteps = 70\nevaluation_interval = 20\nevaluation_episodes = 4\nfinal_episodes = 6\n"
        "n_envs = 2\nvectorization = 'async'\nwrappers = ['FlattenObservation', 'TimeAwareObservation']\n"
        "env_kwargs = { g = -5.5, max_episode_steps = 20 }\n"
        "[environments.'gymnasium:Pendulum-v1']\n"
        "[configurations]\na = { recipe = 'td3', hidden = [8, 4], norm = 'layer', v_min = -1e-7, jit = false }\n"
    )
    (group,) = read_study(path, ["gymnasium"])
    cell_folder = CellFolder(tmp_path / "out", Cell(group, 3))
    cell_folder.path.mkdir(parents=True)
    training = Train.parse(cell_folder.arguments()[1:], "ddpg train")
    assert training.args[0].to_json() == group.options
    parsed = vars(training.func)
    for name in ("env", "n_envs", "vectorization", "evaluation_interval", "evaluation_episodes", "total_timesteps"):
        assert parsed[name] == getattr(group, {"env": "env_id"}.get(name, name))
    assert (parsed["seed"], parsed["wrap"], parsed["json"], parsed["progress_bar"]) == (
        3,
        tuple(group.wrappers),
        True,
        False,
    )
    assert training.func.source == EnvSource("gymnasium:Pendulum-v1", tuple(group.wrappers), group.env_kwargs)
    assert Path(parsed["root"], "Pendulum-v1") == cell_folder.path
    (cell_folder.path / "1" / "checkpoints" / "70").mkdir(parents=True)
    (cell_folder.path / "1" / "config.json").write_text("{}")
    document = {"algorithm": "DDPG", "config": group.options, "env_id": "Pendulum-v1"}
    monkeypatch.setattr("ddpg.runs.run_directory.read_config", lambda run: document)
    resuming = vars(Resume.parse(cell_folder.arguments()[1:], "ddpg resume").func)
    assert (resuming["run"], resuming["allow_import"]) == (str(cell_folder.path / "1"), ("gymnasium",))
    (cell_folder.path / "1" / "checkpoints" / "70" / "manifest.json").write_text("{}")
    evaluating = vars(Evaluate.parse(cell_folder.arguments()[1:], "ddpg evaluate"))
    assert (evaluating["run"], evaluating["episodes"]) == (str(cell_folder.path / "1"), 6)
    assert evaluating["allow_import"] == ("gymnasium",)


def test_commands_carry_the_collector_and_the_workers(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        "environments = ['Pendulum-v1']\nconfigurations = {a = {collector = 'process', workers = 2}, b = {}}"
    )
    for group, expected in zip(read_study(path), (("process", 2), ("local", None)), strict=True):
        cell_folder = CellFolder(tmp_path / "out", Cell(group, 0))
        cell_folder.path.mkdir(parents=True)
        parsed = vars(Train.parse(cell_folder.arguments()[1:], "ddpg train").func)
        assert (parsed["collector"], parsed["workers"]) == expected


@pytest.mark.parametrize(
    ("jobs", "cores", "threads"),
    [
        *((2, 4, "2"), (None, 3, "1")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 2, "1"), (1, 3, "3"), (3, 10, "3"))),
    ],
)
def test_jobs_bound_the_running_cells_which_share_the_cores(jobs, cores, threads, stubbed, monkeypatch):
    monkeypatch.setattr(cell_process, "available_cores", lambda: cores)
    study, at_a_time = stubbed(4), []
    look = lambda _, running: at_a_time.append(len(running))  # noqa: E731
    start = Scheduler._start
    monkeypatch.setattr(
        Scheduler, "_start", lambda self, cell_folder: (start(self, cell_folder), look(None, self.running))
    )
    run(study, jobs=jobs)
    assert max(at_a_time) == (jobs or cores)
    assert [given for _, given in study.calls] == [threads] * 4


def test_a_failure_is_one_line_and_other_cells_continue(stubbed, capsys):
    study = stubbed([7, 0])
    outcome = run(study, jobs=1)
    assert outcome.finished == 1
    assert outcome.failed == {"Pendulum-v1 plain seed 7": "bad luck (status 3)"}
    assert study.cell_folders[0].state == "failed"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert "seed 7: failed: bad luck (status 3); its log: " in line
    again = run(study, jobs=1)
    assert again.failed == {"Pendulum-v1 plain seed 7": "bad luck (status 3)"}
    assert "failed before: bad luck" in capsys.readouterr().err
    assert len(study.calls) == 2
    retried = run(study, jobs=1, retry=True)
    assert (retried.finished, retried.failed) == (2, {})
    assert study.calls[-1][0][:2] == ["resume", str(study.cell_folders[0].run)]
    assert not study.cell_folders[0].failed.exists()


RESUME = "go on from step 9 with: ddpg resume /tmp/ddpg-cell-a/1 --allow-import mine"  # gone with its node
TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
    fail()
"""


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (f"begun\n{TRACEBACK}RuntimeError: boom\nline2\n", "RuntimeError: boom line2"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring this:\n\n{TRACEBACK}a.b.Bad: x\n  hint: y\n", "a.b.Bad: x hint: y"),
        (f"{TRACEBACK}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{TRACEBACK}ValueError: logged\n" + "step\n" * 50 + "gave up\n", "gave up"),
        (f"{TRACEBACK}ValueError: 1\nddpg: error: bad luck\nmore\n", "bad luck"),
        (f"ddpg: error: bad luck; {RESUME}\n", "bad luck"),
        (TRACEBACK, "fail()"),
        ("one\ntwo\n", "two"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_of_a_failure_is_its_complete_message(output, reason, stubbed):
    study = stubbed([0])
    (cell_folder,) = study.cell_folders
    cell_folder.path.mkdir(parents=True)
    cell_folder.log.write_text(f"{TRACEBACK}OSError: of an earlier start\n{output}")
    process = SimpleNamespace(returncode=1, gone=None)
    job = scheduler.Job(cell_folder, "train", process, cell_folder.log.stat().st_size - len(output))
    assert scheduler._failure_reason(job) == f"{reason} (status 1)"


def test_a_killed_cell_resumes_in_the_next_call(stubbed):
    study = stubbed([9])
    assert run(study).failed == {"Pendulum-v1 plain seed 9": "ended by SIGKILL"}
    assert study.cell_folders[0].state == "interrupted"
    run(study)
    assert [words[0] for words, _ in study.calls] == ["train", "resume"]


def test_a_cell_that_ends_without_progress_is_not_restarted(stubbed):
    study = stubbed([6])
    assert "before its goal" in run(study).failed["Pendulum-v1 plain seed 6"]
    assert len(study.calls) == 1


@pytest.mark.parametrize(("more", "evaluated"), [("", {}), ("final_episodes = 30", {"mean_return": 5.5})])
def test_a_process_that_fails_after_its_results_are_complete_fails_no_cell(more, evaluated, stubbed, capsys):
    """The environment raised in ``close``, or a library crashed as the interpreter ended."""
    study = stubbed([10], more)
    outcome = run(study)
    assert (outcome.finished, outcome.failed) == (1, {})
    assert study.cell_folders[0].evaluated == evaluated
    assert not study.cell_folders[0].failed.exists()
    stages = ["train", "evaluate"][: len(evaluated) + 1]
    assert [words[0] for words, _ in study.calls] == stages
    messages = capsys.readouterr().err
    assert messages.count("results are complete, but after them its process failed: no simulator") == len(stages)
    assert "seed 10: finished" in messages


def test_extra_output_beside_a_result_fails_only_that_cell(stubbed):
    study = stubbed([5, 0], "final_episodes = 30")
    outcome = run(study, jobs=1)
    assert outcome.finished == 1
    assert "Pendulum-v1 plain seed 0" not in outcome.failed
    reason = outcome.failed["Pendulum-v1 plain seed 5"]
    assert "is not readable as JSON" in reason
    assert reason.endswith("something else was printed beside the evaluation's result (status 4)")
    assert not study.cell_folders[0].final.exists()
    assert study.cell_folders[0].state == "failed"


@pytest.mark.parametrize(
    "text",
    [
        *("hello\n{}", "[]", "{}", '{"mean_return": "good"}', '{"mean_return": true}', '{"mean_return": null}'),
        *('{"mean_return": 1, "std_return": false}', '{"mean_return": 1, "success_rate": "all"}'),
    ],
)
def test_a_damaged_file_of_a_cell_is_refused_by_name(text, stubbed):
    (cell_folder,) = stubbed([0], "final_episodes = 30").cell_folders
    cell_folder.path.mkdir(parents=True)
    cell_folder.final.write_text(text)
    with refuses(FileFault, "final.json"):
        cell_folder.evaluated  # noqa: B018


def test_a_damaged_record_of_a_failure_does_not_keep_other_cells_from_running(stubbed, capsys):
    study = stubbed([0, 1])
    damaged = study.cell_folders[0]
    damaged.path.mkdir(parents=True)
    damaged.failed.write_text('{"why":')
    outcome = run(study)
    assert (outcome.finished, [*outcome.failed]) == (1, ["Pendulum-v1 plain seed 0"])
    told = capsys.readouterr().err
    assert f"seed 0: failed before: {damaged.failed} is not readable as JSON" in told
    assert "the reason is lost; --retry tries it again" in told
    assert damaged.failed.read_text() == '{"why":'
    assert run(study, retry=True).finished == 2


@pytest.mark.parametrize(
    ("saves", "words", "states"),
    [(40, "interrupted at step 40", ["interrupted", "waiting"]), (100, "finished", ["finished", "waiting"])],
)
def test_a_stop_request_lets_cells_save_and_starts_no_others(saves, words, states, stubbed, monkeypatch):
    """A cell whose saved step is its last one has finished."""
    monkeypatch.setenv("STUB_SAVES", str(saves))
    study, messages = stubbed([8, 0]), []
    request = signals.StopRequest()
    scheduler = scheduler_of(study, messages.append, request)
    cell_folder = study.cell_folders[0]

    def look():
        if study.ready:
            request.number = signal.SIGTERM

    scheduler.run(look)
    assert cell_folder.saved == saves
    assert messages[-1] == f"Pendulum-v1 plain seed 8: {words}"
    assert scheduler.failed == {}
    assert [cell_folder.state for cell_folder in study.cell_folders] == states
    outcome = run(study)
    assert (outcome.finished, outcome.failed) == (2, {})


def test_a_signal_while_the_cells_are_checked_begins_nothing(stubbed, monkeypatch, capsys):
    """A study that is written could not change any more."""
    study = stubbed([0])

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals._watching.came(60)
        return read_study(*arguments)

    monkeypatch.setattr("ddpg.studies.study.read_study", interrupted)
    assert main(["study", str(study.file), "--root", str(study.root)]) == 128 + signal.SIGTERM
    told = capsys.readouterr().err
    assert "SIGTERM: the command ends when it has checked its input" in told
    assert told.endswith("ddpg: interrupted: nothing was begun\n")
    assert not study.root.exists()


@pytest.mark.parametrize(("first", "retry"), [(0, ""), (7, " --retry")])
def test_a_file_that_cannot_be_written_says_what_is_kept_and_how_to_go_on(first, retry, stubbed):
    """Also with a cell that has failed before, whose reason may have been the same full disk."""
    study = stubbed([first, 1])
    (study.root / "plain").mkdir(parents=True)
    (study.root / "plain" / "1").touch()  # in place of a folder
    with refuses(FileFault, "plain/1 finished kept") as caught:
        run(study, jobs=1)
    assert str(caught.value).endswith(f"go on with: ddpg study {study.file} --root {study.root}{retry}")
    (study.root / "plain" / "1").unlink()
    run(study, retry=bool(retry))
    assert len(study.calls) == (3 if retry else 2)


def test_an_interrupted_retry_goes_on_with_a_retry(stubbed, monkeypatch, capsys):
    """Without it the cells that failed before and are still waiting would be skipped."""
    study = stubbed([8, 7])
    study.cell_folders[1].path.mkdir(parents=True)
    study.cell_folders[1].failed.write_text('{"why": "bad luck"}\n')
    look = study_progress.StudyProgress.look

    def interrupt(board):
        look(board)
        if study.ready and signals._watching.number is None:
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals._watching.came(60)

    monkeypatch.setattr(study_progress.StudyProgress, "look", interrupt)
    assert run(study, jobs=1, retry=True).finished == 0
    assert f"go on with: ddpg study {study.file} --root {study.root} --retry\n" in capsys.readouterr().err


def test_a_cell_that_another_process_finished_is_not_started(stubbed):
    study, messages = stubbed([0, 1]), []
    scheduler = scheduler_of(study, messages.append)
    train_by_hand(study.cell_folders[1], [1.0, 2.0])
    scheduler.run()
    assert [words[words.index("--seed") + 1] for words, _ in study.calls] == ["0"]
    assert [cell_folder.state for cell_folder in study.cell_folders] == ["finished", "finished"]


def test_cells_are_terminated_before_a_second_signal_ends_the_command(stubbed):
    study, request, codes = stubbed([8]), signals.StopRequest(), []
    scheduler = scheduler_of(study, request=request)

    def look():
        if study.ready:
            request.before_end()
            codes.extend(job.process.wait() for job in scheduler.running.values())

    scheduler.run(look)
    assert study.cell_folders[0].saved == 40
    assert request.before_end is signals.ignore


class Endless(cell_process.Process):
    """A cell that runs until it is asked to end, or waits in a queue."""

    def __init__(self, waiting):
        self._waiting = waiting

    waiting = property(lambda self: self._waiting)

    def poll(self):
        return self.returncode

    def terminate(self):
        self.returncode = 143


def test_a_cell_without_news_is_told_of_every_hour(stubbed, monkeypatch):
    """A cell that writes, or waits in a queue, is not."""
    study, request, messages, minutes = stubbed(3), signals.StopRequest(), [], [0]
    silent, writing, queued = study.cell_folders
    ours = scheduler_of(study, messages.append, request)
    ours._waiting.clear()
    for folder in study.cell_folders:
        train_by_hand(folder, [1.0])
        ours.running[folder] = scheduler.Job(folder, "train", Endless(folder is queued), 0)

    def let_ten_minutes_pass(_):
        minutes[0] += 10
        os.utime(writing.run / "metrics.csv", (0, 1e10 + minutes[0]))
        request.number = signal.SIGTERM if minutes[0] == 150 else None

    monkeypatch.setattr(scheduler.time, "monotonic", lambda: 60.0 * minutes[0])
    monkeypatch.setattr(scheduler.time, "sleep", let_ten_minutes_pass)
    ours.run()
    told = f"{silent.cell}: no news for 60 minutes; its environment may hang; its log: {silent.log}"
    assert messages == [told, told] + [f"{folder.cell}: interrupted at step 100" for folder in study.cell_folders]


def test_an_error_in_the_scheduler_terminates_the_cells(stubbed):
    study = stubbed([8])
    scheduler = scheduler_of(study)

    def look():
        if study.ready:
            raise OSError("no space left")

    with refuses(OSError, "no space"):
        scheduler.run(look)
    assert study.cell_folders[0].saved == 40
    assert [job.process.returncode for job in scheduler.running.values()] == [143]


def test_a_finished_cell_whose_table_has_lost_its_end_fails_and_names_the_file(stubbed):
    """Nothing is left to resume: the checkpoint says that the last step was evaluated."""
    study = stubbed([6])
    (folder,) = study.cell_folders
    train_by_hand(folder, [5.0])
    (why,) = run(study).failed.values()
    assert str(folder.run / "evaluations.csv") in why
    assert f"remove {folder.run}" in why


@pytest.mark.parametrize("name", ["evaluations.csv", "metrics.csv"])
def test_a_damaged_table_of_a_finished_cell_does_not_keep_others_from_running(name, stubbed, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)  # the bar reads the steps of all cells
    study = stubbed(2, "final_episodes = 30")
    damaged, other = study.cell_folders
    train_by_hand(damaged, [5.0, 7.0])
    (damaged.run / name).write_text("timesteps,mean_return\n\0,7\n")
    outcome = run(study, jobs=1, progress_bar=True)
    assert (outcome.finished, outcome.failed) == (2, {})
    assert other.evaluated["mean_return"] == 5.5


def test_a_terminal_shows_a_bar_over_the_steps_of_all_cells(stubbed, monkeypatch, capsys):
    study = stubbed(2)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(study_progress, "REFRESH_INTERVAL", 0.0)
    run(study, jobs=1, progress_bar=True)
    messages = capsys.readouterr().err
    assert "100/200" in messages
    assert "200/200" in messages
    run(study, jobs=1)
    assert "/200" not in capsys.readouterr().err


OWN = """
import gymnasium
from environments import Counting

gymnasium.register("Own-v0", Counting)
"""


@pytest.mark.slow
def test_a_module_in_the_working_directory_shadows_no_other(tmp_path):
    """An environment's module is still found there, as by ``ddpg train``."""
    (tmp_path / "own.py").write_text(OWN)
    for name in ("random", "tyro"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('of the working directory')")
    words = ["train", "own:Own-v0", "--recipe", "ddpg", "--total-timesteps", "3", "--evaluation-episodes", "1"]
    words += ["--hidden", "4", "--no-jit"]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*COMMAND, *words, "--no-progress-bar"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert read_config(tmp_path / "runs" / "Own-v0" / "1")["command"] == ["ddpg", *words, "--no-progress-bar"]


def test_one_process_at_a_time_owns_a_study(stubbed):
    study = stubbed([0])
    study.root.mkdir()
    with run_lock(study.root), refuses(UsageError, "in use"):
        run(study)
    run(study)


def test_a_cell_that_another_process_trains_is_waited_for(stubbed):
    study = stubbed([0])
    run(study)
    (cell_folder,) = study.cell_folders
    (cell_folder.run / "checkpoints" / "100").rename(cell_folder.run / "checkpoints" / "50")
    messages = []
    with contextlib.ExitStack() as other:
        other.enter_context(run_lock(cell_folder.run))
        assert cell_folder.state == "running"

        def report(line):
            messages.append(line)
            if "another process" in line:
                other.close()

        scheduler = scheduler_of(study, report)
        scheduler.run()
    assert not scheduler.failed
    assert cell_folder.state == "finished"
    assert [line.partition(": ")[2].split()[0] for line in messages] == ["another", "goes", "finished"]


def test_a_cell_with_a_locked_log_is_waited_for(stubbed):
    study = stubbed([0])
    cell_folder = study.cell_folders[0]
    cell_folder.path.mkdir(parents=True)
    with contextlib.ExitStack() as other:
        other.enter_context(lock_cell_log(cell_folder.log))  # by a process that has no run yet
        scheduler = scheduler_of(study, lambda line: other.close())
        assert cell_folder.state == "running"
        scheduler.run()
    assert cell_folder.state == "finished"


def test_a_program_that_a_cell_starts_does_not_inherit_its_lock(stubbed):
    study = stubbed([0])
    cell_folder = study.cell_folders[0]
    cell_folder.path.mkdir(parents=True)
    starts = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])"
    keeps = f"{starts}; sys.stdin.read(); import time; time.sleep(1)"
    cell = cell_process.CellProcess(cell_folder, [sys.executable, "-S", "-c", keeps], 1)
    session = cell._process.pid  # its leader's process id
    try:
        assert cell_folder.state == "running"
        cell.wait(60)
        assert cell.poll() == 0
        assert cell_folder.state != "running"
    finally:
        os.killpg(session, signal.SIGKILL)


def test_a_terminated_cell_ends_where_only_its_guard_can_be_killed(stubbed, monkeypatch):
    """As on Windows, where terminating a process kills it, and leaves the processes that it has started."""
    study = stubbed([8])
    (cell_folder,) = study.cell_folders
    cell_folder.path.mkdir(parents=True)
    monkeypatch.setattr(cell_process, "with_parent_guard", lambda command: with_parent_guard(command, "pipe"))
    monkeypatch.setattr(subprocess.Popen, "terminate", subprocess.Popen.kill)
    cell = cell_process.CellProcess(cell_folder, study.command, 1)
    while not study.ready:
        assert cell.poll() is None
    cell.terminate()
    cell.wait(60)
    assert cell.poll() == 143
    assert cell_folder.saved == 40


def test_folders_that_begin_with_a_dash_are_not_read_as_flags(stubbed, monkeypatch, tmp_path):
    study = stubbed([0], "final_episodes = 1")
    monkeypatch.chdir(tmp_path)
    cell_folder = CellFolder(Path("-out"), study.cell_folders[0].cell)
    cell_folder.path.mkdir(parents=True)
    flags = cell_folder.arguments()
    assert flags[flags.index("--root") + 1] == "./-out/plain/0"
    assert flags[flags.index("--config") + 1] == "./-out/plain/0/Pendulum-v1/options.toml"
    train_by_hand(cell_folder, [1.0, 2.0], steps=50)
    assert cell_folder.arguments()[:2] == ["resume", "./-out/plain/0/Pendulum-v1/1"]
    train_by_hand(cell_folder, [1.0, 2.0])
    assert cell_folder.arguments()[:2] == ["evaluate", "./-out/plain/0/Pendulum-v1/1"]
    hint = study_resume_hint(Path("-s.toml"), Path("-out"), study.groups, EngineChoice())
    assert hint == "ddpg study ./-s.toml --root ./-out"


KILLED = """
import sys
from pathlib import Path
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.study import read_study
from ddpg.studies.scheduler import run_study
study, root, *command = sys.argv[1:]
engine = EngineChoice(jobs=2, command=command)
run_study(Path(study), Path(root), read_study(study), engine, progress_bar=False)
"""


def test_a_killed_study_leaves_no_processes_and_resumes_at_once(stubbed):
    study = stubbed([8, 0])
    cell_folder = study.cell_folders[0]
    words = [sys.executable, "-c", KILLED, str(study.file), str(study.root), *study.command]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as killed:
        while "seed 0: finished" not in killed.stderr.readline():
            pass
        assert cell_folder.state == "running"
        killed.send_signal(signal.SIGKILL)
    outcome = run(study)
    assert (outcome.finished, outcome.failed) == (2, {})
    assert [call[0][0] for call in study.calls].count("train") == 2  # no cell was started from step 0 again
    assert cell_folder.saved == 100
