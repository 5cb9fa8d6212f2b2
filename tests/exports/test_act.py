"""The ``act.py`` of a numpy export reproduces the agent's actions, with NumPy as its only dependency."""

import ast
import functools
import hashlib
import json
import py_compile
import subprocess
import sys
import typing
from pathlib import Path

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from action_spaces import BOX, MOVES, PARTS, UNBOUNDED
from agent_options import SMALL_UPDATE, WITHOUT_SLOTS_AND_TARGETS
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.checkpoints import safe_json
from ddpg.policies import standalone

HALF_BOUNDED = gym.spaces.Box(np.float32([-5, -np.inf, 0]), np.float32([5, np.inf, np.inf]))
CASES = {
    "box": (HALF_BOUNDED, BOX, {"norm": "renorm_soft", "normalize_observations": True}),
    "outside": (UNBOUNDED, gym.spaces.Box(-2, 4, (3,), np.float64), {"bounding": "inverting", "activation": "selu"}),
    "tuple": (UNBOUNDED, MOVES, {}),
    "one_of": (UNBOUNDED, gym.spaces.OneOf(PARTS), {"bounding": "zeroing", "norm": "batch"}),
    "choice": (HALF_BOUNDED, gym.spaces.Discrete(4, start=-1), {"norm": "layer", "block": "plain"}),
}
REFUSING = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"numpy", "act", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not installed on the robot")
sys.meta_path.insert(0, Refusing())
"""


@functools.cache
def make_agent(name):
    observation_space, action_space, options = CASES[name]
    choice = name == "choice"
    kind, schema = (DQN, DQNConfig) if choice else (DDPG, DDPGConfig)
    config = schema(hidden=(8, 8), jit=False, **options, **(WITHOUT_SLOTS_AND_TARGETS if choice else SMALL_UPDATE))
    agent = kind((observation_space, action_space), config, seed=0)
    network = agent.q if kind is DQN else agent.actor
    with agent.session.as_default():
        network.set_network_params([4 * np.sign(x) * np.abs(x) ** 0.5 for x in network.get_network_params()])
    agent.refresh_policy()
    if agent.memory.observations is not None:
        agent.memory.observations.update(states(observation_space) * 3 + 1)
    return agent


def states(space):
    drawn = np.random.default_rng(1).normal(size=(12, *space.shape))
    return np.clip(drawn, space.low, space.high).astype(np.float32)


def plain(actions):
    """Return actions as JSON values."""
    if isinstance(actions, (tuple, list)):
        return [plain(action) for action in actions]
    return np.asarray(actions).tolist()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """For each case, the export's directory and the agent's actions for a batch and for one observation."""
    found = {}
    for name in CASES:
        agent = make_agent(name)
        folder = agent.export(tmp_path_factory.mktemp(name) / "policy")
        batch = states(agent.observation_space)
        np.save(folder.parent / "states.npy", batch)
        found[name] = folder, plain(agent.predict(batch)[0]), plain(agent.predict(batch[3])[0])
    return found


def run(folder, code):
    """Run code that can import only NumPy, the standard library and the folder's modules."""
    site = str(Path(np.__file__).parents[1])
    start = f"import sys; sys.path[:0] = [{str(folder)!r}, {site!r}]\n{REFUSING}{code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", start], capture_output=True, text=True)


