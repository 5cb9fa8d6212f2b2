"""Checkpoints are complete, verified, safe to load and never half-written."""

import inspect
import itertools
import json
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from checkpoints import fields
from environments import Counting
from full_disk import files_no_larger_than
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.checkpoints import checkpoint, target_dir
from ddpg.checkpoints.space_json import describe_space, restore_space

# Without compilation, which only some tests need.
SMALL = DDPGConfig(hidden=(8,), batch_size=8, learning_starts=20, updates_per_call=4, buffer_size=100, jit=False)
STEPPED = SMALL.replace(td_target="placeholder", updates_per_call=1)  # builds faster, for tests of any driver
GROUPS = {"variables": {"a": np.arange(6.0, dtype=np.float32).reshape(2, 3).T, "b": np.asarray(3)}}


def make_agent(config=SMALL, **options):
    return DDPG(Counting(7), config, seed=0, **options)


def state(agent):
    return agent.session.run(agent.global_variables)


# -- the format ---------------------------------------------------------------------------------------


def test_arrays_survive_writing_and_reading(tmp_path):
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    manifest, groups = checkpoint.read(tmp_path / "c")
    assert manifest["num_timesteps"] == 1
    for name, array in GROUPS["variables"].items():
        np.testing.assert_array_equal(groups["variables"][name], array)
        assert groups["variables"][name].shape == array.shape
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_only_the_new_checkpoint_is_left_after_a_replacement(tmp_path):
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    checkpoint.write(tmp_path / "c", fields(num_timesteps=2), GROUPS)
    assert checkpoint.read(tmp_path / "c")[0]["num_timesteps"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no handle for a directory")
def test_files_and_rename_are_flushed_before_the_old_checkpoint_is_removed(tmp_path, monkeypatch):
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    flushed = {}
    fsync = os.fsync

    def recording_fsync(descriptor):
        names = sorted(path.name for path in tmp_path.iterdir())
        flushed.setdefault(os.fstat(descriptor).st_ino, names)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    new = checkpoint.write(tmp_path / "c", fields(num_timesteps=2), GROUPS)
    aside, old = target_dir.staging_path(new).name, target_dir.backup_path(new).name
    for path in (*new.iterdir(), new):
        assert flushed[path.stat().st_ino] == sorted([aside, "c"])
    assert flushed[tmp_path.stat().st_ino] == sorted([old, "c"])


def test_the_old_checkpoint_is_found_between_the_two_renames(tmp_path):
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    (tmp_path / "c").rename(tmp_path / ".c.ddpg-old")
    assert checkpoint.read(checkpoint.find(tmp_path / "c"))[0]["num_timesteps"] == 1


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path):
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    with files_no_larger_than(1000), refuses(OSError, "File too large"):
        checkpoint.write(tmp_path / "c", fields(num_timesteps=2), {"variables": {"a": np.zeros(10_000)}})
    assert checkpoint.read(tmp_path / "c")[0]["num_timesteps"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


KILL_AT_EVERY_STEP = """
import itertools, json, os, signal, sys
import numpy as np
from ddpg.checkpoints import checkpoint, target_dir

path, fields = sys.argv[1], json.loads(sys.argv[2])
STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")  # audit events that precede the system calls


def write(number):
    checkpoint.write(path, {**fields, "num_timesteps": number}, {"variables": {"a": np.full(1000, number, np.float32)}})


def kill_at(last):
    steps = itertools.count()
    return lambda event, _: event in STEPS and next(steps) == last and os.kill(os.getpid(), signal.SIGKILL)


write(0)
for number in itertools.count(1):
    child = os.fork()
    if child == 0:
        sys.addaudithook(kill_at(number - 1))
        write(number)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    manifest, groups = checkpoint.read(checkpoint.find(path))
    print(number, manifest["num_timesteps"], set(groups["variables"]["a"]) == {manifest["num_timesteps"]})
    if status == 0:
        break
"""


def test_a_kill_before_any_step_leaves_a_complete_checkpoint(tmp_path):
    """Kills before each open, rename and removal in turn; each run starts with what the last kill left."""
    arguments = [sys.executable, "-c", KILL_AT_EVERY_STEP, str(tmp_path / "c"), json.dumps(fields())]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) > 8  # two files, their directories, two renames, and the removals
    assert all(complete == "True" for *_, complete in rows)
    found = [0, *(int(x) for _, x, _ in rows)]
    assert all(new in (old, number) for number, (old, new) in enumerate(itertools.pairwise(found), start=1))
    assert found[-1] == len(rows)  # the last one was not killed
    assert 0 < len(set(found) - {0}) < len(rows)  # some kills came before the new one was in place, some after


