"""A resumed run ends exactly as if never interrupted: weights, memory, random states, tables and events."""

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Aiming, Counting, Pixels, Reaching
from refusals import lacking, refuses
from remains import Killed, assert_same, let_kills_pass, saved, what_is_left

from benchmarks.faults import common
from ddpg import DDPGConfig, DQNConfig, UsageError, resume, train
from ddpg.checkpoints import checkpoint
from ddpg.cli.main import main
from ddpg.runs import episode_limits, recorder, run_config, run_directory
from ddpg.runs.listing import list_runs
from ddpg.runs.lock import run_lock
from ddpg.runs.run_directory import read_config
from ddpg.runs.tables import CSVTable, read_table
from ddpg.runs.versions import differences, versions_here

SHARED = TINY | {"learning_starts": 20, "updates_per_call": 3}


@pytest.fixture(autouse=True)
def kills_end_the_run(monkeypatch):
    let_kills_pass(monkeypatch)


@pytest.fixture(autouse=True)
def rows_are_of_several_steps(monkeypatch):
    """Log every 13 steps instead of each: measurements for the rows take most of a diagnosed run's time."""
    monkeypatch.setattr(recorder, "ROWS", 20)


class Fuse(gym.Wrapper):
    """Raises ``Killed`` in step ``blows_at``; episodes depend on their seed and last 7 to 12 steps."""

    blows_at = None
    steps = 0

    def reset(self, *, seed=None, options=None):
        self.env.unwrapped.episode = -1  # a reset restores the initial state
        observation, info = self.env.reset(seed=seed)
        self.length, self.step_number = int(self.np_random.integers(7, 13)), 0
        return observation, info

    def step(self, action):
        Fuse.steps += 1
        self.step_number += 1
        if Fuse.steps == Fuse.blows_at:
            raise Killed("the fuse has blown")
        observation, reward, terminated, _, info = self.env.step(action)
        if not isinstance(observation, dict):  # the reward of a goal must depend on the goal alone
            reward += float(self.np_random.normal())
        return observation, reward, terminated, self.step_number >= self.length, info


def register(name, make):
    if name not in gym.registry:
        gym.register(name, lambda **_: Fuse(make()), disable_env_checker=True)


register("FuseBox-v0", lambda: Counting(1_000))
register("FuseChoice-v0", lambda: Counting(1_000, action_space=gym.spaces.Discrete(3)))
register("FuseParameters-v0", Aiming)
register("FuseGoal-v0", lambda: Reaching(1_000))
register("FuseImage-v0", Pixels)

CASES = {
    "everything with a state": (
        "FuseBox-v0",
        DDPGConfig(
            **SHARED | {"optimizer": "adam"},
            noise="ornstein_uhlenbeck",
            updates_per_step=0.3,
            learning_rate_schedule="linear",
            rescale_rewards=True,
            buffer_size=90,
            policy_delay=2,
            target_policy_noise=0.2,
            parameter_noise=0.2,
            gamma=0.5,  # so that diagnostics soon have discounted returns
        ),
    ),
    "dqn": (
        "FuseChoice-v0",
        DQNConfig(**SHARED, target_update_interval=7, exploration_steps=200, learning_rate_schedule="linear_to_tenth"),
    ),
    "parameters": (
        "FuseParameters-v0",
        DDPGConfig(
            **SHARED,
            bounding="inverting",
            exploration_steps=200,
            n_steps=3,
            prioritised="proportional",
            priority_correction_steps=200,
            normalize_observations=True,
            normalize_rewards=True,
        ),
    ),
    "vector": ("FuseBox-v0", DDPGConfig(**SHARED, gamma=0.5, noise="ornstein_uhlenbeck", updates_per_step=0.3)),
    # Their ring buffers wrap around: once before the first kill, five times until the end.
    "hindsight": ("FuseGoal-v0", DDPGConfig(**SHARED, hindsight=4, buffer_size=50, normalize_observations=True)),
    "images": (
        "FuseImage-v0",
        DQNConfig(
            **SHARED | {"network": "conv", "norm": "batch", "buffer_size": 50, "updates_per_step": 0.25},
            **{"prioritised": "lap", "n_steps": 3, "double_q": True},
        ),
    ),
}
FIRST = next(iter(CASES))
RUN = {"seed": 5, "total_timesteps": 260, "evaluation_interval": 50, "evaluation_episodes": 2, "progress_bar": False}


def run_of(case):
    return RUN | ({"n_envs": 4} if case == "vector" else {})


