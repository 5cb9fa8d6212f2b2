"""Runs of other packages: their tasks, the script with stand-ins for the packages, and the results file."""

import concurrent.futures
import json
import os
import subprocess
import sys

import pytest
from learning_cells import ROOT

from benchmarks.learning import core_minutes, long_form, peer_algorithms, peer_runs, tables
from benchmarks.speed.packages import PEERS

TD3, TQC, CROSSQ = tables.PEER, peer_algorithms.TQC, peer_algorithms.CROSSQ
RUNS = [(TD3, "E", 0), (TD3, "F", 0), (TQC, "E", 1)]


def test_a_finished_run_is_added_and_not_repeated(tmp_path):
    path = tmp_path / "it.csv"
    assert peer_runs.missing(path, RUNS) == RUNS
    made = peer_runs.cell_of(RUNS[1], 200, [(100, -1.5, 2.0), (200, 3.25, 4.5)])
    assert (made.final, made.seconds.tolist(), made.finished) == (3.25, [2.0, 4.5], True)
    peer_runs.add(path, made, RUNS, 200)
    assert [one.key for one in long_form.read(path)] == [
        (tables.PEER_STUDY, "E", TD3, 0),
        (tables.PEER_STUDY, "F", TD3, 0),
        (tables.STRONGER_STUDY, "E", TQC, 1),
    ]
    assert peer_runs.missing(path, RUNS) == [RUNS[0], RUNS[2]]
    rows = tables.table(long_form.read(path), tables.PEER_STUDY).splitlines()[2:4]
    assert rows[0].startswith(f"| E | {TD3} | 200 | 0 of 1 | none yet")
    assert rows[1].startswith(f"| F | {TD3} | 200 | 1 | 3.25 (")


def test_runs_that_end_at_the_same_time_are_all_kept(tmp_path):
    runs = [(TD3, "E", seed) for seed in range(16)]
    path = tmp_path / "it.csv"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda run: peer_runs.add(path, peer_runs.cell_of(run, 1, [(1, 2.0, 3.0)]), runs, 1), runs))
    assert peer_runs.missing(path, runs) == []


def test_the_planned_runs_can_be_selected():
    assert len(peer_runs.RUNS) == len({*peer_runs.RUNS}) == 8 + 4 + 4 + 2
    assert peer_runs.chosen([], ["Hopper-v5"], [1]) == [
        *((label, "Hopper-v5", 1) for label in (TD3, TQC, peer_algorithms.SAC))
    ]
    assert peer_runs.chosen([CROSSQ], [], []) == [*((CROSSQ, "HalfCheetah-v5", seed) for seed in (0, 1))]


def test_all_committed_runs_are_planned_runs():
    assert {cell.key[1:] for cell in long_form.read(peer_runs.RESULTS)} <= {
        (env_id, label, seed) for label, env_id, seed in peer_runs.RUNS
    }
    assert peer_runs.RESULTS == ROOT / "benchmarks" / "results" / "learning_peers.csv"


def test_tasks_have_the_options_that_the_page_documents():
    algorithms = peer_algorithms.ALGORITHMS
    common = {"env": "Hopper-v5", "seed": 1, "steps": 100_000, "evaluation_interval": 5_000, "evaluation_episodes": 10}
    assert algorithms[TD3].task("Hopper-v5", 1) == common | {
        **{"package": "stable_baselines3", "algorithm": "TD3", "learning_starts": 10_000, "exploration_noise": 0.1},
        "options": {"policy_kwargs": {"net_arch": [400, 300]}, "device": "cpu"},
    }
    assert algorithms[TD3].task("Hopper-v5", 1, 600)["learning_starts"] == 60
    own = {"learning_starts": 5_000, "exploration_noise": None}
    assert algorithms[TQC].task("Hopper-v5", 1) == common | own | {"package": "sbx", "algorithm": "TQC", "options": {}}
    sac = {"package": "stable_baselines3", "algorithm": "SAC", "options": {"device": "cpu"}}
    assert algorithms[peer_algorithms.SAC].task("Hopper-v5", 1) == common | own | sac
    crossq = {"package": "sbx", "algorithm": "CrossQ", "options": {}}
    assert algorithms[CROSSQ].task("Hopper-v5", 1) == common | own | crossq | {"steps": 20_000}


def test_a_run_has_the_planned_steps_of_its_algorithm():
    planned = {
        label: peer_runs.cell_of((label, "HalfCheetah-v5", 0), None, ()).planned_steps for label in (TQC, CROSSQ)
    }
    assert planned == {TQC: 100_000, CROSSQ: 20_000}
    assert peer_runs.cell_of((CROSSQ, "HalfCheetah-v5", 0), 7, ()).planned_steps == 7


def test_the_speed_benchmark_measures_the_same_algorithms():
    """Core-minutes combine returns and speed, so both must come from the same algorithm."""
    for label, algorithm in peer_algorithms.ALGORITHMS.items():
        if algorithm.study == tables.STRONGER_STUDY:
            assert PEERS[label].only == core_minutes.KIND
            assert PEERS[label].options == {"package": algorithm.package, "algorithm": algorithm.name}


