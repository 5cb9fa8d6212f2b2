"""Runs that a signal, a failing environment or a full disk ends early: what they save, and how they resume."""

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Walk
from full_disk import files_no_larger_than
from refusals import refuses
from remains import assert_same, what_is_left

from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.agents.learn_loop import LearnLoop
from ddpg.checkpoints import checkpoint
from ddpg.cli.main import main
from ddpg.errors import EnvironmentFault, FileFault
from ddpg.runs import recorder, run_directory, run_loop, signals
from ddpg.runs.tables import CSVTable, read_table

CONFIG = DDPGConfig(
    **TINY, learning_starts=20, updates_per_call=3, updates_per_step=0.7, buffer_size=90, target="online"
)
RUN = {"seed": 5, "total_timesteps": 150, "evaluation_interval": 60, "evaluation_episodes": 2, "progress_bar": False}


class Eventful(gym.Wrapper):
    """Calls ``event`` at every training step, with the number of the step."""

    event = None
    steps = 0

    def step(self, action):
        if self.trains:
            Eventful.steps += 1
            if Eventful.event is not None:
                Eventful.event(Eventful.steps)
        return self.env.step(action)

    def reset(self, *, seed=None, options=None):
        self.trains = seed != RUN["seed"] + 1_000_000 and (seed is not None or getattr(self, "trains", False))
        return self.env.reset(seed=seed)


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register("Eventful-v0", lambda **_: Eventful(Walk()), disable_env_checker=True)
    yield
    del gym.registry["Eventful-v0"]


@pytest.fixture
def at(monkeypatch):
    """Return a function that sets what happens at a training step."""

    def at(step, action):
        monkeypatch.setattr(Eventful, "steps", 0)
        monkeypatch.setattr(Eventful, "event", staticmethod(lambda now: action() if now == step else None))

    at(0, None)
    return at


@pytest.fixture(scope="module")
def uninterrupted(registered, tmp_path_factory):
    return train("Eventful-v0", CONFIG, root=tmp_path_factory.mktemp("uninterrupted"), **RUN)


def send(number):
    """Send a signal to this process, and wait until the run has received it."""
    request = signals._watching
    os.kill(os.getpid(), number)
    for _ in range(1000):
        if request.number is not None:
            return
        time.sleep(0.01)
    pytest.fail("the signal was not received")


@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_ends_a_run_and_it_resumes_exactly(number, uninterrupted, at, tmp_path, capsys):
    before = signal.getsignal(number)
    at(40, lambda: send(number))
    run = train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    assert signal.getsignal(number) == before
    ends = [int(row["timesteps"]) for row in read_table(uninterrupted / "episodes.csv")]
    (stopped,) = {int(path.name) for path in run_directory.checkpoints(run)} - {0}
    assert stopped == min(end for end in ends if end >= 40)
    err = capsys.readouterr().err
    assert signal.Signals(number).name in err
    assert f"saved at {stopped} of 150 steps; it goes on as if it had not been interrupted" in err
    assert "evaluation there: mean return" in err
    assert not read_table(run / "evaluations.csv")  # the table does not have this evaluation
    at(0, None)
    resume(run, progress_bar=False)
    assert_same(run, uninterrupted)


@pytest.mark.slow  # an endless evaluation, below, is made on resume, too
def test_an_evaluation_that_is_due_at_a_signal_is_made_on_resume(uninterrupted, at, tmp_path):
    due = int(read_table(uninterrupted / "evaluations.csv")[0]["timesteps"])
    at(due, lambda: send(signal.SIGTERM))
    run = train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    assert [path.name for path in run_directory.checkpoints(run)] == ["0", str(due)]
    assert not read_table(run / "evaluations.csv")
    at(0, None)
    resume(run, progress_bar=False)
    assert_same(run, uninterrupted)


