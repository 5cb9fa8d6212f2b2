"""What is asked of Stable-Baselines3, and how its runs come into the file; the package itself is not here."""

import json
import sys

import pytest
from learning_cells import ROOT

from benchmarks.learning import long_form, stable_baselines, tables

RUNS = [("E", 0), ("F", 0), ("E", 1)]


def test_a_run_is_added_whole_and_not_made_again(tmp_path):
    path = tmp_path / "it.csv"
    assert stable_baselines.left(path, RUNS) == RUNS
    made = stable_baselines.cell_of("F", 0, 200, [(100, -1.5, 2.0), (200, 3.25, 4.5)])
    assert (made.final, made.seconds.tolist(), made.finished) == (3.25, [2.0, 4.5], True)
    stable_baselines.add(path, made, RUNS, 200)
    assert [one.key[1:] for one in long_form.read(path)] == [
        *(("E", tables.PEER, 0), ("F", tables.PEER, 0), ("E", tables.PEER, 1))
    ]
    assert stable_baselines.left(path, RUNS) == [("E", 0), ("E", 1)]
    rows = tables.table(long_form.read(path), tables.PEER_STUDY).splitlines()[2:4]
    assert rows[0].startswith(f"| E | {tables.PEER} | 200 | 0 of 2 | none yet")
    assert rows[1].startswith(f"| F | {tables.PEER} | 200 | 1 | 3.25 (")


def test_what_is_asked_is_what_the_page_says():
    task = stable_baselines.task_of("Hopper-v5", 1)
    assert task == {
        **{"env": "Hopper-v5", "seed": 1, "steps": 100_000, "learning_starts": 10_000},
        **{"evaluation_interval": 5_000, "evaluation_episodes": 10},
    }
    assert stable_baselines.task_of("Hopper-v5", 1, 600)["learning_starts"] == 60
    text = stable_baselines.SCRIPT.read_text(encoding="utf-8")
    assert 'net_arch": [400, 300]' in text
    assert "0.1 * np.ones" in text
    assert 'task["seed"] + 1_000_000' in text


SCRIPT = """
import json, os, sys
task = json.loads(sys.argv[1])
if task["seed"] == 1:
    sys.exit("no such luck")
assert os.environ["OMP_NUM_THREADS"] == "1"
print("some words first")
print(json.dumps({"evaluations": [[task["steps"], 7.0, 1.0]]}))
"""


def test_runs_that_fail_are_told_and_the_others_kept(tmp_path, monkeypatch, capsys):
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(stable_baselines, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(stable_baselines, "RUNS", RUNS)
    monkeypatch.setattr(stable_baselines, "interpreter", lambda *_: sys.executable)
    monkeypatch.setattr(stable_baselines.signal, "signal", lambda *_: None)
    words = ["--steps", "100", "--out", str(tmp_path / "it.csv"), "--jobs", "1"]
    assert stable_baselines.main(words) == 1
    assert "E seed 1 failed: no such luck" in capsys.readouterr().err
    assert [(one.env_id, one.seed, one.reached) for one in long_form.read(tmp_path / "it.csv")] == [
        *(("E", 0, 100), ("F", 0, 100), ("E", 1, 0))
    ]
    with pytest.raises(SystemExit):
        stable_baselines.main(["--steps", "100"])
    assert json.loads(json.dumps(stable_baselines.task_of("E", 0)))
    assert stable_baselines.RESULTS == ROOT / "benchmarks" / "results" / "learning_sb3.csv"
