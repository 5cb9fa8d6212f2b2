"""The file that an export brings along acts with NumPy alone, as the agent does."""

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
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.checkpoints import safe_json
from ddpg.policies import standalone

UNBOUNDED = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
HALF_BOUNDED = gym.spaces.Box(np.float32([-5, -np.inf, 0]), np.float32([5, np.inf, np.inf]))
BOX = gym.spaces.Box(np.array([[-1.0, 0.5], [0, -30]], np.float32), np.array([[3.0, 1.0], [1, 30]], np.float32))
PARTS = (gym.spaces.Box(0, 30, (1,)), gym.spaces.Box(0, 1, (0,)), gym.spaces.Box(-2, 9, (2, 1), np.float64))
CASES = {
    "box": (HALF_BOUNDED, BOX, {"norm": "renorm_soft", "normalize_observations": True}),
    "outside": (UNBOUNDED, gym.spaces.Box(-2, 4, (3,), np.float64), {"bounding": "inverting", "activation": "selu"}),
    "tuple": (UNBOUNDED, gym.spaces.Tuple((gym.spaces.Discrete(3, start=1), gym.spaces.Tuple(PARTS))), {}),
    "one_of": (UNBOUNDED, gym.spaces.OneOf(PARTS), {"bounding": "zeroing", "norm": "batch"}),
    "choice": (HALF_BOUNDED, gym.spaces.Discrete(4, start=-1), {"norm": "layer", "block": "plain"}),
}
REFUSING = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"numpy", "act", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not on the robot")
sys.meta_path.insert(0, Refusing())
"""


def agent_of(name):
    observation_space, action_space, options = CASES[name]
    kind, schema = (DQN, DQNConfig) if name == "choice" else (DDPG, DDPGConfig)
    agent = kind((observation_space, action_space), schema(hidden=(8, 8), jit=False, **options), seed=0)
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
    """Of each case the directory, and what the agent does: for a batch, for one observation, and the dtype of that."""
    found = {}
    for name in CASES:
        agent = agent_of(name)
        folder = agent.export(tmp_path_factory.mktemp(name) / "policy")
        batch = states(agent.observation_space)
        np.save(folder.parent / "states.npy", batch)
        found[name] = folder, plain(agent.predict(batch)[0]), plain(agent.predict(batch[3])[0])
    return found


def run(folder, code):
    """Run Python where nothing can be imported but NumPy, the standard library, and what is in the folder."""
    site = str(Path(np.__file__).parents[1])
    start = f"import sys; sys.path[:0] = [{str(folder)!r}, {site!r}]\n{REFUSING}{code}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", start], capture_output=True, text=True)


def test_it_acts_as_the_agent_where_nothing_is_but_numpy(exported):
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
        else:  # normalised by TensorFlow's operations, in the last bit another
            for one, other in zip(found[name], (batch, single), strict=True):
                np.testing.assert_allclose(flat(one), flat(other), atol=1e-4)


def flat(values):
    return (
        np.concatenate([flat(value) for value in values]) if isinstance(values, list) and values else np.ravel(values)
    )


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_load_policy_does(name, exported):
    folder = exported[name][0]
    batch = np.load(folder.parent / "states.npy")
    theirs, ours = standalone.load(folder), ddpg.load_policy(folder)
    for given in (batch, batch[0], batch.reshape(len(batch), -1), batch[0].tolist()):
        one, other = theirs(given), ours.predict(given)[0]
        assert plain(one) == plain(other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    assert ours.action_space.contains(theirs(batch[0]))


def test_it_is_small_and_the_one_that_the_package_has(exported):
    text = (exported["box"][0] / "act.py").read_bytes()
    assert text == Path(standalone.__file__).read_bytes()
    assert len(text.splitlines()) <= 230


def checked(folder):
    return subprocess.run([sys.executable, "-I", str(folder / "act.py")], capture_output=True, text=True)


def copied(exported, tmp_path, name="box"):
    folder = tmp_path / "policy"
    folder.mkdir()
    for file in ("act.py", "policy.json", "policy.safetensors"):
        (folder / file).write_bytes((exported[name][0] / file).read_bytes())
    return folder


def test_it_checks_itself(exported, tmp_path):
    folder = copied(exported, tmp_path)
    assert checked(folder).returncode == 0
    about = json.loads((folder / "policy.json").read_text())
    about["check"]["outputs"][5][2] = -about["check"]["outputs"][5][2]
    (folder / "policy.json").write_text(json.dumps(about))
    assert "policy.json does not match its checksum" in checked(folder).stderr
    about.pop("policy_sha256")
    about["policy_sha256"] = hashlib.sha256(safe_json.canonical_json(about)).hexdigest()
    (folder / "policy.json").write_text(json.dumps(about))
    done = checked(folder)
    assert done.returncode == 1
    assert "differs from the agent by" in done.stdout


def test_damaged_arrays_and_bad_observations_are_refused(exported, tmp_path):
    folder = copied(exported, tmp_path)
    policy = standalone.load(folder)
    with refuses(ValueError, "shape"):
        policy(np.zeros(4))
    with refuses(ValueError, "NaN"):
        policy([0, np.nan, 0])
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


def test_an_edited_file_is_not_replaced_and_one_that_ran_is(exported, tmp_path):
    folder = copied(exported, tmp_path, "choice")
    py_compile.compile(str(folder / "act.py"))
    assert (folder / "__pycache__").exists()
    agent_of("choice").export(folder)
    assert not (folder / "__pycache__").exists()
    (folder / "act.py").write_text((folder / "act.py").read_text() + "\nprint('mine')\n")
    with refuses(UsageError, "act.py"):
        agent_of("choice").export(folder)
    assert (folder / "act.py").read_text().endswith("print('mine')\n")


def test_predict_has_the_same_types_of_agent_and_policy():
    from ddpg.exports.numpy_policy import LoadedPolicy

    hints = [typing.get_type_hints(kind.predict) for kind in (DDPG, DQN, LoadedPolicy)]
    assert hints[0] == hints[1] == hints[2]
    assert hints[0].keys() == {"observation", "state", "episode_start", "deterministic", "return"}
    assert hints[0]["return"] == tuple[npt.NDArray[typing.Any], None]
