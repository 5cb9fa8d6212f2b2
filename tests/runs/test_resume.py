"""A run that was interrupted ends as one that was not: weights, memory, random states, tables, events."""

import json
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from environments import Aiming, Counting

from ddpg import DDPGConfig, DQNConfig, UsageError, resume, train
from ddpg.cli import main
from ddpg.runs import directory
from ddpg.runs.ownership import owned
from ddpg.storage import checkpoint

v1 = tf.compat.v1
SHARED = {"hidden": (4,), "batch_size": 4, "learning_starts": 20, "updates_per_call": 3, "jit": False}


class Fuse(gym.Wrapper):
    """Blows at the step told, once; its environment's episodes depend on their seed and last 7 to 12 steps."""

    blows_at = None
    steps = 0

    def reset(self, *, seed=None, options=None):
        self.env.unwrapped.episode = -1  # nothing that a reset does not set
        observation, info = self.env.reset(seed=seed)
        self.length, self.step_number = int(self.np_random.integers(7, 13)), 0
        return observation, info

    def step(self, action):
        Fuse.steps += 1
        self.step_number += 1
        if Fuse.steps == Fuse.blows_at:
            raise RuntimeError("the fuse has blown")
        observation, reward, terminated, _, info = self.env.step(action)
        reward += float(self.np_random.normal())
        return observation, reward, terminated, self.step_number >= self.length, info


def register(name, make):
    if name not in gym.registry:
        gym.register(name, lambda **_: Fuse(make()), disable_env_checker=True)


register("FuseBox-v0", lambda: Counting(1_000))
register("FuseChoice-v0", lambda: Counting(1_000, action_space=gym.spaces.Discrete(3)))
register("FuseParameters-v0", Aiming)

CASES = {
    "everything with a state": (
        "FuseBox-v0",
        DDPGConfig(
            **SHARED,
            noise="ornstein_uhlenbeck",
            updates_per_step=0.3,
            learning_rate_schedule="linear",
            norm="layer",
            bounding="inverting",
            rescale_rewards=True,
            buffer_size=90,
        ),
    ),
    "dqn": ("FuseChoice-v0", DQNConfig(**SHARED, target_update_interval=7, exploration_steps=200)),
    "parameters": (
        "FuseParameters-v0",
        DDPGConfig(**SHARED, bounding="inverting", exploration_steps=200, optimizer="sgd"),
    ),
}
RUN = {"seed": 5, "total_timesteps": 260, "evaluation_interval": 50, "evaluation_episodes": 2, "progress_bar": False}


