"""Commands in messages work when they are copied into a shell."""

import importlib
import os
import re
import shlex
import signal
import sys
from pathlib import Path, PureWindowsPath

import gymnasium as gym
import pytest

from ddpg.cli.main import main
from ddpg.runs.commands import allow_import_flags, as_argument, command_for, without_resume_hint

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
LEARNING += ["--optimizer", "sgd", "--target", "online"]
STEPS = ["--total-timesteps", "60", "--evaluation-interval", "60", "--evaluation-episodes", "1", "--no-progress-bar"]


@pytest.fixture
def harbour(tmp_path, monkeypatch):
    """Work in a folder whose module registers ``harbour:Harbour-v0``; yield the module."""
    gym.registry.pop("Harbour-v0", None)
    (tmp_path / "harbour.py").write_text(HARBOUR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("harbour")
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
    assert as_argument(PureWindowsPath("runs", "X-v0", "1")) == "runs/X-v0/1"
    assert shlex.quote(as_argument(PureWindowsPath("C:\\runs"))) == "C:/runs"
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


def test_the_resume_command_of_an_interrupted_run_and_the_evaluate_command_at_its_end(harbour, capsys, monkeypatch):
    monkeypatch.setattr(harbour, "at", 37)
    monkeypatch.setattr(harbour, "event", lambda: os.kill(os.getpid(), signal.SIGINT))
    assert trained() == 130
    first = run_printed_command(capsys.readouterr().err, "as if it had not been interrupted with: ")
    assert first == ["ddpg", "resume", "my runs/Harbour-v0/1", "--allow-import", "harbour"]
    assert run_printed_command(capsys.readouterr().out, "evaluate it with: ")[1] == "evaluate"
    assert "mean return" in capsys.readouterr().out
