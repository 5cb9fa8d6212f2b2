"""Every argument of every public callable with every hostile value: a result, or a one-line error.

The callables and their arguments are read from ``ddpg.__all__`` and ``ddpg_envs``. A new one without a usual value here
fails :func:`test_every_public_argument_is_tried`.
"""

import contextlib
import inspect
import io
import zlib

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from hostile import VALUES, outcome

import ddpg
import ddpg_envs

v1 = tf.compat.v1
BOX, ACTIONS = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,))
SMALL = {"hidden": (4,), "batch_size": 4, "buffer_size": 64, "learning_starts": 0, "updates_per_call": 1, "jit": False}
SMALL |= {"optimizer": "sgd", "target": "online"}
MISSING = inspect.Parameter.empty

# Called by the package, or with tensors and ops of the caller's graph, which TensorFlow checks; or not meant for users.
EXEMPT_METHODS = {
    *("act", "map", "padded", "named", "store", "assign", "check_learning", "check_usable"),
    *("report_evaluation", "state", "make_behaviour", "refresh_policy", "begin_episodes", "restore"),
    *("arrays", "close_extras", "stop", "to_env", "close", "apply_gradients", "bound_action_gradient"),
    *("compute_gradients", "policy_gradients", "placeholders", "target", "target_sync"),
    *("target_update", "action_gradient", "joint", "prediction", "target_prediction"),
    "td_target",
    *("td_gradients", "taken", "with_averages", "with_observations", "load_policies", "encode", "averaged"),
}
EXEMPT = {
    "UsageError",
    "Batch",
    "Batch.replace",
    "Bounding",
    *("ActionMask", "ActionMask.reset", "ActionMask.step"),
    "EnvPoolVector",
    "EnvPoolVector.reset",
    "EnvPoolVector.step",
    # The innermost loops, with the caller's rows and generators.
    *(f"ReplayBuffer.{name}" for name in ("add", "draw", "draw_mixed", "end_episodes", "gather", "newest", "sample")),
    *(f"{name}Noise.sample" for name in ("Gaussian", "OrnsteinUhlenbeck")),
}
# A class is callable too, and errors of the caller's callable are the caller's.
OWN_CALLABLES = ("actor_network", "critic_network", "q_network", "callbacks", "network")
# These take longest to build or compute: tested with a few values each, and with all in the slow tests.
COSTLY = {
    "DDPG",
    "DQN",
    "train",
    "resume",
    "evaluate",
    "check_critic",
    "record",
    "compare_paths",
    "draw_paths",
    "learn",
    "load",
    "export",
}
COSTLY |= {"ActorNetwork", "CriticNetwork", "QNetwork", "save", "update"}


class Tiny(gym.Env):
    """Three steps an episode; after ``patience`` steps it raises, so that no call runs for ever."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1000}  # noqa: RUF012 - gymnasium's own convention

    def __init__(self, render_mode=None, patience=100):
        self.observation_space, self.action_space, self.render_mode = BOX, ACTIONS, render_mode
        self._patience = patience

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._steps, self._patience = self._steps + 1, self._patience - 1
        if self._patience < 0:
            raise RuntimeError("too many steps")
        return np.full(3, self._steps / 3, np.float32), 1.0, self._steps == 3, False, {}

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


def public_callables():
    """Return ``{name: callable}``: functions, classes, and methods as ``Class.method``."""
    found = {}
    for module, names in ((ddpg, ddpg.__all__), (ddpg_envs, [n for n in dir(ddpg_envs) if n.endswith("Env")])):
        for name in names:
            value = getattr(module, name)
            if not callable(value):
                continue
            found[name] = value
            for method, function in inspect.getmembers(value) if inspect.isclass(value) else ():
                ours = (inspect.isfunction(function) or inspect.ismethod(function)) and function.__module__.startswith(
                    "ddpg."
                )
                if ours and not method.startswith(("_", "on_")) and method not in EXEMPT_METHODS:
                    found[f"{name}.{method}"] = function
    return {name: value for name, value in found.items() if name not in EXEMPT}


def arguments_of(function):
    """Return the parameters of a callable that can be passed by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {n: p for n, p in inspect.signature(function).parameters.items() if p.kind in kinds and n != "self"}


CALLABLES = public_callables()
CASES = [(name, argument) for name, function in CALLABLES.items() for argument in arguments_of(function)]


