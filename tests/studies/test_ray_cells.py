"""Cells on a Ray cluster: files are copied back, terminated cells save, and cells of lost nodes resume."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.errors import EnvironmentFault
from ddpg.runs.lock import is_run_locked, run_lock
from ddpg.runs.tables import read_table
from ddpg.studies import ray_cells
from ddpg.studies.cell_process import LocalEngine
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.ray_cells import ChangeTracker, FileChanges, RemoteCell, RemoteProcess
from ddpg.studies.scheduler import run_study, study_resume_hint
from ddpg.studies.study import cells_of, read_study
from ddpg.studies.study_folder import CellFolder


class Error(Exception):
    """Replaces ``ray.exceptions.RayError``."""


class TaskError(Error):
    """Replaces ``ray.exceptions.RayTaskError``: a method of an actor raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Replaces Ray: an actor in this process, whose results are available immediately."""

    class exceptions:
        RayError, RayTaskError = Error, TaskError

    def __init__(self, cell):
        self.cell, self.killed, self.lost = cell, False, None
        for name in ("look", "terminate"):
            setattr(self, name, FakeMethod(getattr(cell, name)))

    def wait(self, calls, timeout):
        return calls, []

    def get(self, call):
        if self.lost is not None:
            raise self.lost
        return call()

    def kill(self, actor):
        self.killed = True


class FakeMethod:
    def __init__(self, method):
        self.method = method

    def remote(self):
        return self.method if self.method.__name__ == "look" else self.method()


def started(study, cell_folder, interval=0.0):
    cell_folder.path.mkdir(parents=True, exist_ok=True)
    command = [None, *study.command[1:]]
    files = ChangeTracker(cell_folder.path).changes()
    return FakeRay(RemoteCell(cell_folder.cell, command, str(study.root), files, interval))


def test_a_cell_runs_in_a_folder_of_its_node_and_its_files_are_copied_back(stubbed):
    study = stubbed([0], "final_episodes = 30")
    (cell_folder,) = study.cell_folders
    for stage in ("train", "evaluate"):
        assert cell_folder.stage == stage
        ray = started(study, cell_folder)
        process = RemoteProcess(ray, ray, cell_folder)
        assert cell_folder.state == "running"  # since this process holds the lock of its log
        process.wait()
        assert (process.returncode, process.gone, ray.killed) == (0, None, True)
        assert not ray.cell._root.exists()
    assert (cell_folder.stage, cell_folder.state, cell_folder.saved) == (None, "finished", 100)
    assert cell_folder.evaluated == {"mean_return": 5.5}
    trained, evaluated = (words for words, _ in study.calls)
    for words in (trained, evaluated):
        assert str(study.root) not in " ".join(words)


def test_the_parent_guard_imports_no_module_from_the_working_directory(stubbed):
    study = stubbed([0])
    study.root.mkdir()
    (study.root / "ctypes.py").write_text("raise ImportError('of the working directory')")
    ray = started(study, study.cell_folders[0])
    process = RemoteProcess(ray, ray, study.cell_folders[0])
    process.wait()
    assert process.returncode == 0


def test_a_terminated_cell_saves_and_resumes_from_there(stubbed):
    study = stubbed([8])
    (cell_folder,) = study.cell_folders
    ray = started(study, cell_folder)
    process = RemoteProcess(ray, ray, cell_folder)
    while not study.ready:
        assert process.poll() is None
    process.terminate()
    process.wait()
    assert (process.returncode, cell_folder.saved, cell_folder.state) == (143, 40, "interrupted")
    ray = started(study, cell_folder)
    process = RemoteProcess(ray, ray, cell_folder)
    process.wait()
    assert (process.returncode, cell_folder.state) == (0, "finished")
    assert study.calls[-1][0][0] == "resume"


def test_a_queued_cell_that_is_terminated_never_starts(stubbed):
    study = stubbed([0])
    (cell_folder,) = study.cell_folders
    ray = started(study, cell_folder)
    process = RemoteProcess(ray, ray, cell_folder)
    process.terminate()
    assert (process.poll(), ray.killed, cell_folder.state, study.calls) == (-15, True, "waiting", [])


def test_an_error_on_a_node_fails_the_cell_but_a_lost_node_does_not(stubbed):
    study = stubbed([0])
    (cell_folder,) = study.cell_folders
    for error, status, gone in (
        (TaskError(OSError("no space left")), 1, None),
        (Error("node died"), -9, "its node is gone (Error)"),
    ):
        ray = started(study, cell_folder)
        process = RemoteProcess(ray, ray, cell_folder)
        ray.lost = error
        process.wait()
        assert (process.returncode, process.gone, ray.killed) == (status, gone, True)
    assert "ddpg: error: on its node: OSError: no space left" in cell_folder.log.read_text()


def test_files_are_copied_back_at_intervals(stubbed, monkeypatch):
    monkeypatch.setattr(ray_cells, "_POLL_WAIT", 0.05)
    study = stubbed([8])
    (cell_folder,) = study.cell_folders
    ray = started(study, cell_folder, interval=3600.0)
    assert ray.cell.look() == (None, FileChanges({}, []))
    ray.cell._sent_at -= 3600
    deadline, received = time.monotonic() + 10, {}
    while not any("checkpoints" in name for name in received):
        assert time.monotonic() < deadline
        ray.cell._sent_at -= 3600
        received |= ray.cell.look()[1].files
    ray.cell.terminate()
    while ray.cell.look()[0] is None:
        pass


def test_the_folder_of_a_killed_actor_is_removed_by_the_next_cell_of_its_node(stubbed, tmp_path, monkeypatch):
    node = tmp_path / "node"
    monkeypatch.setattr(ray_cells.tempfile, "tempdir", str(node))
    names = ("ddpg-cell-killed", "ddpg-cell-held", "ddpg-cell-of-somebody", "killed")
    killed, held, unlocked, other = folders = [node / name for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "replay").write_text("much")
    for folder in (killed, other):
        code = "import os, signal, sys\nfrom pathlib import Path\nfrom ddpg.runs.lock import run_lock\n"
        code += "with run_lock(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
        assert subprocess.run([sys.executable, "-c", code, folder], check=False).returncode == -signal.SIGKILL
    (node / "ddpg-cell-link").symlink_to(other)
    study = stubbed([0, 1])
    with run_lock(held):
        first, second = (started(study, cell_folder) for cell_folder in study.cell_folders)
        first.cell._begin()
        assert is_run_locked(first.cell._root)
        second.cell._begin()
    roots = {first.cell._root, second.cell._root}
    assert {*node.iterdir()} == {held, unlocked, other, node / "ddpg-cell-link"} | roots
    assert all((folder / "replay").exists() for folder in (held, unlocked, other))
    for ray in (first, second):
        while ray.cell.look()[0] is None:
            pass
    assert not any(root.exists() for root in roots)


class LossyEngine:
    """An engine that loses the machines of its first ``times`` processes."""

    def __init__(self, inner, times):
        self.inner, self.times, self.slots, self.close = inner, times, inner.slots, inner.close
        self.queues, self.holds = inner.queues, inner.holds

    def start(self, cell_folder):
        process = self.inner.start(cell_folder)
        if self.times > 0:
            self.times -= 1
            process.wait()
            process.returncode, process.gone = -9, "its node is gone"
            shutil.rmtree(cell_folder.run / "checkpoints" / "100")
        return process


@pytest.mark.parametrize(("times", "finished"), [(3, 1), (4, 0)])
def test_a_cell_on_a_lost_machine_is_restarted_three_times(times, finished, stubbed, monkeypatch, capsys):
    study = stubbed([0])
    engine = LossyEngine(LocalEngine(1, study.command), times)
    monkeypatch.setattr(EngineChoice, "started", lambda self: contextlib.nullcontext(engine))
    outcome = run_study(study.file, study.root, study.groups, EngineChoice())
    assert outcome.finished == finished
    assert capsys.readouterr().err.count("lost at step 0 (its node is gone), begins there again") == 3
    if not finished:
        assert outcome.failed == {"Pendulum-v1 plain seed 0": "its node is gone"}
        assert study.cell_folders[0].state == "interrupted"  # and no failure is recorded


def test_unknown_or_unavailable_engines_are_refused(monkeypatch, tmp_path):
    with refuses(UsageError, "'ray'"):
        EngineChoice("rya").check()
    with refuses(UsageError, "engine ray process"):
        EngineChoice(ray_address="auto").check()
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with refuses(UsageError, "engine ray") as caught:
        run_study(tmp_path / "s.toml", tmp_path / "out", [], EngineChoice("ray"))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_resume_hint_names_folder_engine_and_imports():
    assert study_resume_hint(Path("a.toml"), Path("b"), [], EngineChoice("ray", ray_address="auto")) == (
        "ddpg study a.toml --root b --engine ray --ray-address auto"
    )
    groups = [
        SimpleNamespace(env_id="mine:A-v0", references=("mine:A-v0",)),
        SimpleNamespace(env_id="Pendulum-v1", references=()),
    ]
    assert study_resume_hint(Path("a.toml"), Path("b"), groups, EngineChoice()).endswith("--root b --allow-import mine")


def test_an_unreachable_cluster_is_refused():
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with refuses(EnvironmentFault, "Ray"), EngineChoice("ray", 1, "127.0.0.1:1").started():
        pass


def process_ids(text):
    found = subprocess.run(["pgrep", "-f", text], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def all_ended(text):
    deadline = time.monotonic() + 30
    while process_ids(text) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not process_ids(text)


@pytest.mark.slow
def test_cells_on_a_real_cluster_end_like_local_ones(stubbed):
    """Including failures, kills and evaluations."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    study = stubbed([0, 7, 9, 6], "final_episodes = 30")
    outcome = run_study(study.file, study.root, study.groups, EngineChoice("ray", command=study.command))
    assert (outcome.cells, outcome.finished) == (4, 1)
    assert outcome.failed == {
        "Pendulum-v1 plain seed 7": "bad luck (status 3)",
        "Pendulum-v1 plain seed 9": "ended by SIGKILL",
        "Pendulum-v1 plain seed 6": "ended before its goal without a reason",
    }
    assert study.cell_folders[0].evaluated == {"mean_return": 5.5}