@pytest.mark.slow
def test_stopping_does_not_wait_for_a_long_episode(uninterrupted, at, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_loop, "PATIENCE", 0.0)
    ends = [int(row["timesteps"]) for row in read_table(uninterrupted / "episodes.csv")]
    begun = next(end for end, after in itertools.pairwise(ends) if end >= 65 and after - end >= 3)
    at(begun + 1, lambda: send(signal.SIGINT))
    run = train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    grid, stopped = (path.name for path in run_directory.checkpoints(run))
    assert (int(stopped), 60 <= int(grid) < 70) == (begun + 1, True)
    assert f"exactly as if not interrupted: ddpg resume {run} --checkpoint {grid}" in capsys.readouterr().err
    at(0, None)
    resume(run, which=grid, progress_bar=False)
    assert_same(run, uninterrupted)


@contextlib.contextmanager
def endless_evaluations(after, action):
    """Make evaluations endless from training step ``after`` on; their first step calls ``action``."""
    step, steps = Eventful.step, []

    def endless(self, env_action):
        values = step(self, env_action)
        if self.trains or Eventful.steps < after:
            return values
        steps.append(values)
        if len(steps) == 1:
            action()
        if len(steps) > 200_000:  # takes seconds; the deadline is 0.05 s
            fail()
        return (*values[:2], False, False, {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Eventful, "step", endless)
        patch.setattr(run_loop, "LAST_EVALUATION", 0.05)
        patch.setattr(run_loop, "PATIENCE", 0.0)
        yield


@pytest.mark.parametrize("place", [0, pytest.param(-1, marks=pytest.mark.slow)])
def test_stopping_does_not_wait_for_an_endless_evaluation(place, uninterrupted, at, tmp_path, capsys):
    """It is made on resume, also if it is the last one."""
    due = int(read_table(uninterrupted / "evaluations.csv")[place]["timesteps"])
    with endless_evaluations(due, lambda: send(signal.SIGTERM)):
        run = train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    err = capsys.readouterr().err
    assert f"saved at {due} of 150 steps; it goes on as if it had not been interrupted" in err
    assert "evaluation there" not in err
    assert run_directory.checkpoints(run)[-1].name == str(due)
    assert all(int(row["timesteps"]) < due for row in read_table(run / "evaluations.csv"))
    at(0, None)
    resume(run, progress_bar=False)
    assert_same(run, uninterrupted)


def test_stopping_does_not_wait_for_an_endless_evaluation_of_the_stopped_run(at, tmp_path, capsys):
    at(20, lambda: send(signal.SIGTERM))
    with endless_evaluations(0, lambda: None):
        run = train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    assert run_directory.checkpoints(run)[-1].name == "20"
    assert "evaluation there" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_evaluation_without_a_time_limit_is_noted_once(at, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recorder, "LONG_EVALUATION", 0.0)
    train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    assert capsys.readouterr().err.count("max_episode_steps") == 1
    train("Pendulum-v1", CONFIG, root=tmp_path, **RUN | {"total_timesteps": 10, "evaluation_episodes": 1})
    assert "max_episode_steps" not in capsys.readouterr().err


def test_waiting_for_an_episode_does_not_count_compilation(monkeypatch):
    class Agent:
        num_timesteps, env, loop = 1, None, LearnLoop()

    request = signals.StopRequest()
    clock = iter([100.0, 100.5, 140.5, 141.0, 143.0, 144.0, 145.1])
    monkeypatch.setattr(run_loop.time, "monotonic", lambda: next(clock))
    stop = run_loop.GracefulStop(request)
    assert stop.on_step(Agent()) is None  # no signal yet
    request.number = signal.SIGINT
    # A step counts for 1 s at most: 0, 0.5, 1 of 40, 0.5, 1 of 2, 1, 1 of 1.1; the last one makes 5 s.
    assert [stop.on_step(Agent()) for _ in range(7)] == [None] * 6 + [False]


def test_a_second_signal_ends_the_run_at_once_and_names_the_checkpoint(at, tmp_path, capsys):
    def twice():
        send(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    at(40, twice)
    with pytest.raises(KeyboardInterrupt):
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    run = tmp_path / "Eventful-v0" / "1"
    assert f"ended at once; go on from step 0 with: ddpg resume {run}" in capsys.readouterr().err
    assert [path.name for path in run_directory.checkpoints(run)] == ["0"]


STARTING = """
import os, signal
from ddpg.cli.terminal import tolerate_broken_pipes
from ddpg.runs import signals

with tolerate_broken_pipes(), signals.stop_on_signals(ends_process=True) as request:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # as while TensorFlow is imported
    os.kill(os.getpid(), signal.SIGINT)
    request.came(within=60)
    request.resumable = lambda: "how to resume"
    request.before_end = lambda: request.say("called before the end")
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


def test_signals_are_answered_while_stderr_is_redirected():
    """Both answers go to the original stderr; the second signal ends the process."""
    done = subprocess.run([sys.executable, "-c", STARTING], stderr=subprocess.PIPE, text=True, timeout=120)
    first, second, third = done.stderr.splitlines()
    assert first.startswith("ddpg: SIGINT: the run will be saved and ended")
    assert second == "ddpg: SIGTERM again: ended at once; how to resume"
    assert third == "ddpg: called before the end"
    assert done.returncode == 128 + signal.SIGTERM


IN_A_CELL = """
import os, signal, sys, threading
from ddpg.runs import signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
with signals.stop_on_signals(ends_process=True) as request:
    for i, number in enumerate((signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)):
        os.kill(os.getpid(), number)
        threading.Event().wait(0.2 if i < int(sys.argv[1]) else 60)  # a signal that ends it may be answered late
        print("saved")
"""


@pytest.mark.parametrize(
    ("environment", "saved", "status"), [({signals.CELL: "1"}, 2, signal.SIGHUP), ({}, 1, signal.SIGTERM)]
)
def test_a_second_sigterm_does_not_end_a_cell(environment, saved, status):
    """A service manager and the study both send one; another signal ends a cell, too."""
    code = [sys.executable, "-u", "-c", IN_A_CELL, str(saved)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120, env=os.environ | environment)
    assert done.stdout == saved * "saved\n"
    assert done.returncode == 128 + status
    assert ("a second signal ends it" in done.stderr) == (not environment)


@pytest.mark.slow
def test_training_in_a_thread(uninterrupted, at, tmp_path):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train("Eventful-v0", CONFIG, root=tmp_path, **RUN)))
    thread.start()
    thread.join()
    assert_same(runs[0], uninterrupted)


# -- environments that fail -----------------------------------------------------------------------------


def fail():
    raise RuntimeError("its wheel came off")


def test_a_run_is_saved_when_its_environment_fails(uninterrupted, at, tmp_path):
    """It can be resumed from there with a new episode, or exactly from its last evaluation."""
    at(103, fail)
    with pytest.raises(EnvironmentFault) as caught:
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    run = tmp_path / "Eventful-v0" / "1"
    found = re.fullmatch(
        r"after step 102, seed 5: environment Eventful-v0 failed in step \d+ of episode 1 since its "
        r"reset with seed \d+: RuntimeError: its wheel came off; what was learned is saved; go on from step 102 "
        rf"with: ddpg resume {run}; exactly as if not interrupted: ddpg resume {run} --checkpoint (\d+)",
        str(caught.value),
    )
    assert found
    manifest, groups = checkpoint.read(run / "checkpoints" / "102")
    assert (manifest["num_timesteps"], groups["replay"]["position"]) == (102, 102 % 90)
    assert manifest["num_updates"] > 0
    at(0, None)
    copy = shutil.copytree(run, tmp_path / "copy")
    assert what_is_left(resume(copy, progress_bar=False))["num_timesteps"] == 150
    assert_same(resume(run, which=found[1], progress_bar=False), uninterrupted)


def test_a_vector_that_lost_a_process_is_saved(at, tmp_path):
    def gone():
        raise EOFError

    at(41, gone)
    message = "step 40 seed 5 environment 0 of 2 EOFError saved"
    with refuses(EnvironmentFault, message):
        train("Eventful-v0", CONFIG, root=tmp_path, n_envs=2, **RUN)


def test_a_first_reset_that_fails(at, tmp_path, monkeypatch):
    monkeypatch.setattr(Walk, "reset", lambda self, seed=None, options=None: fail())
    with refuses(EnvironmentFault, "step 0 seed 5 reset episode 1 its wheel"):
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN)


def test_exit_statuses_of_environment_and_file_errors(uninterrupted, at, tmp_path, monkeypatch, capsys):
    def constructor(**_):
        raise OSError(errno.ENODEV, "no such simulator")

    gym.register("Unmakeable-v0", constructor)
    assert main(["train", "Unmakeable-v0", "--root", str(tmp_path)]) == 3
    assert "'Unmakeable-v0' could not be made: OSError: [Errno 19] no such simulator" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    del gym.registry["Unmakeable-v0"]
    (tmp_path / "file").write_text("")
    assert main(["train", "Eventful-v0", "--root", str(tmp_path / "file")]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    path = str(tmp_path / "file")
    assert line == f"ddpg: error: root={path!r}: {path!r} is not a directory; name another one"


# -- full disks -------------------------------------------------------------------------------------------


def test_a_row_that_does_not_fit_is_removed(tmp_path):
    table = CSVTable(tmp_path / "t.csv", ["timesteps", "value"], 0)
    table.add({"timesteps": 1, "value": 0.5})
    before = (tmp_path / "t.csv").read_bytes()
    with files_no_larger_than(len(before) + 3), refuses(OSError, "File too large") as caught:
        table.add({"timesteps": 2, "value": 0.25})
    assert caught.value.filename == str(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == before
    table.add({"timesteps": 3, "value": 0.25})
    table.close()
    assert [row["timesteps"] for row in read_table(tmp_path / "t.csv")] == ["1", "3"]


def test_events_that_cannot_be_rewritten_are_kept(tmp_path, monkeypatch):
    from ddpg.runs import log_writers as module

    def add(step):
        events = module.TensorBoardLogWriter(tmp_path, {"a": "a"}, None)
        events.add_metrics(step, {"a": 1.0})
        events.close()

    add(5)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.tf.io, "TFRecordWriter", full)
    with refuses(OSError, "No space left"):
        module.TensorBoardLogWriter(tmp_path, {}, lambda step, tag: False)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [(path.name, before)]


def test_rewritten_events_are_flushed_through_a_file_open_for_writing(tmp_path, monkeypatch):
    """Windows refuses to flush any other: EBADF."""
    from ddpg.runs.log_writers import TensorBoardLogWriter, v1

    events = TensorBoardLogWriter(tmp_path, {"a": "a"}, None)
    for step in (5, 6):
        events.add_metrics(step, {"a": 1.0})
    events.close()
    (path,), flush, flushed = tmp_path.iterdir(), os.fsync, []

    def of_windows(descriptor):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flushed.append(descriptor)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", of_windows)
    TensorBoardLogWriter(tmp_path, {"a": "a"}, lambda step, tag: step < 6).close()
    assert len(flushed) == 1
    assert [event.step for event in v1.train.summary_iterator(str(path)) if event.HasField("summary")] == [5]


def test_events_that_do_not_fit_raise_an_os_error(tmp_path):
    from ddpg.runs.log_writers import TensorBoardLogWriter

    events = TensorBoardLogWriter(tmp_path, {"a": "a"}, lambda step, tag: True)

    def fill():
        for step in range(100):
            events.add_metrics(step, {"a": 1.0})
            events.flush()

    with files_no_larger_than(1000), refuses(OSError, "events.out.tfevents.") as caught:
        fill()
    assert caught.value.errno
    with contextlib.suppress(OSError):
        events.close()


def test_a_disk_that_fills_during_training(uninterrupted, at, tmp_path):
    limits = contextlib.ExitStack()
    at(90, lambda: limits.enter_context(files_no_larger_than(600)))
    with limits, pytest.raises(FileFault) as caught:
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    run = tmp_path / "Eventful-v0" / "1"
    kept = run_directory.checkpoints(run)[-1].name
    assert f"File too large (EFBIG); earlier checkpoints are intact; with that put right, go on from step {kept} " in (
        str(caught.value)
    )
    at(0, None)
    resume(run, progress_bar=False)
    assert_same(run, uninterrupted)


def test_a_disk_that_is_full_at_the_start(tmp_path):
    with files_no_larger_than(1000), refuses(FileFault, "config.json EFBIG"):
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN)
    assert not list((tmp_path / "Eventful-v0").iterdir())


# -- vectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_envs": 0}, "n_envs=0 1"),
        ({"n_envs": 1025}, "n_envs=1025 1024"),
        ({"n_envs": 2.5}, "n_envs=2.5 whole"),
        ({"n_envs": True}, "n_envs=True whole"),
        ({"n_envs": 2, "vectorization": "asinc"}, "'async'"),
        ({"vectorization": "async"}, "several environments"),
    ],
)
def test_invalid_vector_options(options, message, tmp_path):
    with refuses(UsageError, message):
        train("Eventful-v0", CONFIG, root=tmp_path, **RUN, **options)
    assert not list(tmp_path.iterdir())


def test_the_number_of_environments_is_a_whole_number_of_any_type(tmp_path):
    run = train("Eventful-v0", CONFIG, root=tmp_path, n_envs=np.float32(2), **RUN | {"total_timesteps": 20})
    found = run_directory.read_config(run)["n_envs"]
    assert (found, type(found)) == (2, int)


@pytest.mark.slow
def test_environments_in_processes_give_the_same_run(tmp_path):
    options = RUN | {"total_timesteps": 100}
    runs = [
        train("Pendulum-v1", CONFIG, root=tmp_path / kind, n_envs=2, vectorization=kind, **options)
        for kind in ("sync", "async")
    ]
    assert_same(*runs)
    assert [run_directory.read_config(run)["vectorization"] for run in runs] == ["sync", "async"]
    assert len(read_table(runs[0] / "evaluations.csv")) == 2


@pytest.mark.slow
def test_a_vector_stops_without_waiting_for_episodes(at, tmp_path, capsys):
    at(31, lambda: send(signal.SIGTERM))
    run = train("Eventful-v0", CONFIG, root=tmp_path, n_envs=2, **RUN)
    assert "new ones" in capsys.readouterr().err
    at(0, None)
    assert what_is_left(resume(run, progress_bar=False))["num_timesteps"] >= 150


def test_damaged_arrays_of_a_run_state_are_refused():
    from ddpg.runs.run_state import RunState

    counts = {"clipped": 3}
    run_state = RunState.begun(["loss"], counts, 7)
    run_state.calls, run_state.sums = 1, {"loss": 2.0}
    run_state.recent.append((1.5, 9))
    arrays = run_state.arrays({"clipped": 5}, 1.25, 0.5)
    again = RunState.from_arrays("f", arrays, ["loss"], {"clipped": 0})
    assert again.arrays({"clipped": 0}, 1.25, 0.5) == {name: pytest.approx(value) for name, value in arrays.items()}
    assert (again.counts, again.calls, again.sums) == ({"clipped": -2}, 1, {"loss": 2.0})
    for name, value in [
        ("logged", np.array(-1)),
        ("logged", np.array([7])),
        ("evaluated", np.array(7.0)),
        ("sums", np.zeros(2)),
        ("counts", np.zeros(0, int)),
        ("returns", np.zeros(2)),
        ("best", np.zeros(1)),
        ("tables", np.zeros(5, np.uint8)),
    ]:
        with refuses(FileFault, f"f: {name}"):
            RunState.from_arrays("f", arrays | {name: value}, ["loss"], counts)
    with refuses(FileFault, "arrays"):
        RunState.from_arrays("f", arrays | {"more": np.zeros(1)}, ["loss"], counts)