# Stand-ins for the packages: the agent prints its arguments, and its action depends only on the observation.
PACKAGE = """
class Agent:
    def __init__(self, policy, env, **options):
        noise = options.pop("action_noise", None)
        arguments = {**options, "policy": policy, "env": env.spec.id}
        if noise:
            arguments["noise"] = [noise.mean.tolist(), noise.sigma.tolist()]
        print("made", json.dumps({"class": type(self).__name__, **arguments}))
    def predict(self, observation, deterministic):
        assert deterministic
        return observation[-1:], None
    def learn(self, steps, callback):
        callback.model = self
        for callback.num_timesteps in range(1, steps + 1):
            callback._on_step()
class TD3(Agent): pass
class TQC(Agent): pass
"""
STAND_INS = {
    "torch/__init__.py": "def set_num_threads(count): assert count == 1",
    "stable_baselines3/__init__.py": f"import json\n{PACKAGE}",
    "stable_baselines3/common/__init__.py": "",
    "stable_baselines3/common/callbacks.py": "class BaseCallback:\n    pass",
    "stable_baselines3/common/noise.py": (
        "class NormalActionNoise:\n    def __init__(self, mean, sigma): self.mean, self.sigma = mean, sigma"
    ),
    "sbx/__init__.py": "from stable_baselines3 import TQC",
}


def scripted(tmp_path, label):
    """Run the script with stand-ins; return the agent's arguments and its evaluations."""
    for name, text in STAND_INS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    task = peer_algorithms.ALGORITHMS[label].task("Pendulum-v1", 7, 4)
    task |= {"evaluation_interval": 2, "evaluation_episodes": 2}
    done = subprocess.run(
        [sys.executable, str(peer_runs.SCRIPT), json.dumps(task)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    made, *evaluations = done.stdout.strip().splitlines()
    return json.loads(made.removeprefix("made ")), [json.loads(line)["evaluation"] for line in evaluations]


def test_the_script_makes_the_agent_of_the_task(tmp_path):
    made, _ = scripted(tmp_path, TD3)
    assert made == {
        **{"class": "TD3", "policy": "MlpPolicy", "env": "Pendulum-v1", "seed": 7, "learning_starts": 0},
        **{"policy_kwargs": {"net_arch": [400, 300]}, "device": "cpu", "noise": [[0.0], [0.1]]},
    }
    made, _ = scripted(tmp_path, TQC)
    expected = {"class": "TQC", "policy": "MlpPolicy", "env": "Pendulum-v1", "seed": 7, "learning_starts": 0}
    assert made == expected


def test_every_evaluation_has_the_same_episodes(tmp_path):
    """Plays the episodes of seed 1,000,007 without the script."""
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("Pendulum-v1")
    returns = []
    for episode in range(2):
        observation, _ = env.reset(seed=None if episode else 1_000_007)
        ended, total = False, 0.0
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(observation[-1:])
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    _, evaluations = scripted(tmp_path, TQC)
    assert [step for step, *_ in evaluations] == [2, 4]
    assert [value for _, value, _ in evaluations] == pytest.approx([sum(returns) / 2] * 2, rel=1e-12)


SCRIPT = """
import json, os, sys
task = json.loads(sys.argv[1])
assert (os.environ["OMP_NUM_THREADS"], os.environ["NPROC"]) == ("1", "1")
print("some words first", flush=True)
if task["algorithm"] == "TQC":
    sys.exit("no such luck")
print(json.dumps({"evaluation": [task["steps"] - task["env"].count("F"), 7.0, 1.0]}))
"""


def test_failed_runs_are_reported_and_the_others_kept(tmp_path, monkeypatch, capsys):
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(peer_runs, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(peer_runs, "RUNS", RUNS)
    monkeypatch.setattr(peer_runs, "interpreter", lambda *_: sys.executable)
    monkeypatch.setattr(peer_runs.signal, "signal", lambda *_: None)
    words = ["--steps", "100", "--out", str(tmp_path / "it.csv"), "--jobs", "1"]
    assert peer_runs.main(words) == 1
    messages = capsys.readouterr().err
    assert f"{TD3} E seed 0: step 100 of 100, return 7, 1 s of training" in messages
    assert f"{TQC} E seed 1 failed: no such luck" in messages
    assert f"{TD3} F seed 0 failed: its last evaluation is at step 99 of 100" in messages
    assert [(one.recipe, one.env_id, one.seed, one.reached) for one in long_form.read(tmp_path / "it.csv")] == [
        (TD3, "E", 0, 100),
        (TD3, "F", 0, 0),
        (TQC, "E", 1, 0),
    ]
    assert peer_runs.main([*words, "--peer", TD3, "--env", "E", "--seed", "0"]) == 0
    assert "has all of these runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "100"], "give another --out"),
        (["--steps", "7000", "--out", "it.csv"], "give a multiple of 5000, or fewer"),
        (["--out", "nowhere/it.csv"], "a folder that does not exist"),
        (["--peer", CROSSQ, "--env", "Hopper-v5"], f"{CROSSQ} HalfCheetah-v5 seed 1"),
    ],
)
def test_invalid_arguments_are_refused_before_training(words, message, capsys, monkeypatch):
    monkeypatch.setattr(peer_runs, "train", None)
    with pytest.raises(SystemExit):
        peer_runs.main(words)
    assert message in " ".join(capsys.readouterr().err.split())
