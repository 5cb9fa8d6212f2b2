"""Commands in messages work when they are copied into a shell; speeds and hints of the report."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import gymnasium as gym
import pytest

from ddpg.checkpoints import target_dir
from ddpg.cli.main import main
from ddpg.runs import run_config
from ddpg.runs.report import allow_import_flags, command_for, print_report, without_resume_hint

HARBOUR = """
import gymnasium as gym
import numpy as np

at, event = 0, None  # steps until event() is called


class Harbour(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        global at
        at -= 1
        if at == 0:
            event()
        return self.observation_space.sample(), -float(action[0] ** 2), False, False, {}


gym.register("Harbour-v0", Harbour, max_episode_steps=10)
"""
LEARNING = ["--hidden", "4", "--batch-size", "4", "--learning-starts", "20", "--updates-per-call", "5", "--no-jit"]
STEPS = ["--total-timesteps", "60", "--evaluation-interval", "60", "--evaluation-episodes", "1", "--no-progress-bar"]


@pytest.fixture
def harbour(tmp_path, monkeypatch):
    """Work in a folder whose module registers ``harbour:Harbour-v0``; yield a function that returns the module."""
    gym.registry.pop("Harbour-v0", None)
    (tmp_path / "harbour.py").write_text(HARBOUR)
    monkeypatch.chdir(tmp_path)
    yield lambda: sys.modules["harbour"]
    sys.modules.pop("harbour", None)


def trained(*flags: str) -> int:
    env = ["harbour:Harbour-v0", "--recipe", "ddpg", "--root", "my runs"]
    return main(["train", *env, *LEARNING, *STEPS, *flags])


def run_printed_command(text: str, before: str) -> list[str]:
    """Run the command that is printed after ``before``; return its words."""
    words = shlex.split(re.search(re.escape(before) + r"(ddpg .*?)(;|\n|$)", text)[1])
    assert main(words[1:]) == 0
    return words


def test_command_for_quotes_paths_and_allows_imports():
    assert command_for("resume", Path("a b/1"), {"env_id": "mine:X-v0"}, "--x", "y") == (
        "ddpg resume 'a b/1' --allow-import mine --x y"
    )
    assert command_for("evaluate", Path("runs/X-v0/1"), {"env_id": "X-v0"}) == "ddpg evaluate runs/X-v0/1"
    assert command_for("evaluate", Path("-x/1"), {"env_id": "X-v0"}) == "ddpg evaluate ./-x/1"
    assert allow_import_flags("b:X-v0", "Y-v0", "a:Z-v0", "b:W-v0") == ["--allow-import", "b", "--allow-import", "a"]


def test_the_resume_hint_is_removed_from_a_message():
    """The messages end as in run_loop.py, after an environment's fault and after a file's."""
    for text, left in (
        ("after step 9: it broke; what was learned is saved; ", "after step 9: it broke; what was learned is saved"),
        (
            "disk full; earlier checkpoints are intact; with that put right, ",
            "disk full; earlier checkpoints are intact",
        ),
    ):
        assert without_resume_hint(f"{text}go on from step 60 with: ddpg resume a/1 (status 4)") == left
    assert without_resume_hint("no such key") == "no such key"


def test_the_speed_of_a_resumed_run_covers_all_its_processes(tmp_path, capsys):
    """120 steps in 5 s, of which 1 s compiling: 30 steps/s, whatever the last process reached."""
    config = {"env_id": "X-v0", "algorithm": "ddpg", "seed": 0, "total_timesteps": 120, "evaluation_interval": 60}
    config |= {"evaluation_episodes": 1, "n_envs": 1, "vectorization": "sync"}
    (tmp_path / "checkpoints" / "120").mkdir(parents=True)
    (tmp_path / "checkpoints" / "120" / target_dir.MANIFEST).touch()
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": []})
    (tmp_path / "metrics.csv").write_text("timesteps,seconds,compile_seconds,fps\n60,2,0.5,40\n120,5,1,90\n")
    (tmp_path / "evaluations.csv").write_text("timesteps,episodes,mean_return\n120,1,-2.5\n")
    print_report(tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)["steps_per_second"] == 30
    print_report(tmp_path, as_json=False)
    assert "5.0 s of training (1.0 s of them compiling), 30 steps/s" in capsys.readouterr().out
    run_config.write(tmp_path, config | {"config": {}, "versions": {}, "command": [], "dataset": "data.npz"})
    print_report(tmp_path, as_json=False)  # from data alone, a timestep is an update
    assert re.search("after 120 updates, .* 30 updates/s", capsys.readouterr().out)


def test_the_evaluate_command_of_a_finished_run(harbour, capsys):
    assert trained() == 0
    assert run_printed_command(capsys.readouterr().out, "evaluate it with: ")[1] == "evaluate"
    assert "mean return" in capsys.readouterr().out


def test_the_resume_command_of_an_interrupted_run(harbour, capsys, monkeypatch):
    assert trained("--total-timesteps", "5", "--evaluation-interval", "5") == 0  # imports the module
    monkeypatch.setattr(harbour(), "at", 37)
    monkeypatch.setattr(harbour(), "event", lambda: os.kill(os.getpid(), signal.SIGINT))
    capsys.readouterr()
    assert trained() == 130
    first = run_printed_command(capsys.readouterr().err, "as if it had not been interrupted with: ")
    assert first == ["ddpg", "resume", "my runs/Harbour-v0/2", "--allow-import", "harbour"]


def test_the_resume_command_after_an_environments_fault(harbour, capsys, monkeypatch):
    assert trained("--total-timesteps", "5", "--evaluation-interval", "5") == 0
    monkeypatch.setattr(harbour(), "at", 37)
    monkeypatch.setattr(harbour(), "event", lambda: 1 / 0)
    capsys.readouterr()
    assert trained() == 3
    assert run_printed_command(capsys.readouterr().err, "with: ")[1] == "resume"