STUDY = """
environments = ["Pendulum-v1"]
seeds = 2
total_timesteps = {steps}
evaluation_interval = 400
evaluation_episodes = 1
[configurations]
small = {{ hidden = [8], batch_size = 8, learning_starts = 100 }}
"""


def command(folder, steps=4000):
    (folder / "s.toml").write_text(STUDY.format(steps=steps))
    return [sys.executable, "-m", "ddpg", "study", "s.toml", "--root", "out", "--engine", "ray", "--jobs", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_study_on_ray_leaves_no_processes_and_resumes(number, tmp_path):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    words = command(tmp_path, 60_000)
    # A new session, so that the signal reaches all processes of the group, like one from a terminal.
    study = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    saved = lambda: [*tmp_path.glob("out/small/*/Pendulum-v1/1/checkpoints/*/manifest.json")]  # noqa: E731
    deadline = time.monotonic() + 120
    while len([path for path in saved() if path.parent.name not in ("0", "best")]) < 2:
        assert study.poll() is None, study.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(study.pid, number)
    stderr = study.communicate(timeout=120)[1]
    assert study.returncode == (130 if number == signal.SIGINT else -9)
    assert all_ended("ddpg-cell-")  # cells' command lines contain their folders' names
    assert all_ended("ray::RemoteCell")
    if number == signal.SIGINT:
        assert "go on with: ddpg study s.toml --root out --engine ray" in stderr
        assert stderr.count("interrupted at step") == 2
    (tmp_path / "s.toml").write_text(STUDY.format(steps=60_000))
    again = subprocess.run([*words, "--report"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    resumed = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for line in resumed.stderr:
        if "goes on at step" in line:
            break
    else:
        raise AssertionError("no cell resumed")
    os.killpg(resumed.pid, signal.SIGKILL)
    resumed.communicate()
    assert all_ended("ddpg-cell-")


@pytest.mark.slow
def test_a_cell_on_a_removed_node_resumes_from_its_last_copied_checkpoint(tmp_path, capsys):
    """Of two nodes with one CPU each one is removed; its cell resumes on the other from a checkpoint copied back."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    from ray.cluster_utils import Cluster

    steps = 12_000
    file, root = tmp_path / "s.toml", tmp_path / "out"
    file.write_text(STUDY.format(steps=steps))
    groups = read_study(file)
    cell_folders = [CellFolder(root, cell) for cell in cells_of(groups)]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    saved_at_removal = []

    def remove_node():
        deadline = time.monotonic() + 200
        while not all(0 < cell_folder.saved < steps for cell_folder in cell_folders) and time.monotonic() < deadline:
            time.sleep(0.1)
        saved_at_removal.extend(cell_folder.saved for cell_folder in cell_folders)
        cluster.remove_node(nodes[1], allow_graceful=False)

    thread = threading.Thread(target=remove_node)
    try:
        thread.start()
        engine = EngineChoice("ray", ray_address=cluster.address)
        outcome = run_study(file, root, groups, engine, progress_bar=False)
        thread.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert all(0 < saved < steps for saved in saved_at_removal), saved_at_removal
    assert (outcome.finished, outcome.failed) == (2, {})
    stderr = capsys.readouterr().err
    lost = stderr.count("begins there again")
    assert lost >= 1  # twice if Ray has not noticed the loss and starts it there once more
    assert stderr.count("goes on at step") == lost
    for cell_folder in cell_folders:
        rows = [int(row["timesteps"]) for row in read_table(cell_folder.run / "evaluations.csv")]
        assert rows == sorted({*rows})
        assert rows[-1] == steps
    assert all_ended("ddpg-cell-")


def test_a_node_uses_its_own_interpreter(monkeypatch, tmp_path):
    sent = []
    kind = SimpleNamespace(remote=lambda *arguments: sent.append(arguments))
    ray = SimpleNamespace(remote=lambda **options: lambda cell: kind)
    monkeypatch.setattr(ray_cells, "connect_to_ray", lambda address, cores: (ray, False))
    monkeypatch.setattr(ray_cells, "RemoteProcess", lambda *arguments: arguments)
    engine = ray_cells.RayEngine(jobs=2, command=[sys.executable, "-m", "ddpg"])
    engine.start(SimpleNamespace(cell="a cell", path=tmp_path))
    assert (engine.slots(), sent[0][:2]) == (2, ("a cell", [None, "-m", "ddpg"]))