def discrete(n, start=0, dtype=np.int64):
    """Return a Discrete space of a dtype, if this gymnasium supports it: 1.1 has only int64."""
    known = "dtype" in inspect.signature(gym.spaces.Discrete.__init__).parameters
    return gym.spaces.Discrete(n, start=start, **({"dtype": dtype} if known else {}))


def test_a_dtype_that_this_gymnasium_lacks_is_refused(monkeypatch):
    class Old(gym.spaces.Discrete):
        def __init__(self, n, seed=None, start=0):
            super().__init__(n, seed, start)

    monkeypatch.setattr(gym.spaces, "Discrete", Old)
    assert restore_space({"type": "Discrete", "n": 3, "start": 0}).n == 3
    with refuses(UsageError, "int8"):
        restore_space({"type": "Discrete", "n": 3, "start": 0, "dtype": "int8"})


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-np.inf, np.inf, (3,), np.float64),
        gym.spaces.Box(np.array([-1, 0.5], np.float32), np.array([3, np.inf], np.float32)),
        gym.spaces.Box(0, 255, (2, 3), np.uint8),
        gym.spaces.Discrete(3, start=2),
        discrete(3, start=-2, dtype=np.int8),
        gym.spaces.Tuple([discrete(2, dtype=np.int32), gym.spaces.Box(0, 1, (1,))]),
        gym.spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
        gym.spaces.Box(-1.0, 1.0, (), np.float32),
        gym.spaces.Box(-1.0, 1.0, (0,), np.float32),
        gym.spaces.Box(0, 1, (2,), np.bool_),
        gym.spaces.Box(-1e-40, 0.1, (3, 2), np.float16),
        gym.spaces.Tuple([gym.spaces.Discrete(3, start=-2), gym.spaces.Tuple([gym.spaces.Box(-1.0, 2.0, (2,))] * 3)]),
        gym.spaces.OneOf([gym.spaces.Box(-1.0, 2.0, (2,)), gym.spaces.Box(-1.0, 1.0, (0,))]),
    ],
    ids=str,
)
def test_spaces_survive_json(space):
    restored = restore_space(json.loads(json.dumps(describe_space(space))))
    assert restored == space
    assert restored.dtype == space.dtype


def test_a_discrete_space_outside_its_dtype_is_refused():
    description = {"type": "Discrete", "n": 200, "start": 0, "dtype": "int8"}
    with refuses(UsageError, "start 0 200 int8"):
        restore_space(description)


def test_find_and_its_refusals(tmp_path):
    with refuses(UsageError, "checkpoint"):
        checkpoint.find(tmp_path / "nowhere")
    with refuses(UsageError, "ddpg.load_policy('zoo:Pendulum-v1')"):
        checkpoint.find("zoo:Pendulum-v1")
    (tmp_path / "Pendulum-v1" / "3" / "checkpoints").mkdir(parents=True)
    with refuses(UsageError, f"name one, such as {tmp_path / 'Pendulum-v1' / '3'}"):
        checkpoint.find(tmp_path / "Pendulum-v1")
    with refuses(UsageError, "not a run directory"):
        checkpoint.find(tmp_path)
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "policy.json").touch()
    with refuses(UsageError, f"{tmp_path / 'exported'} exported policy ddpg.load_policy"):
        checkpoint.find(tmp_path / "exported")
    (tmp_path / "config.json").touch()
    for _ in range(2):  # first without a folder of checkpoints, then with an empty one
        with refuses(UsageError, f"{tmp_path} run no checkpoint yet") as caught:
            checkpoint.find(tmp_path)
        assert "not a run directory" not in str(caught.value)
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
    for name in ("900", "1000", "best"):
        checkpoint.write(tmp_path / "checkpoints" / name, fields(), GROUPS)
    assert checkpoint.find(tmp_path).name == "1000"
    assert checkpoint.find(tmp_path, "best").name == "best"
    assert checkpoint.find(tmp_path, "900").name == "900"
    with refuses(UsageError, "7 900 1000 best"):
        checkpoint.find(tmp_path, "7")
    one = tmp_path / "checkpoints" / "900"
    assert checkpoint.find(one) == checkpoint.find(one, "900") == one
    for which in ("1000", "best", 1000):
        with refuses(UsageError, f"{which} {one} run directory"):
            checkpoint.find(one, which)
    (tmp_path / "checkpoints" / "best").rename(tmp_path / "checkpoints" / ".best.ddpg-old")
    assert checkpoint.read(checkpoint.find(tmp_path, "best"))