def unsealed(manifest):
    """Return the manifest without the fields that ``checkpoint.write`` adds."""
    added = {"format", "arrays", "sha256", "manifest_sha256"}
    return {name: value for name, value in manifest.items() if name not in added}


def blow(monkeypatch, at):
    monkeypatch.setattr(Fuse, "steps", 0)
    monkeypatch.setattr(Fuse, "blows_at", at)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Return a function that trains a case without interruption, once."""
    made = {}

    def make(case):
        if case not in made:
            env_id, config = CASES[case]
            made[case] = train(env_id, config, root=tmp_path_factory.mktemp("uninterrupted"), **run_of(case))
        return made[case]

    return make


# Slow: these two cover most of what the others test, and the tests of a copied run resume DQN exactly.
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in (FIRST, "vector"))) for case in CASES]
)
def test_a_run_killed_twice_ends_as_if_never_interrupted(case, uninterrupted, tmp_path, monkeypatch):
    env_id, config = CASES[case]
    blow(monkeypatch, 145)  # after the first checkpoints; steps of evaluations count, too
    with refuses(Killed, "blown"):
        train(env_id, config, root=tmp_path, **run_of(case))
    run = tmp_path / env_id / "1"
    blow(monkeypatch, 130)
    with refuses(Killed, "blown"):
        resume(run, progress_bar=False)
    blow(monkeypatch, None)
    resume(run, progress_bar=False)
    assert_same(run, uninterrupted(case))
    assert common.differences(run, common.digest(uninterrupted(case))) == "nothing"
    expected = what_is_left(run)
    steps = [int(row["timesteps"]) for row in expected["evaluations"]]
    if case == "vector":  # evaluations do not wait for the end of an episode
        assert steps == [52, 100, 152, 200, 252, 260]
        return
    assert [step // 50 for step in steps] == [1, 2, 3, 4, 5, 5][: len(steps)]  # on the grid, at the end of an episode
    ends = [int(row["timesteps"]) for row in expected["episodes"]]
    assert steps[:-1] == [min(end for end in ends if end >= 50 * k) for k in range(1, len(steps))]


def test_replaced_options_outlast_a_kill(copied, tmp_path, monkeypatch):
    """They are in config.json before the first checkpoint has them, and going back to an earlier one keeps them."""
    config = CASES["dqn"][1].replace(n_steps=3, gamma=0.5)
    runs = [copied, shutil.copytree(copied, tmp_path / "other")]
    for run in runs:
        blow(monkeypatch, 5 if run == copied else None)
        with refuses(Killed, "blown") if run == copied else contextlib.nullcontext():
            resume(run, config=config, total_timesteps=280, progress_bar=False)
    blow(monkeypatch, None)
    resume(copied, progress_bar=False)
    assert saved(copied)[0]["config"] == read_config(copied)["config"] == config.to_json()
    assert_same(*runs)
    resume(copied, which=run_directory.checkpoints(copied)[0].name, progress_bar=False)
    assert_same(*runs)


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
    """Return a function that trains a case with diagnostics, kills it and resumes it, once."""
    made = {}

    def make(case):
        if case not in made:
            (env_id, config), root = CASES[case], tmp_path_factory.mktemp("diagnosed")
            with pytest.MonkeyPatch.context() as patch:
                blow(patch, 145)
                with refuses(Killed, "blown"):
                    train(env_id, config, root=root, diagnose=True, **run_of(case))
                blow(patch, None)
                made[case] = root / env_id / "1"
                resume(made[case], progress_bar=False)
        return made[case]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_diagnostics_do_not_change_a_run(case, uninterrupted, diagnosed):
    """A diagnosed run that was killed and resumed equals the plain one, except for diagnostics.csv."""
    run = diagnosed(case)
    assert_same(run, uninterrupted(case))
    steps = [row["timesteps"] for row in read_table(run / "diagnostics.csv")]
    assert steps == [row["timesteps"] for row in read_table(run / "metrics.csv")]
    assert not (uninterrupted(case) / "diagnostics.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("case", [FIRST, "vector"])
def test_diagnostics_do_not_depend_on_interruptions(case, diagnosed, tmp_path, monkeypatch):
    env_id, config = CASES[case]
    blow(monkeypatch, None)
    expected = train(env_id, config, root=tmp_path / "expected", diagnose=True, **run_of(case))
    text = (expected / "diagnostics.csv").read_text()
    assert (diagnosed(case) / "diagnostics.csv").read_text() == text
    assert read_table(expected / "diagnostics.csv")[-1]["discounted_return"]


def test_a_checkpoint_exists_from_the_first_step_on(tmp_path, monkeypatch):
    blow(monkeypatch, 1)
    with refuses(Killed, "blown"):
        train("FuseBox-v0", CASES["everything with a state"][1], root=tmp_path, **RUN)
    assert [path.name for path in run_directory.checkpoints(tmp_path / "FuseBox-v0" / "1")] == ["0"]


@pytest.fixture
def copied(uninterrupted, tmp_path):
    return shutil.copytree(uninterrupted("dqn"), tmp_path / "run")


def rewrite(path, change):
    """Change the manifest and the groups of a checkpoint in place."""
    manifest, groups = checkpoint.read(path)
    change(manifest, groups)
    checkpoint.write(path, unsealed(manifest), groups)


def mark_as_best(path):
    """Let a checkpoint say that the evaluation there was the best so far."""
    best = {"best": np.array([1e6]), "best_at": np.array(int(path.name))}
    rewrite(path, lambda manifest, groups: groups["run"].update(best))


def damage(path):
    file = path / "variables.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_damaged_newest_checkpoint_is_skipped(copied, uninterrupted):
    *_, older, newest = run_directory.checkpoints(copied)
    damage(newest)
    with pytest.warns(UserWarning, match="checksum"):
        resume(copied, progress_bar=False)
    assert what_is_left(copied) is not None
    np.testing.assert_equal(what_is_left(copied), what_is_left(uninterrupted("dqn")))
    assert int(older.name) < int(newest.name)


def test_resuming_a_finished_run_completes_its_files(copied, capsys):
    """A kill may come after the last checkpoint, but before the oldest is removed and the picture drawn."""
    older, newest = run_directory.checkpoints(copied)
    shutil.copytree(older, older.with_name("1"))
    (copied / "learning_curve.png").unlink()
    assert resume(copied, progress_bar=False) == copied
    assert run_directory.checkpoints(copied) == [older, newest]
    assert (copied / "learning_curve.png").exists()
    assert "learning_curve.png" in capsys.readouterr().err
    with refuses(UsageError, "reached"):
        resume(copied, progress_bar=False)
    (copied / "learning_curve.png").write_bytes(b"of a shorter goal")
    with refuses(UsageError, "total_timesteps=5"):
        resume(copied, total_timesteps=5, progress_bar=False)


def test_an_edited_table_is_warned_about_and_kept(copied):
    path = copied / "evaluations.csv"
    path.write_text(path.read_text().replace(",2,", ",3,", 1))  # episodes of the first evaluation
    with pytest.warns(UserWarning, match="evaluations.csv"):
        resume(copied, total_timesteps=RUN["total_timesteps"] + 5, progress_bar=False)
    assert [row["episodes"] for row in read_table(path)][:2] == ["3", "2"]


def test_resuming_from_an_older_checkpoint(copied, uninterrupted):
    older = run_directory.checkpoints(copied)[0]
    resume(copied, which=older.name, progress_bar=False)
    np.testing.assert_equal(what_is_left(copied), what_is_left(uninterrupted("dqn")))
    with refuses(UsageError, "checkpoint '7'"):
        resume(copied, which="7", progress_bar=False)


def test_a_best_checkpoint_that_a_kill_prevented_is_written_on_resume(copied):
    newest = run_directory.checkpoints(copied)[-1]
    assert saved(copied, "best")[0]["num_timesteps"] < int(newest.name)
    mark_as_best(newest)
    resume(copied, total_timesteps=RUN["total_timesteps"] + 5, progress_bar=False)
    assert saved(copied, "best")[0]["num_timesteps"] == int(newest.name)


def test_a_best_checkpoint_at_the_goal_is_written_on_resume(copied, capsys):
    """A kill or a full disk may have prevented it after the last checkpoint; nothing is left to train then."""
    older, newest = run_directory.checkpoints(copied)
    for path in (older, newest):
        mark_as_best(path)
    assert resume(copied, progress_bar=False) == copied
    assert saved(copied, "best")[0]["num_timesteps"] == int(newest.name)
    assert "reached" in (err := capsys.readouterr().err)
    assert "checkpoints/best" in err
    with refuses(UsageError, "reached"):
        resume(copied, progress_bar=False)
    with refuses(UsageError, "reached"):
        resume(copied, which=older.name, total_timesteps=int(older.name), progress_bar=False)
    assert saved(copied, "best")[0]["num_timesteps"] == int(newest.name)


def test_a_damaged_best_checkpoint_is_replaced_on_resume(copied):
    (copied / "checkpoints" / "best" / "manifest.json").write_text("{")
    older = run_directory.checkpoints(copied)[0]
    mark_as_best(older)
    resume(copied, which=older.name, progress_bar=False)
    assert saved(copied, "best")[0]["num_timesteps"] == int(older.name)


def test_an_incomplete_last_row_is_ignored_and_removed(tmp_path):
    path = tmp_path / "t.csv"
    for torn in ("30,5", "30,5.25", "30,", "3"):
        path.write_text(f"timesteps,value\n10,1.5\n20,2.5\n{torn}")
        assert [row["timesteps"] for row in read_table(path)] == ["10", "20"]
        table = CSVTable(path, ["timesteps", "value"], keep_until=20)
        table.add({"timesteps": 40, "value": 0.1})
        table.close()
        assert path.read_text() == "timesteps,value\n10,1.5\n20,2.5\n40,0.1\n"


def test_retention_removes_nothing_but_checkpoints(copied, tmp_path):
    folder = copied / "checkpoints"
    (folder / "1").mkdir()
    (folder / "1" / "thesis.tex").write_text("mine")
    manifest, groups = checkpoint.read(run_directory.checkpoints(copied)[0])
    outside = checkpoint.write(tmp_path / "outside", unsealed(manifest), groups)
    (folder / "2").symlink_to(outside)
    resume(copied, total_timesteps=RUN["total_timesteps"] + 60, progress_bar=False)
    assert (folder / "1" / "thesis.tex").read_text() == "mine"
    assert (outside / "manifest.json").exists()


def test_a_locked_run_is_refused_and_its_process_named(copied):
    with run_lock(copied), refuses(UsageError, f"in use process {os.getpid()} since"):
        resume(copied, total_timesteps=10_000, progress_bar=False)
    resume(copied, total_timesteps=RUN["total_timesteps"] + 5, progress_bar=False)


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom ddpg.runs.lock import run_lock\n"
        "with run_lock(Path(sys.argv[1])): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    with run_lock(tmp_path):
        pass


def test_the_best_checkpoint_cannot_be_resumed(copied):
    """It has no replay memory, and newer checkpoints would be removed."""
    before = [path.name for path in run_directory.checkpoints(copied)]
    for which in ("best", "newest", "-5", ""):
        with refuses(UsageError, f"checkpoint '{which}'"):
            resume(copied, which=which, total_timesteps=400, progress_bar=False)
    assert [path.name for path in run_directory.checkpoints(copied)] == before


@pytest.mark.parametrize("more", [float, np.int64])
def test_a_new_goal_is_a_whole_number_of_any_type(more, copied):
    goal = run_config.read(copied)["total_timesteps"]
    resume(copied, total_timesteps=more(goal + 1), progress_bar=False)
    assert run_directory.read_config(copied)["total_timesteps"] == goal + 1
    with refuses(UsageError, "total_timesteps=0 1"):
        resume(copied, total_timesteps=0)


def test_a_run_without_a_data_set_cannot_learn_offline(copied):
    document = read_config(copied)
    assert (document["dataset"], document["offline_timesteps"]) == (None, None)
    with refuses(UsageError, "offline_timesteps=260"):
        resume(copied, offline_timesteps=260, total_timesteps=300, progress_bar=False)


def test_an_invalid_goal_is_refused_before_anything_is_removed(copied):
    before = [path.name for path in run_directory.checkpoints(copied)]
    first, goal = before[0], 2**60
    with refuses(UsageError, f"total_timesteps {goal} `int`"):
        resume(copied, which=first, total_timesteps=goal, progress_bar=False)
    assert [path.name for path in run_directory.checkpoints(copied)] == before


def test_a_module_that_a_file_names_is_imported_only_if_allowed(copied, tmp_path, monkeypatch, capsys):
    (tmp_path / "evil.py").write_text("raise SystemExit('the module was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    run_config.write(copied, run_config.read(copied) | {"env_id": "evil:FuseChoice-v0"})
    for command in (["evaluate", str(copied)], ["resume", str(copied), "--total-timesteps", "300"]):
        assert main(command) == 2
        assert "allow it: --allow-import evil" in capsys.readouterr().err
    (tmp_path / "evil.py").write_text("")
    assert main(["evaluate", str(copied), "--episodes", "2", "--allow-import", "evil"]) == 0


def test_a_missing_replay_memory_is_refilled_before_updates(copied):
    newest = run_directory.checkpoints(copied)[-1]
    manifest, _ = checkpoint.read(newest)
    rewrite(newest, lambda manifest, groups: groups.pop("replay"))
    with pytest.warns(UserWarning, match="replay memory"):
        resume(copied, total_timesteps=RUN["total_timesteps"] + 60, progress_bar=False)
    after, _ = saved(copied)
    steps = after["num_timesteps"] - manifest["num_timesteps"]
    assert 0 < after["num_updates"] - manifest["num_updates"] <= steps - SHARED["learning_starts"]


def test_other_versions_are_warned_about_and_recorded(copied, monkeypatch):
    """The same versions give no warning: it would fail every other test here."""
    recorded = run_config.read(copied)["versions"]
    assert {"python", "ddpg-paths", "tensorflow", "tflearn", "gymnasium", "numpy", "llvmlite"} <= {*recorded}
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.1" if name == "llvmlite" else version(name))
    goal = run_config.read(copied)["total_timesteps"]
    message = rf"llvmlite {recorded['llvmlite']} there, 0\.0\.1 here"
    with pytest.warns(UserWarning, match=message):
        resume(copied, total_timesteps=goal + 1, progress_bar=False)
    assert run_config.read(copied)["versions"] == recorded | {"llvmlite": "0.0.1"}
    resume(copied, total_timesteps=goal + 2, progress_bar=False)


def test_another_time_limit_is_warned_about_and_recorded(tmp_path, monkeypatch, capsys):
    """Episodes of 5 steps have other returns than episodes of 10; runs of earlier versions have no recorded limit."""
    spec = gym.spec("Pendulum-v1")
    monkeypatch.setattr(spec, "max_episode_steps", 10)
    config = DDPGConfig(**TINY, learning_starts=100)
    train_options = {"seed": 0, "evaluation_interval": 20, "evaluation_episodes": 1, "progress_bar": False}
    run = train("Pendulum-v1", config, root=tmp_path, total_timesteps=20, **train_options)
    assert run_config.read(run)["episode_limit"] == 10
    monkeypatch.setattr(spec, "max_episode_steps", 5)
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    assert not lacking(capsys.readouterr().out, "episodes 5 steps 10 comparable")
    with pytest.warns(UserWarning, match=r"5 steps.* 10 when the run began"):
        resume(run, total_timesteps=30, progress_bar=False)
    assert run_config.read(run)["episode_limit"] == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume(run, total_timesteps=40, progress_bar=False)
    assert episode_limits.episode_limit_note(5, None) == ""
    monkeypatch.setattr(spec, "max_episode_steps", None)
    note = episode_limits.episode_limit_note(episode_limits.episode_limit("Pendulum-v1"), 5)
    assert "no time limit" in note
    assert "None" not in note


def test_a_run_is_listed_with_the_steps_that_it_can_be_resumed_from(copied):
    """A checkpoint may be later than the last rows of metrics and evaluations."""
    newest = run_directory.checkpoints(copied)[-1]
    later = newest.with_name(str(int(newest.name) + 3))
    shutil.copytree(newest, later)
    (row,) = list_runs(copied.parent)
    assert row["timesteps"] == int(later.name)


def test_the_version_of_a_physics_engine_is_recorded(monkeypatch):
    """Another version of MuJoCo gives other trajectories."""
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    before = versions_here()
    assert "mujoco" not in before
    monkeypatch.setitem(sys.modules, "mujoco", sys)
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0" if name == "mujoco" else version(name))
    assert versions_here() == before | {"mujoco": "4.0"}
    assert differences(before, versions_here()) == differences(versions_here(), before) == ""
    assert differences({"mujoco": "3.1", "numpy": "2"}, {"mujoco": "4.0", "numpy": "2"}) == "mujoco 3.1 there, 4.0 here"


def test_box2ds_version_is_recorded_under_both_names_of_its_package(monkeypatch):
    """The extra 'box2d' of gymnasium 1.1 installs box2d-py, and that of 1.4 box2d."""
    monkeypatch.setitem(sys.modules, "Box2D", sys)
    version = importlib.metadata.version
    for package in ("box2d", "box2d-py"):
        installed = {"box2d": None, "box2d-py": None} | {package: "2.3"}

        def only_one(name, installed=installed):
            if name in installed and installed[name] is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return installed.get(name) or version(name)

        monkeypatch.setattr(importlib.metadata, "version", only_one)
        recorded = versions_here()
        assert {name: recorded.get(name) for name in installed} == installed