class Samples:
    """Small instances of everything that the callables are called on and with."""

    def __init__(self, folder):
        self.folder = folder
        self.agents = {}
        for kind, space, config in (
            ("DDPG", ACTIONS, ddpg.DDPGConfig(**SMALL)),
            ("DQN", gym.spaces.Discrete(2), ddpg.DQNConfig(**SMALL)),
        ):
            agent = self.agents[kind] = getattr(ddpg, kind)((BOX, space), config, seed=0)
            actions = np.zeros((4, 1)) if kind == "DDPG" else [0, 1, 0, 1]
            agent.remember(np.zeros((4, 3)), actions, np.zeros(4), np.ones((4, 3)), [False] * 4, [False] * 4)
        self.agents["DDPG"].save(folder / "saved")
        self.agents["DQN"].save(folder / "saved-dqn")
        self.agents["DDPG"].export(folder / "policy")
        columns = {name: np.zeros(4) for name in ("rewards", "terminals", "timeouts")}
        columns |= {name: np.zeros((4, 3)) for name in ("observations", "next_observations")}
        np.savez(folder / "data.npz", actions=np.zeros((4, 1)), **columns)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.networks = {
                "ActorNetwork": ddpg.ActorNetwork(BOX, ACTIONS, network=ddpg.mlp((4,))),
                "CriticNetwork": ddpg.CriticNetwork(BOX, ACTIONS, network=ddpg.mlp((4,))),
                "QNetwork": ddpg.QNetwork(BOX, gym.spaces.Discrete(2), network=ddpg.mlp((4,))),
            }
            self.session = v1.Session(graph=self.graph)
            self.session.run(v1.global_variables_initializer())

    def object(self, kind):
        """Return the instance for a method."""
        if kind in self.agents:
            return self.agents[kind]
        if kind in self.networks:
            return self.networks[kind]
        if kind == "ReplayBuffer":
            buffer = ddpg.ReplayBuffer(8, (3,), 1)
            buffer.add(np.zeros((2, 3)), np.zeros((2, 1)), np.zeros(2), np.ones((2, 3)), [False] * 2, [False] * 2)
            return buffer
        if kind.endswith("Env"):
            env = getattr(ddpg_envs, kind)()
            env.reset(seed=0)
            return env
        return getattr(ddpg, kind)(**self.usual(kind))

    def usual(self, name):
        """Return a callable's usual arguments, without those whose default is cheap."""
        return {
            argument: self.value(name, argument)
            for argument, parameter in arguments_of(CALLABLES[name]).items()
            if parameter.default is MISSING or (name, argument) in _GIVEN or argument in _ALWAYS
        }

    def value(self, name, argument):
        """Return a usual value of an argument."""
        kind, _, method = name.rpartition(".")
        discrete = "DQN" in name or "QNetwork" in name
        rows = 2 if kind in ("ReplayBuffer", *self.agents) else 3
        if kind in self.agents and argument in ("env",) and method == "load":
            return None
        if kind.endswith("Env") and argument == "action":
            return getattr(ddpg_envs, kind)().action_space.sample()
        values = {
            **dict.fromkeys(("env", "eval_env"), None),
            **dict.fromkeys(("observations", "next_observations"), np.zeros((rows, 3))),
            **dict.fromkeys(("observation", "next_observation"), np.zeros(3)),
            **dict.fromkeys(("terminated", "truncated"), False if method == "observe" else [False] * rows),
            **dict.fromkeys(("path", "save_path", "directory", "log_dir", "run", "root"), self.folder / "new"),
            "observation_space": BOX,
            "action_space": gym.spaces.Discrete(2) if discrete else ACTIONS,
            "actions": [0] * rows if kind == "DQN" else np.zeros((rows, 1), int if discrete else float),
            "action": 0 if discrete else np.zeros(1),
            "rewards": np.zeros(rows),
            "reward": 0.0,
            "targets": np.zeros((rows, 1)),
            "action_gradients": np.zeros((rows, 1)),
            "learning_rate": 1e-3,
            "arrays": [],
            "capacity": 8,
            "observation_shape": (3,),
            "action_size": 1,
            "updates": 1,
            "batch_size": 4,
            "count": 1,
            "rows": np.zeros(2, int),
            "index": 0,
            "rng": np.random.default_rng(0),
            "scale": 0.1,
            "shape": (1, 1),
            "total_timesteps": 4,
            "callbacks": lambda agent: False,
            "factor": 1.0,
            "left": 1.0,
            "parameters": {},
            "exact_match": False,
            "config": ddpg.DDPGConfig(**SMALL),
            **dict.fromkeys(("policy", "agent"), self.agents["DDPG"]),
            "states": np.zeros((rows, 3)),
            "report": {},
            "tracker": io,
            "source": self.folder / "data.npz",
            "values": {},
            **dict.fromkeys(("save_freq", "max_episodes", "max_no_improvement_evals", "reward_threshold"), 1),
        }
        if argument in ("env", "eval_env"):
            if name in self.agents:
                return (BOX, gym.spaces.Discrete(2) if discrete else ACTIONS)
            if name == "FlattenParameterisedAction":
                return ddpg_envs.PlatformEnv()
            return Tiny("rgb_array")
        if name == "check_critic":
            values |= {"states": 1, "actions": 1}
        if name == "load_policy":
            return self.folder / "policy"
        if name == "record":
            values["path"] = self.folder / "film.gif"
        if method == "load":
            values["path"] = self.folder / ("saved" if kind == "DDPG" else "saved-dqn")
        if name in ("FlattenParameterisedAction.action", "FlattenParameterisedAction.flatten"):
            env = ddpg_envs.PlatformEnv()
            return np.zeros(6) if method == "action" else env.action_space.sample()
        if name == "train":
            values |= {"env_id": "tests/Tiny-v0", "progress_bar": False}
        if name in ("DQN", "DQN.load"):
            values["config"] = ddpg.DQNConfig(**SMALL)
        return values[argument]

    @contextlib.contextmanager
    def calling(self, name):
        """Yield a function that calls a callable with arguments, in the session that it needs."""
        kind, _, method = name.rpartition(".")
        with contextlib.ExitStack() as stack:
            if kind in self.networks:
                stack.enter_context(self.graph.as_default())
                stack.enter_context(self.session.as_default())
            elif name in self.networks:
                stack.enter_context(tf.Graph().as_default())
            bound = CALLABLES[name] if not kind or method == "from_json" or method == "load" else None
            yield bound or getattr(self.object(kind), method)