# -- the agent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        SMALL.replace(jit=True),
        pytest.param(STEPPED.replace(norm="batch"), marks=pytest.mark.slow),
        pytest.param(STEPPED.replace(bounding="inverting"), marks=pytest.mark.slow),
    ],
    ids=["compiled", "batch", "inverting"],
)
def test_a_loaded_agent_equals_the_saved_one(tmp_path, config):
    agent = make_agent(config).learn(60)
    agent.save(tmp_path / "c", replay=False)
    loaded = DDPG.load(tmp_path / "c")
    assert (len(loaded.replay), loaded.num_timesteps) == (0, 60)
    agent.save(tmp_path / "c")
    loaded = DDPG.load(tmp_path / "c")
    assert loaded.config == agent.config
    before, after = state(agent), state(loaded)
    assert any("Adam" in name for name in before)
    assert any("ExponentialMovingAverage" in name for name in before)
    np.testing.assert_equal(after, before)
    observations = np.random.default_rng(0).normal(size=(9, 2))
    np.testing.assert_array_equal(loaded.predict(observations)[0], agent.predict(observations)[0])
    agent.update(7)
    loaded.update(7)
    after = state(loaded)
    np.testing.assert_equal(after, state(agent))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of an agent before its first step."""
    return make_agent().save(tmp_path_factory.mktemp("saved") / "c")


def test_another_environment_is_refused(saved):
    with refuses(UsageError, "observation space Box"):
        DDPG.load(saved, gym.make("Pendulum-v1"))
    space = gym.spaces.Box(-2.0, 5.0, (1,), np.float32)
    with refuses(UsageError, "action space"):
        DDPG.load(saved, Counting(7, action_space=space))


def test_another_architecture_is_refused(saved):
    with refuses(UsageError, "(2, 8) (2, 9)"):
        DDPG.load(saved, config=SMALL.replace(hidden=(9,)))
    with refuses(UsageError, "lacks"):
        DDPG.load(saved, config=SMALL.replace(hidden=(8, 8)))
    with refuses(UsageError, "average actor_average was 0 and is 5"):
        DDPG.load(saved, config=SMALL.replace(actor_average=5))


@pytest.mark.parametrize("option", ["normalize_rewards", "normalize_observations"])
def test_missing_statistics_are_named_by_their_option(saved, option):
    with refuses(UsageError, option, "saved without"):
        DDPG.load(saved, config=SMALL.replace(**{option: True}))


def test_invalid_parameters_are_refused():
    agent = make_agent()
    before = agent.get_parameters()
    for numbers, words in (([1e300] * 8, "not finite as float32"), ([[1], [2, 3]], "different shapes")):
        with refuses(UsageError, "parameter actor/hidden_0/b:0", words):
            agent.set_parameters({"actor/hidden_0/b:0": numbers}, exact_match=False)
    np.testing.assert_array_equal(agent.get_parameters()["actor/hidden_0/b:0"], before["actor/hidden_0/b:0"])


def test_loading_requires_custom_networks(tmp_path):
    agent = make_agent(actor_network=lambda states: states)
    agent.save(tmp_path / "c")
    with refuses(UsageError, "actor_network load(path,"):
        DDPG.load(tmp_path / "c")
    loaded = DDPG.load(tmp_path / "c", actor_network=lambda states: states)
    np.testing.assert_array_equal(loaded.predict(np.ones(2))[0], agent.predict(np.ones(2))[0])


def test_loading_requires_callables_of_the_config(tmp_path):
    from ddpg.gradients import policy

    def custom_path(actor, critic, states):
        return policy.chain_rule(actor, critic, states)

    config = SMALL.replace(policy_gradient=custom_path)
    make_agent(config).save(tmp_path / "c")
    with refuses(UsageError, "policy_gradient custom_path"):
        DDPG.load(tmp_path / "c")
    assert DDPG.load(tmp_path / "c", config=config).config.policy_gradient is custom_path
