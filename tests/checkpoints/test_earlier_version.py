"""Files of an earlier version can still be used: ``tests/golden/before_the_rooms``, described in the README there.

That version computed the numbers below from these files.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import ddpg
from ddpg import DDPG
from ddpg.agents import learn_loop
from ddpg.cli.main import main

EARLIER = Path(__file__).parents[1] / "golden" / "before_the_rooms"
OBSERVATIONS = np.array([[1, 0, 0], [0, -1, 5], [-0.6, 0.8, -3]], np.float32)
ACTIONS = {60: [0.0876827687, 0.1270031184, 0.0801127255], 80: [0.0881124660, 0.0723840967, 0.0279016122]}


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(EARLIER / "run", tmp_path / "run")


def test_a_run_is_loaded_evaluated_and_exported(run, tmp_path, capsys):
    agent = DDPG.load(run)
    assert (agent.num_timesteps, agent.config.prioritised, agent.config.n_critics) == (60, "lap", 2)
    np.testing.assert_allclose(agent.predict(OBSERVATIONS)[0][:, 0], ACTIONS[60], rtol=1e-5)
    policy = ddpg.load_policy(agent.export(tmp_path / "policy"))
    np.testing.assert_allclose(policy.predict(OBSERVATIONS)[0][:, 0], ACTIONS[60], rtol=1e-5)
    agent.close()
    assert main(["evaluate", str(run), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["timesteps"] == 60


def test_a_resumed_run_continues_as_in_the_earlier_version(run, monkeypatch):
    """That version did not round the owed updates: sums of 0.1 fell short of 1, and an update came one step late."""
    monkeypatch.setattr(learn_loop, "ROUNDING", 0.0)
    rows = (run / "metrics.csv").read_text().splitlines()
    ddpg.resume(run, total_timesteps=80)
    now = (run / "metrics.csv").read_text().splitlines()
    assert now[: len(rows)] == rows
    assert now[-1].startswith("80,")
    agent = DDPG.load(run)
    np.testing.assert_allclose(agent.predict(OBSERVATIONS)[0][:, 0], ACTIONS[80], rtol=1e-5)
    agent.close()


@pytest.mark.slow
def test_a_resumed_run_makes_the_updates_that_its_steps_owe(run):
    """Learning began with step 11, and each of 70 steps owes 0.1 updates; 4 were made, and 0.99… were still owed."""
    ddpg.resume(run, total_timesteps=80)
    manifest = json.loads((run / "checkpoints" / "80" / "manifest.json").read_text())
    assert (manifest["num_updates"], manifest["owed_updates"]) == (7, 0)


def test_an_exported_policy_acts():
    """That version wrote neither ``act.py`` nor the outputs for its self-check."""
    policy = ddpg.load_policy(EARLIER / "policy")
    np.testing.assert_allclose(policy.predict(OBSERVATIONS)[0][:, 0], ACTIONS[60], rtol=1e-5)
