"""Collections of training runs (benchmarks/jobs.py): what is done is kept, what was cut goes on."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import jobs
from jobs import Job, run_jobs, threads_each, write_csv

from ddpg.runs import description

FLAGS = ("--hidden", "8", "--batch-size", "8", "--learning-starts", "50", "--no-jit")


@pytest.mark.slow
def test_done_is_kept_and_cut_goes_on(tmp_path):
    job = Job("ddpg_envs/LQR-v0", "small", seed=3, total_timesteps=300, flags=FLAGS, episodes=2)
    (row,) = run_jobs([job], tmp_path, workers=1)
    assert (row["seed"], row["label"], row["timesteps"], row["episodes"]) == (3, "small", 300, 2)
    run = job.run_directory(tmp_path)
    (run / "result.json").write_text(json.dumps(row | {"mean_return": 7}))
    assert run_jobs([job], tmp_path, workers=1)[0]["mean_return"] == 7  # not done again

    (run / "result.json").unlink()
    description.write(run, description.read(run) | {"total_timesteps": 450})  # as if 300 was where it had been cut
    (resumed,) = run_jobs([job], tmp_path, workers=1)
    assert resumed["timesteps"] == 450
    assert [entry.name for entry in run.parent.iterdir()] == ["1"]


@pytest.mark.slow
def test_cut_before_the_first_checkpoint_starts_again(tmp_path):
    job = Job("ddpg_envs/LQR-v0", "small", seed=0, total_timesteps=100, flags=FLAGS, episodes=1)
    job.run_directory(tmp_path).mkdir(parents=True)
    assert run_jobs([job], tmp_path, workers=1)[0]["timesteps"] == 100


@pytest.mark.slow
def test_a_failing_job_says_why(tmp_path):
    job = Job("ddpg_envs/LQR-v0", "bad", seed=0, total_timesteps=100, flags=("--tau", "2"))
    with pytest.raises(RuntimeError, match=r"tau=2\.0 must be in \(0, 1\]"):
        run_jobs([job], tmp_path, workers=1)


def test_rows_without_a_value_stay_empty(tmp_path):
    path = tmp_path / "results" / "x.csv"
    write_csv(path, [{"a": 1, "b": 0.123456789}, {"a": 2, "c": "left out"}], ["a", "b"])
    assert path.read_text() == "a,b\n1,0.123457\n2,\n"


def test_jobs_at_the_same_time_share_the_cores(monkeypatch):
    assert [threads_each(workers, 8) for workers in (1, 2, 3, 16)] == [None, 4, 2, 1]
    name = "TF_NUM_INTRAOP_THREADS"
    monkeypatch.delenv(name, raising=False)
    program = f"import json, os; print(json.dumps(os.environ.get({name!r})))"
    monkeypatch.setattr(jobs, "COMMAND", [sys.executable, "-c", program])
    assert [jobs._ddpg("train", threads=threads) for threads in (None, 3)] == [None, "3"]
    monkeypatch.setenv(name, "5")
    assert jobs._ddpg("train", threads=3) == "5"  # who sets it himself means it
