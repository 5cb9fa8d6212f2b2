"""The journeys of docs/how_to/journeys.md: their files and commands as written, each in a fresh directory."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how_to" / "journeys.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |^Next: )", PAGE, re.MULTILINE | re.DOTALL))
BEGIN = PAGE.partition("## ")[0]
GIF, WANDB, NUMPY, INTERVAL = SECTIONS

# Finds only NumPy and Python's standard library; all other packages of this environment are hidden.
BARE = """
import importlib.abc, runpy, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("ddpg", "tensorflow", "tflearn", "gymnasium", "scipy", "msgspec", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
sys.argv = sys.argv[1:]
"""

# A tracker with the functions of W&B's API that a run uses; it writes their arguments to a file.
FAKE_WANDB = """
import json

def init(project=None, name=None, config=None, **options):
    global file
    file = open("wandb.jsonl", "w")
    file.write(json.dumps({"project": project, "name": name, "config": dict(config)}) + "\\n")

def log(scalars, step=None):
    file.write(json.dumps({"step": step, **{tag: float(value) for tag, value in scalars.items()}}) + "\\n")

def finish():
    file.close()
"""


def blocks(section, language):
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def commands(section):
    return [line for block in blocks(section, "sh") for line in block.splitlines()]


@pytest.fixture
def journey(tmp_path, monkeypatch):
    """Return a function that writes a section's files, runs its commands, and returns their output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(section):
        for language in ("python", "toml"):
            for text in blocks(SECTIONS[section], language):
                (tmp_path / re.match(r"# (\S+)\n", text)[1]).write_text(text)
        printed = []
        for line in commands(SECTIONS[section]):
            words = shlex.split(line)
            if words[0] == ".venv/bin/ddpg":
                words = [sys.executable, "-m", "ddpg", *words[1:]]
            elif words[0] == "robot-venv/bin/python":
                script = words[2] if words[1] == "-c" else f"runpy.run_path({words[1]!r}, run_name='__main__')"
                words = [sys.executable, "-c", BARE + script, *words[1:2]]
            else:  # commands that install
                continue
            printed.append(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        return printed

    return run


@pytest.mark.parametrize("section", SECTIONS)
def test_a_journey_takes_at_most_eight_commands(section):
    assert len(commands(BEGIN)) == 2
    assert len(commands(BEGIN)) + len(commands(SECTIONS[section])) <= 8


@pytest.mark.slow
def test_the_journey_to_an_animation(journey, tmp_path):
    _, evaluated, _ = journey(GIF)
    with Image.open(tmp_path / "docking.gif") as picture:
        assert picture.n_frames > 20
        assert picture.size == (400, 60)
        first = np.asarray(picture.convert("RGB"), int)
        picture.seek(10)
        assert (first != np.asarray(picture.convert("RGB"), int)).any()
    assert float(re.search(r"success rate (\d+)", evaluated)[1]) >= 50


@pytest.mark.slow
def test_the_journey_to_curves_in_a_tracker(journey, tmp_path):
    """With a stand-in for W&B, which is not a dependency."""
    (tmp_path / "wandb.py").write_text(FAKE_WANDB)
    journey(WANDB)
    begun, *rows = map(json.loads, (tmp_path / "wandb.jsonl").read_text().splitlines())
    assert (begun["project"], begun["config"]["env_id"]) == ("ddpg", "Pendulum-v1")
    returns = [row["eval/mean_reward"] for row in rows if "eval/mean_reward" in row]
    assert len(returns) == 20
    assert returns[-1] > -250 > returns[0]


@pytest.mark.slow
def test_the_journey_to_a_policy_without_tensorflow(journey, tmp_path):
    *_, checked, acted = journey(NUMPY)
    assert "differs from the agent by" in checked
    (torque,) = np.array(acted.strip().strip("[]").split(), float)
    assert -2 <= torque <= 2
    assert {path.name for path in (tmp_path / "robot").iterdir()} >= {"act.py", "policy.json", "policy.safetensors"}


@pytest.mark.slow
def test_the_journey_to_an_interval_between_paths(journey, tmp_path):
    (printed,) = journey(INTERVAL)
    assert re.search(r"\| Pendulum-v1 \| normalised \| 3 \| \S+ \(\S+ to \S+\) \| \S+ \(\S+ to \S+\) \|", printed)
    assert (tmp_path / "studies" / "mine" / "comparison.csv").read_text().count("\n") == 2
