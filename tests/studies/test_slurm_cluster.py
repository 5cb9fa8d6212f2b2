"""A study on a real Slurm of three nodes on this machine: nodes are killed, jobs preempted, the study interrupted."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from ddpg.runs.tables import read_table
from ddpg.studies import slurm_commands
from ddpg.studies.slurm_node import CellBatch, job_prefix
from ddpg.studies.study import cells_of, read_study
from ddpg.studies.study_folder import CellFolder

TOOL = str(Path(__file__).parents[1] / "tools" / "slurm_cluster")
STEPS = 20_000  # about ten seconds, so that cells can be interrupted midway
STUDY = """
environments = ["Pendulum-v1"]
seeds = {seeds}
total_timesteps = {steps}
evaluation_interval = 2000
evaluation_episodes = 1
final_episodes = 2
[configurations]
plain = {{ hidden = [8], batch_size = 8, learning_starts = 100 }}
td3 = {{ recipe = "td3", hidden = [8], batch_size = 8, learning_starts = 100 }}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("slurmctld") is None or shutil.which("munged") is None or os.geteuid() != 0,
        reason="needs slurm-wlm, munge and root",
    ),
]


class Cluster:
    """A Slurm cluster of three nodes with one CPU each."""

    nodes = ("node1", "node2", "node3")

    def __init__(self, folder):
        self.folder = folder

    def tool(self, *words):
        subprocess.run([TOOL, words[0], str(self.folder), *words[1:]], check=True, stdout=subprocess.DEVNULL)

    def running(self, root):
        """Return node, job and folder of each cell that is running."""
        found, prefix = [], job_prefix(root)
        for (name, index), state in slurm_commands.jobs().items():
            if state.state == "RUNNING" and name.startswith(prefix):
                folder = CellBatch(root, int(name.removeprefix(prefix))).folders()[index]
                found.append((state.node, state.job, folder))
        return found

    def midway(self, root, node=None):
        """Wait for a running cell (on ``node``) that has saved but is not near its end; return its job and folder."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            for where, job, folder in self.running(root):
                if node in (None, where) and 0 < folder.saved < STEPS - 4000:
                    return job, folder
        raise AssertionError(f"no cell is midway on {node}")

    def wait_until_requeued(self, job):
        """Wait until Slurm has requeued a job; until then it lists a job of a killed node as running."""
        deadline = time.monotonic() + 120
        while self.restarts(job) == 0:
            assert time.monotonic() < deadline, f"{job} is not requeued"

    def restarts(self, job):
        shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=True).stdout
        return int(shown.partition("Restarts=")[2].split()[0])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    found = Cluster(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("OMP_NUM_THREADS", "1")
        try:
            found.tool("start", str(len(found.nodes)))
            yield found
        finally:
            found.tool("stop")


def start_study(folder, root, *words):
    arguments = ["study", str(folder / "study.toml"), "--root", str(root), "--no-progress-bar", "--json", *words]
    log = (folder / "stderr.txt").open("a")
    command = [sys.executable, "-m", "ddpg", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)


def write_study(folder, seeds):
    (folder / "study.toml").write_text(STUDY.format(seeds=seeds, steps=STEPS))
    return [CellFolder(folder / "slurm", cell) for cell in cells_of(read_study(folder / "study.toml"))]


def results(root):
    """Return a study's rows and digests of all arrays of its checkpoints, without times."""
    rows = [row for row in (root / "results.csv").read_text().splitlines() if "second" not in row.split(",")[-2]]
    arrays = {
        (path.relative_to(root).as_posix(), name): hashlib.sha256(array.tobytes()).hexdigest()
        for path in root.rglob("*.safetensors")
        for name, array in load_file(path).items()
        if path.name != "run.safetensors" or name not in ("seconds", "compile_seconds", "tables")
    }
    return rows, arrays


def test_twelve_cells_with_killed_nodes_equal_a_local_study(cluster, tmp_path):
    """Bit for bit, with three killed nodes, a preemption, a requeue by hand and a reached time limit."""
    cell_folders, root = write_study(tmp_path, 6), tmp_path / "slurm"
    study = start_study(tmp_path, root, "--engine", "slurm")
    interrupted = {}
    for node in cluster.nodes:
        job, cell_folder = cluster.midway(root, node)
        cluster.tool("kill", node)
        interrupted[job] = cell_folder
        cluster.tool("revive", node)
    for job in interrupted:
        cluster.wait_until_requeued(job)
    job, cell_folder = cluster.midway(root)
    with contextlib.suppress(subprocess.TimeoutExpired):  # as Slurm does before the time limit
        subprocess.run(["scancel", "--batch", "--signal=USR1", job], timeout=slurm_commands.DELIVERY)
    cluster.wait_until_requeued(job)
    interrupted[job] = cell_folder
    job, cell_folder = cluster.midway(root)
    assert slurm_commands.requeue(job)
    cluster.wait_until_requeued(job)
    interrupted[job] = cell_folder
    job, cell_folder = cluster.midway(root)
    everything = ["--partition=short", "--nodes=3", "--wait", "--output=/dev/null", "--wrap=true"]
    subprocess.run(["sbatch", *everything], check=True, stdout=subprocess.DEVNULL)
    interrupted[job] = cell_folder
    assert study.wait(timeout=1800) == 0, (tmp_path / "stderr.txt").read_text()
    stderr = (tmp_path / "stderr.txt").read_text()
    assert stderr.count("finished, evaluation return") == 12
    assert "lost at step" not in stderr  # Slurm itself has requeued them
    assert all(cluster.restarts(job) >= 1 for job in interrupted)
    for cell_folder in cell_folders:
        steps = [int(row["timesteps"]) for row in read_table(cell_folder.run / "evaluations.csv")]
        assert steps == sorted({*steps})
        assert steps[-1] == STEPS
    assert start_study(tmp_path, tmp_path / "here", "--jobs", "2").wait(timeout=1800) == 0
    rows, arrays = results(tmp_path / "here")
    assert {row.split(",")[-2] for row in rows} >= {"evaluation_mean_return", "final_mean_return"}
    assert len(arrays) > 12 * 2 * 20  # weights, replay memory and random states of two checkpoints
    assert results(root) == (rows, arrays)


def test_a_killed_or_interrupted_study_resumes(cluster, tmp_path):
    """After a kill its jobs continue, and the next call follows them; an interrupt lets them save and end."""
    root = tmp_path / "slurm"
    cell_folders = write_study(tmp_path, 1)
    study = start_study(tmp_path, root, "--engine", "slurm")
    cluster.midway(root)
    study.kill()
    study.wait()
    jobs = {state.job for (name, _), state in slurm_commands.jobs().items() if name.startswith(job_prefix(root))}
    study = start_study(tmp_path, root, "--engine", "slurm")
    stderr = tmp_path / "stderr.txt"
    deadline = time.monotonic() + 60
    while stderr.read_text().count("its job of before is followed") < 2 and time.monotonic() < deadline:
        assert study.poll() is None, stderr.read_text()
    assert {job for _, job, _ in cluster.running(root)} <= jobs
    os.killpg(study.pid, signal.SIGINT)
    assert study.wait(timeout=120) == 130
    assert stderr.read_text().count("interrupted at step") == 2
    assert "go on with: ddpg study" in stderr.read_text()
    assert cluster.running(root) == []
    assert any(0 < cell_folder.saved < STEPS for cell_folder in cell_folders)
    assert start_study(tmp_path, root, "--engine", "slurm").wait(timeout=600) == 0
    assert [cell_folder.state for cell_folder in cell_folders] == ["finished"] * 2