# Passed although they have a default, which would be large, slow or random.
_GIVEN = {("DDPG", "config"), ("DQN", "config"), ("train", "config"), ("train", "total_timesteps"), ("train", "root")}
_GIVEN |= {("check_critic", "states"), ("check_critic", "actions")}
_ALWAYS = ("callbacks", "exact_match")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    gym.register("tests/Tiny-v0", Tiny, kwargs={"patience": 20})
    found = Samples(tmp_path_factory.mktemp("house"))
    yield found
    for agent in found.agents.values():
        agent.close()
    found.session.close()
    del gym.registry["tests/Tiny-v0"]


def is_costly(name, argument):
    """Whether a few values are enough; DQN declares options that DDPG has, too, with the same code."""
    shared = name == "DQNConfig" and argument in arguments_of(ddpg.DDPGConfig)
    return shared or name in COSTLY or name.rpartition(".")[2] in COSTLY


COSTLY_CASES = [case for case in CASES if is_costly(*case)]


def chosen(name, argument):
    """Return the values of the ordinary run: all, or for costly callables every 15th, from a hash of the name on."""
    if not is_costly(name, argument):
        return list(VALUES)
    begin = zlib.crc32(f"{name} {argument}".encode()) % 15
    return list(VALUES)[begin::15]


def check(samples, name, argument, values):
    wrong = {}
    with samples.calling(name) as function:
        usual = samples.usual(name)
        for value in values:
            if value == "class" and argument in OWN_CALLABLES:
                continue
            found = outcome(lambda value=value: function(**usual | {argument: VALUES[value]()}))
            if found is not None:
                wrong[value] = found
    assert not wrong, f"{name} {argument}: {wrong}"


def test_every_public_argument_is_tried(samples):
    assert len(CASES) > 150
    for name in CALLABLES:
        for argument, parameter in arguments_of(CALLABLES[name]).items():
            if parameter.default is MISSING:
                samples.value(name, argument)  # KeyError: add a usual value above


@pytest.mark.parametrize(("name", "argument"), CASES, ids=[" ".join(case) for case in CASES])
def test_hostile_values_give_a_result_or_a_one_line_error(name, argument, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(samples, name, argument, chosen(name, argument))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument"), COSTLY_CASES, ids=map(" ".join, COSTLY_CASES))
def test_all_hostile_values_for_costly_callables(name, argument, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(samples, name, argument, list(VALUES))