def test_act_py_reproduces_the_agent_with_numpy_alone(exported):
    folders = {name: str(folder) for name, (folder, _, _) in exported.items()}
    code = f"""
import json, numpy as np, act
def plain(actions):
    if isinstance(actions, (tuple, list)):
        return [plain(action) for action in actions]
    return np.asarray(actions).tolist()
found = {{}}
for name, folder in {folders!r}.items():
    policy, batch = act.load(folder), np.load(folder + "/../states.npy")
    found[name] = plain(policy(batch)), plain(policy(batch[3])), policy.check()
try:
    import gymnasium
except ImportError:
    print(json.dumps(found))
"""
    done = run(exported["box"][0], code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, (_, batch, single) in exported.items():
        difference, tolerance = found[name].pop()
        assert difference <= tolerance < 1e-3
        if name in ("tuple", "outside", "choice"):
            assert found[name] == [batch, single], name
        else:  # TensorFlow's normalisation differs in the last bit
            for one, other in zip(found[name], (batch, single), strict=True):
                np.testing.assert_allclose(flat(one), flat(other), atol=1e-4)


def flat(values):
    return (
        np.concatenate([flat(value) for value in values]) if isinstance(values, list) and values else np.ravel(values)
    )


@pytest.mark.parametrize("name", CASES)
def test_act_py_agrees_with_load_policy(name, exported):
    folder = exported[name][0]
    batch = np.load(folder.parent / "states.npy")
    act, policy = standalone.load(folder), ddpg.load_policy(folder)
    for given in (batch, batch[0], batch.reshape(len(batch), -1), batch[0].tolist()):
        one, other = act(given), policy.predict(given)[0]
        assert plain(one) == plain(other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    assert policy.action_space.contains(act(batch[0]))


def test_act_py_is_a_short_copy_of_the_standalone_module(exported):
    text = (exported["box"][0] / "act.py").read_bytes()
    assert text == Path(standalone.__file__).read_bytes()
    assert len(text.splitlines()) <= 280
    ast.parse(text, feature_version=(3, 7))  # the oldest Python that the page on exports names for robots


def run_self_check(folder):
    return subprocess.run([sys.executable, "-I", str(folder / "act.py")], capture_output=True, text=True)


def copy_export(exported, tmp_path, name="box"):
    folder = tmp_path / "policy"
    folder.mkdir()
    for file in ("act.py", "policy.json", "policy.safetensors"):
        (folder / file).write_bytes((exported[name][0] / file).read_bytes())
    return folder


def test_the_self_check_detects_changed_outputs(exported, tmp_path):
    folder = copy_export(exported, tmp_path)
    assert run_self_check(folder).returncode == 0
    about = json.loads((folder / "policy.json").read_text())
    about["check"]["outputs"][5][2] = -about["check"]["outputs"][5][2]
    (folder / "policy.json").write_text(json.dumps(about))
    assert "policy.json does not match its checksum" in run_self_check(folder).stderr
    about.pop("policy_sha256")
    about["policy_sha256"] = hashlib.sha256(safe_json.canonical_json(about)).hexdigest()
    (folder / "policy.json").write_text(json.dumps(about))
    done = run_self_check(folder)
    assert done.returncode == 1
    assert "differs from the agent by" in done.stdout


def test_damaged_arrays_and_bad_observations_are_refused(exported, tmp_path):
    folder = copy_export(exported, tmp_path)
    policy = standalone.load(folder)
    with refuses(ValueError, "shape"):
        policy(np.zeros(4))
    with refuses(ValueError, "NaN"):
        policy([0, np.nan, 0])
    with refuses(ValueError, "integer 2**24"):
        policy([0, -(2**24) - 1, 0])
    policy([0, 2**24, 0])
    for given, kind in (
        ([0, 1j, 0], "complex128"),
        (["0", "0", "0"], "<U1"),
        (np.ma.array([0, 1, 2], mask=[0, 1, 0]), "masked"),
    ):
        with refuses(ValueError, f"{kind} real"):
            policy(given)
    data = bytearray((folder / "policy.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "policy.safetensors").write_bytes(data)
    with refuses(ValueError, "checksum"):
        standalone.load(folder)


@pytest.mark.parametrize("text", ['{"made_by": "ddpg', "[]"])
def test_damage_and_missing_files_are_named_in_one_line(text, exported, tmp_path):
    folder = copy_export(exported, tmp_path)
    (folder / "policy.json").write_text(text)
    done = run_self_check(folder)
    assert (done.returncode, done.stderr) == (1, f"{folder / 'policy.json'} is damaged: export the policy again\n")
    (folder / "policy.json").unlink()
    done = run_self_check(folder)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(folder / "policy.json") in done.stderr


def test_export_replaces_a_used_act_py_but_not_an_edited_one(exported, tmp_path):
    folder = copy_export(exported, tmp_path, "choice")
    py_compile.compile(str(folder / "act.py"))
    assert (folder / "__pycache__").exists()
    make_agent("choice").export(folder)
    assert not (folder / "__pycache__").exists()
    (folder / "act.py").write_text((folder / "act.py").read_text() + "\nprint('mine')\n")
    with refuses(UsageError, "act.py"):
        make_agent("choice").export(folder)
    assert (folder / "act.py").read_text().endswith("print('mine')\n")


def test_predict_has_the_same_type_hints_in_agents_and_policies():
    from ddpg.exports.numpy_policy import LoadedPolicy

    hints = [typing.get_type_hints(kind.predict) for kind in (DDPG, DQN, LoadedPolicy)]
    assert hints[0] == hints[1] == hints[2]
    assert hints[0].keys() == {"observation", "state", "episode_start", "deterministic", "return"}
    assert hints[0]["return"] == tuple[npt.NDArray[typing.Any], None]
