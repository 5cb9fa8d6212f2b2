"""Cells forked from a process that has imported TensorFlow: the same runs and exit statuses as separate processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from refusals import refuses
from safetensors.numpy import load_file

from ddpg.cli.main import main
from ddpg.runs.lock import is_cell_running, lock_cell_log
from ddpg.studies import forked_cells
from ddpg.studies.cell_process import LocalEngine, cell_environment
from ddpg.studies.forked_cells import CellServer

RUN = ("train", "Pendulum-v1", "--seed", "3", "--hidden", "8", "--batch-size", "8", "--no-jit", "--no-progress-bar")
RUN = (*RUN, "--optimizer", "sgd")
SHORT = (*RUN, "--total-timesteps", "80", "--learning-starts", "50", "--evaluation-episodes", "1")
LONG = (*RUN, "--total-timesteps", "1000000", "--evaluation-interval", "100000")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cells are forked only on Linux")


@pytest.fixture(scope="module")
def server():
    found = CellServer(cell_environment(1))
    assert found.forks
    yield found
    found.close()


def start(server, folder, *arguments):
    """Start a cell with its output and its log in ``folder``; the log is locked, as in a study."""
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    with (folder / "output").open("wb") as output, log.open("wb") as errors, lock_cell_log(log) as lock:
        return server.start([*arguments], output, errors, lock)


def test_a_forked_cell_equals_a_run_of_this_process(server, tmp_path, monkeypatch, capsys):
    for name, value in cell_environment(1).items():
        monkeypatch.setenv(name, value)
    forked = start(server, tmp_path / "forked", *SHORT, "--root", str(tmp_path / "forked"))
    assert main([*SHORT, "--root", str(tmp_path / "here")]) == 0
    assert forked.wait(120) == forked.poll() == 0
    printed = (tmp_path / "forked" / "output").read_text()
    assert printed.partition(" steps, ")[0] == capsys.readouterr().out.partition(" steps, ")[0]  # followed by a time
    one, other = (
        load_file(tmp_path / name / "Pendulum-v1" / "1" / "checkpoints" / "80" / "variables.safetensors")
        for name in ("forked", "here")
    )
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_a_usage_error_is_in_the_log_and_the_exit_status(server, tmp_path):
    cell = start(server, tmp_path, "train", "Pendulum-v1", "--gamma", "7")
    assert cell.wait(60) == 2
    assert "gamma" in (tmp_path / "log").read_text()


@pytest.mark.slow  # test_graceful_stop.py terminates runs of a process of their own
def test_a_terminated_cell_saves(server, tmp_path):
    cell = start(server, tmp_path, *LONG, "--root", str(tmp_path))
    run = tmp_path / "Pendulum-v1" / "1"
    while not (run / "episodes.csv").exists() or (run / "episodes.csv").read_text().count("\n") < 3:
        assert cell.poll() is None, (tmp_path / "log").read_text()
        with pytest.raises(subprocess.TimeoutExpired):
            cell.wait(0.2)
    assert is_cell_running(tmp_path / "log")
    server._process.send_signal(signal.SIGTERM)  # as when a service manager stops all of a study's processes
    cell.terminate()
    assert cell.wait(60) == 128 + signal.SIGTERM
    assert not is_cell_running(tmp_path / "log")
    assert [*(run / "checkpoints").iterdir()]
    cell.terminate()  # has no effect on an ended cell


@pytest.mark.slow
def test_a_program_that_outlives_its_cell_does_not_keep_its_lock(tmp_path, monkeypatch):
    """A simulator that an environment starts inherits the cell's output, but not its lock."""
    (tmp_path / "simulated.py").write_text(
        textwrap.dedent(
            """
            import pathlib, subprocess, sys
            running = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
            pathlib.Path(__file__).with_name("pid").write_text(str(running.pid))
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    server = CellServer(cell_environment(1))
    cell = start(server, tmp_path, "train", "simulated:Missing-v0")
    assert cell.wait(60) == 2
    simulator = int((tmp_path / "pid").read_text())
    try:
        assert os.path.samefile(f"/proc/{simulator}/fd/2", tmp_path / "log")
        assert not is_cell_running(tmp_path / "log")
    finally:
        os.kill(simulator, signal.SIGKILL)
        server.close()


@pytest.mark.slow
def test_cells_end_when_their_server_is_killed(tmp_path):
    server = CellServer(cell_environment(1))
    cell = start(server, tmp_path, *LONG, "--root", str(tmp_path))
    while not (tmp_path / "Pendulum-v1").exists():
        assert cell.poll() is None
        time.sleep(0.05)
    server._process.send_signal(signal.SIGSTOP)
    cell.terminate()  # the stopped server never reads this
    server._process.kill()
    assert cell.wait(60) == -signal.SIGKILL
    assert not server.forks
    with (tmp_path / "log").open("rb+") as log, refuses(OSError):
        server.start(["train"], log, log, log)
    cell.terminate()
    server.close()


@pytest.mark.slow
def test_a_server_with_a_second_thread_forks_nothing(tmp_path, monkeypatch):
    """A ``sitecustomize`` module may start a thread; cells are then separate processes."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys, threading
            if "serve()" in "".join(sys.orig_argv):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    assert not CellServer(cell_environment(1)).forks


def test_other_platforms_have_no_server(monkeypatch):
    monkeypatch.setattr(forked_cells.sys, "platform", "darwin")
    server = CellServer({})
    assert not server.forks
    server.close()


@pytest.mark.slow
def test_a_custom_command_is_not_forked():
    """Tests and wrappers pass one, and the server runs only ``ddpg``."""
    engine = LocalEngine(1, (sys.executable, "-c", "pass"))
    engine.close()
    assert engine._server is None