def what_is_left(run):
    """Return everything of a run directory that must not depend on whether it was interrupted."""
    manifest, groups = checkpoint.read(checkpoint.find(run))
    left = {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
    left |= {name: manifest[name] for name in ("num_timesteps", "num_updates", "owed_updates", "random_states")}
    for name in ("metrics", "episodes", "evaluations"):
        rows = directory.read_table(run / f"{name}.csv")
        left[name] = [{key: cell for key, cell in row.items() if key not in ("seconds", "fps")} for row in rows]
    left["events"] = sorted(
        (event.step, value.tag)
        for path in run.glob("events.out.tfevents.*")
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
    )
    left["best"] = checkpoint.read(run / "checkpoints" / "best")[0]["num_timesteps"]
    left["files"] = sorted(path.name for path in (run / "checkpoints").iterdir())
    return left


def unsealed(manifest):
    """Return what was given to ``checkpoint.write``, without what that adds."""
    added = {"format", "arrays", "sha256", "manifest_sha256"}
    return {name: value for name, value in manifest.items() if name not in added}


def blow(monkeypatch, at):
    monkeypatch.setattr(Fuse, "steps", 0)
    monkeypatch.setattr(Fuse, "blows_at", at)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The runs that were not interrupted, made when first asked for."""
    made = {}

    def make(case):
        if case not in made:
            env_id, config = CASES[case]
            made[case] = train(env_id, config, root=tmp_path_factory.mktemp("straight"), **RUN)
        return made[case]

    return make


@pytest.mark.parametrize("case", CASES)
def test_interrupted_twice_is_never_interrupted(case, straight, tmp_path, monkeypatch):
    expected = what_is_left(straight(case))
    env_id, config = CASES[case]
    blow(monkeypatch, 145)  # counts evaluations' steps too: somewhere after the first checkpoints
    with pytest.raises(RuntimeError, match="blown"):
        train(env_id, config, root=tmp_path, **RUN)
    run = tmp_path / env_id / "1"
    blow(monkeypatch, 130)
    with pytest.raises(RuntimeError, match="blown"):
        resume(run, progress_bar=False)
    blow(monkeypatch, None)
    resume(run, progress_bar=False)
    actual = what_is_left(run)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    steps = [int(row["timesteps"]) for row in expected["evaluations"]]
    assert [step // 50 for step in steps] == [1, 2, 3, 4, 5, 5][: len(steps)]  # on the grid, at the end of an episode
    ends = [int(row["timesteps"]) for row in expected["episodes"]]
    assert steps[:-1] == [min(end for end in ends if end >= 50 * k) for k in range(1, len(steps))]


def test_something_to_resume_from_exists_at_once(tmp_path, monkeypatch):
    blow(monkeypatch, 1)
    with pytest.raises(RuntimeError, match="blown"):
        train("FuseBox-v0", CASES["everything with a state"][1], root=tmp_path, **RUN)
    assert [path.name for path in directory.checkpoints(tmp_path / "FuseBox-v0" / "1")] == ["0"]


@pytest.fixture
def copied(straight, tmp_path):
    import shutil

    return shutil.copytree(straight("dqn"), tmp_path / "run")


def damage(path):
    file = path / "variables.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_damaged_newest_checkpoint_is_passed_over(copied, straight):
    *_, older, newest = directory.checkpoints(copied)
    damage(newest)
    with pytest.warns(UserWarning, match=r"does not match its checksum.*going back to the checkpoint before it"):
        resume(copied, progress_bar=False)
    assert what_is_left(copied) is not None
    np.testing.assert_equal(what_is_left(copied), what_is_left(straight("dqn")))
    assert int(older.name) < int(newest.name)


def test_going_back_to_a_checkpoint_of_ones_choice(copied, straight):
    older = directory.checkpoints(copied)[0]
    resume(copied, which=older.name, progress_bar=False)
    np.testing.assert_equal(what_is_left(copied), what_is_left(straight("dqn")))
    with pytest.raises(UsageError, match="no checkpoint '7'"):
        resume(copied, which="7", progress_bar=False)


def test_best_is_made_where_a_kill_came_before_it(copied):
    rows = directory.read_table(copied / "evaluations.csv")
    newest = directory.checkpoints(copied)[-1]
    text = (copied / "evaluations.csv").read_text().splitlines()
    columns = text[0].split(",")
    last = text[-1].split(",")
    last[columns.index("mean_return")] = "1e6"
    (copied / "evaluations.csv").write_text("\n".join([*text[:-1], ",".join(last)]) + "\n")
    resume(copied, total_timesteps=RUN["total_timesteps"] + 5, progress_bar=False)
    assert checkpoint.read(copied / "checkpoints" / "best")[0]["num_timesteps"] == int(newest.name)
    assert len(rows) > 1


def test_a_torn_last_row_is_left_out_and_cut(tmp_path):
    path = tmp_path / "t.csv"
    for torn in ("30,5", "30,5.25,\n30,6.5", "3"):
        path.write_text(f"timesteps,value\n10,1.5\n20,2.5\n{torn}")
        assert [row["timesteps"] for row in directory.read_table(path)] == ["10", "20"]
        table = directory.Table(path, ["timesteps", "value"], keep_until=20)
        table.add({"timesteps": 40, "value": 0.1})
        table.close()
        assert path.read_text() == "timesteps,value\n10,1.5\n20,2.5\n40,0.1\n"


def test_retention_removes_checkpoints_of_ours_alone(copied, tmp_path):
    folder = copied / "checkpoints"
    (folder / "1").mkdir()
    (folder / "1" / "thesis.tex").write_text("mine")
    manifest, groups = checkpoint.read(directory.checkpoints(copied)[0])
    outside = checkpoint.write(tmp_path / "outside", unsealed(manifest), groups)
    (folder / "2").symlink_to(outside)
    resume(copied, total_timesteps=RUN["total_timesteps"] + 60, progress_bar=False)
    assert (folder / "1" / "thesis.tex").read_text() == "mine"
    assert (outside / "manifest.json").exists()


def test_a_second_owner_is_told_which_the_first_is(copied):
    with owned(copied), pytest.raises(UsageError, match=rf"is in use by process {os.getpid()} since "):
        resume(copied, total_timesteps=10_000, progress_bar=False)
    resume(copied, total_timesteps=RUN["total_timesteps"] + 5, progress_bar=False)


def test_a_lock_dies_with_its_process(tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom ddpg.runs.ownership import owned\n"
        "with owned(Path(sys.argv[1])): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    with owned(tmp_path):
        pass


def test_a_file_never_imports_a_module(copied, tmp_path, monkeypatch, capsys):
    (tmp_path / "evil.py").write_text("raise SystemExit('the module was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    document = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(document | {"env_id": "evil:FuseChoice-v0"}))
    for command in (["evaluate", str(copied)], ["resume", str(copied), "--total-timesteps", "300"]):
        assert main(command) == 2
        assert "allow it: --allow-import evil" in capsys.readouterr().err
    (tmp_path / "evil.py").write_text("")
    assert main(["evaluate", str(copied), "--episodes", "2", "--allow-import", "evil"]) == 0


def test_a_memory_that_was_not_saved_is_refilled_before_learning_goes_on(copied):
    newest = directory.checkpoints(copied)[-1]
    manifest, groups = checkpoint.read(newest)
    checkpoint.write(newest, unsealed(manifest), {"variables": groups["variables"]})
    with pytest.warns(UserWarning, match="has no replay memory; it is refilled first"):
        resume(copied, total_timesteps=RUN["total_timesteps"] + 60, progress_bar=False)
    after, _ = checkpoint.read(checkpoint.find(copied))
    steps = after["num_timesteps"] - manifest["num_timesteps"]
    assert 0 < after["num_updates"] - manifest["num_updates"] <= steps - SHARED["learning_starts"]
