"""Wrappers by name and arguments: each of them, in training, in evaluations and in resumed runs."""

import dataclasses
import importlib

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Shaped
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from ddpg import DDPG, DDPGConfig, DQNConfig, UsageError, resume, train
from ddpg.agents.off_policy import load_agent
from ddpg.cli.main import main
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg.runs.env_source import EnvSource
from ddpg.runs.environment_notes import image_note
from ddpg.runs.episode_limits import episode_limit
from ddpg.runs.tables import read_table
from ddpg.runs.wrappers import WRAPPERS, check_wrappers, wrapped

SMALL = TINY | {"learning_starts": 4, "buffer_size": 1000}
BRIEF = {"evaluation_interval": 20, "evaluation_episodes": 1, "seed": 1, "progress_bar": False}


class Signs(gym.Env):
    """Four signs that depend on the last action, as a Dict, an image or numbers; each is worth 1; ten steps."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, kind="numbers", discrete=False):
        numbers = gym.spaces.Box(-1.0, 4.0, (4,), np.float32)
        self.observation_space = {
            "numbers": numbers,
            "dict": gym.spaces.Dict(signs=numbers, noise=gym.spaces.Box(0.0, 1.0, (2,), np.float32)),
            "image": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "mask": gym.spaces.Dict(action_mask=gym.spaces.MultiBinary(3)),
        }[kind]
        self.action_space = gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._kind = kind

    def _observation(self, action=0.0):
        signs = np.float32([1, self._steps % 3, float(action), self.np_random.integers(0, 3)])
        if self._kind == "image":
            return np.broadcast_to(signs[:3].astype(np.uint8) * 40, (8, 8, 3)).copy()
        return signs if self._kind == "numbers" else {"signs": signs, "noise": np.float32(self.np_random.random(2))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {"action_mask": np.ones(3, np.int8)}

    def step(self, action):
        self._steps += 1
        info = {"action_mask": np.int8([1, self._steps % 2, 1])}
        return self._observation(np.sum(action)), 1.0, False, self._steps == 10, info


for _kind in ("numbers", "dict", "image", "mask"):
    for _name, _discrete in (("", False), ("Chosen", True)):
        _id = f"wrapped/{_kind.title()}{_name}-v0"
        gym.register(_id, Signs, kwargs={"kind": _kind, "discrete": _discrete}, max_episode_steps=10)

NEEDS = {"ResizeObservation": "cv2", "AtariPreprocessing": "ale_py"}  # imported, and parts of the extra 'atari'
# For every wrapper: an environment, the wrapper, and what it makes of the observation space or of an episode's length.
EXAMPLES = {
    "FlattenObservation": ("wrapped/Dict-v0", "FlattenObservation", (6,), 10),
    "TimeAwareObservation": ("wrapped/Numbers-v0", "TimeAwareObservation(normalize_time=true)", (5,), 10),
    "FilterObservation": ("wrapped/Dict-v0", "FilterObservation(['signs'])", (4,), 10),
    "ReshapeObservation": ("wrapped/Numbers-v0", "ReshapeObservation(shape=[2, 2])", (2, 2), 10),
    "RescaleObservation": ("wrapped/Numbers-v0", "RescaleObservation(-1.0, 1.0)", (4,), 10),
    "DelayObservation": ("wrapped/Numbers-v0", "DelayObservation(delay=2)", (4,), 10),
    "FrameStackObservation": ("wrapped/Numbers-v0", "FrameStackObservation(3, padding_type='zero')", (3, 4), 10),
    "GrayscaleObservation": ("wrapped/ImageChosen-v0", "GrayscaleObservation(keep_dim=True)", (8, 8, 1), 10),
    "ResizeObservation": ("wrapped/ImageChosen-v0", "ResizeObservation(shape=(4, 4))", (4, 4, 3), 10),
    "MaxAndSkipObservation": ("wrapped/Numbers-v0", "MaxAndSkipObservation(skip=2)", (4,), 5),
    "RepeatAction": ("wrapped/Numbers-v0", "RepeatAction(2)", (4,), 5),
    "StickyAction": ("wrapped/Numbers-v0", "StickyAction(repeat_action_probability=0.9)", (4,), 10),
    "DiscretizeAction": ("wrapped/Numbers-v0", "DiscretizeAction(bins=5)", (4,), 10),
    "AtariPreprocessing": ("ale_py:ALE/Pong-v5", "AtariPreprocessing(screen_size=21, noop_max=2)", (21, 21), 6),
    "ActionMask": ("wrapped/NumbersChosen-v0", "ActionMask", (7,), 10),
}
ATARI = {"frameskip": 1, "max_episode_steps": 24, "repeat_action_probability": 0.0}


def example(name):
    if name in NEEDS:
        pytest.importorskip("cv2")
        pytest.importorskip(NEEDS[name])
    elif name not in ("ActionMask",) and not hasattr(gym.wrappers, name):
        pytest.skip(f"gymnasium {gym.__version__} has no {name}")
    env_id, text, shape, length = EXAMPLES[name]
    return env_id, text, shape, length, ATARI if name == "AtariPreprocessing" else {}


def episode(env):
    env.reset(seed=3)
    env.action_space.seed(3)
    observations, done = [env.reset(seed=4)[0]], False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append([observation, reward] if np.isscalar(observation) else observation)
        done = terminated or truncated
    return observations


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_wrapper_changes_an_environment(name):
    env_id, text, shape, length, kwargs = example(name)
    env, plain = make_env(EnvSource(env_id, [text], kwargs)), make_env(EnvSource(env_id, (), kwargs))
    assert env.observation_space.shape == shape
    first, again, without = episode(env), episode(env), episode(plain)
    np.testing.assert_array_equal(first, again)
    # A Dict is flattened without the wrapper, too.
    assert len(first) == length + 1
    same = len(first) == len(without) and np.array_equal(first, without)
    assert same == (name == "FlattenObservation") or name == "DiscretizeAction"
    assert isinstance(env.action_space, gym.spaces.Discrete) == (
        name == "DiscretizeAction" or isinstance(plain.action_space, gym.spaces.Discrete)
    )


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("FrameStackObservation", "AtariPreprocessing") else pytest.param(name, marks=pytest.mark.slow)
        for name in WRAPPERS
    ],
)
def test_runs_with_every_wrapper_are_resumed_exactly(name, tmp_path):
    env_id, text, _shape, length, kwargs = example(name)
    env = make_env(EnvSource(env_id, [text], kwargs))
    config = (DQNConfig if isinstance(env.action_space, gym.spaces.Discrete) else DDPGConfig)(**SMALL)
    given = {"wrappers": [text], "env_kwargs": kwargs, **BRIEF}
    # Runs end with an episode, so that resuming is exact.
    whole = train(env_id, config, root=tmp_path / "whole", total_timesteps=4 * length, **given)
    parts = train(env_id, config, root=tmp_path / "parts", total_timesteps=2 * length, **given)
    document = run_directory.read_config(parts)
    assert document["wrappers"] == [text]
    assert document["episode_limit"] == length
    resume(parts, total_timesteps=4 * length, progress_bar=False, allow_import=["ale_py"])
    first, second = (read_table(run / "episodes.csv") for run in (whole, parts))
    assert [row["return"] for row in first] == [row["return"] for row in second]
    assert {int(row["length"]) for row in first} == {length}
    agents = [load_agent(run) for run in (whole, parts)]
    observations = [env.reset(seed=seed)[0] for seed in range(5)]
    np.testing.assert_array_equal(*([agent.predict(one)[0] for one in observations] for agent in agents))


def test_the_examples_are_those_of_the_registry():
    assert [*EXAMPLES] == [*WRAPPERS]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FrameStack", "'FrameStack' 'FrameStackObservation'?"),
        ("NormalizeObservation", "'NormalizeObservation' --normalize-observations"),
        ("ClipReward(-1, 1)", "'ClipReward' --normalize-rewards"),
        ("TimeLimit(max_episode_steps=5)", "'TimeLimit' max_episode_steps"),
        ("FrameStackObservation", "stack_size"),
        ("FrameStackObservation(4, frames=2)", "frames stack_size"),
        ("FlattenObservation(4)", "positional"),
        ("FrameStackObservation('4')", "str"),
        ("FrameStackObservation(stack_size=print(4))", "print(4) numbers"),
        ("FrameStackObservation(*[4])", "NAME("),
        ("FrameStackObservation(**{'stack_size': 4})", "NAME("),
        ("gymnasium.wrappers.FrameStackObservation(4)", "NAME("),
        ("(lambda: 4)()", "NAME("),
        ("FrameStackObservation(4", "NAME("),
        ("ReshapeObservation(" + "(" * 300 + ")" * 300 + ")", "400"),
        ("ReshapeObservation(" + "-" * 300 + "1)", "NAME("),
        ("", "NAME("),
        ("4", "NAME("),
        ("\0", "NAME("),
    ],
)
def test_other_wrappers_and_arguments_are_refused(text, words):
    with refuses(UsageError, words):
        make_env(EnvSource("wrapped/Numbers-v0", [text]))


@given(st.text() | st.from_regex(r"\A(Frame|Flatten|Delay)\w{0,12}\([^)]{0,20}\)\Z"))
def test_no_text_causes_anything_but_a_wrapper_or_a_refusal(text):
    try:
        check_wrappers([text])
    except UsageError:
        return
    assert text.strip().partition("(")[0].strip() in WRAPPERS


def test_the_first_wrapper_is_the_innermost():
    stacked = wrapped(Signs("image"), ["GrayscaleObservation", "FrameStackObservation(2)"])
    assert stacked.observation_space.shape == (2, 8, 8)
    with refuses(UsageError, "GrayscaleObservation"):
        wrapped(Signs("image"), ["FrameStackObservation(2)", "GrayscaleObservation"])


@pytest.mark.parametrize(
    ("env_id", "texts", "words"),
    [
        ("wrapped/Image-v0", ["RescaleObservation(0, 1)"], "RescaleObservation uint8 conv"),
        ("wrapped/NumbersChosen-v0", ["ActionMask", "DelayObservation(2)"], "DelayObservation ActionMask"),
        ("wrapped/MaskChosen-v0", [], "nothing besides 'action_mask'"),
    ],
)
def test_wrappers_that_would_spoil_observations_are_refused_and_the_environment_closed(
    env_id, texts, words, monkeypatch
):
    closed = []
    monkeypatch.setattr(Signs, "close", lambda self: closed.append(self))
    with refuses(UsageError, words):
        make_env(EnvSource(env_id, texts))
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("texts", "kwargs", "limit"),
    [
        ([], {}, 999),
        (["MaxAndSkipObservation"], {}, 250),
        (["MaxAndSkipObservation(3)", "FrameStackObservation(2)", "MaxAndSkipObservation(skip=2)"], {}, 167),
        (["MaxAndSkipObservation"], {"max_episode_steps": 10}, 3),
        (["MaxAndSkipObservation"], {"max_episode_steps": -1}, None),
        (["AtariPreprocessing"], {}, 250),
        (["DelayObservation(2)"], {}, 999),
    ],
)
def test_time_limits_count_the_agents_steps(texts, kwargs, limit):
    name = "MountainCarContinuous-v0"
    assert episode_limit(EnvSource(name, texts, kwargs)) == limit
    if "AtariPreprocessing" not in texts and limit is not None:
        env = make_env(EnvSource(name, texts, kwargs))
        agent = DDPG(env, DDPGConfig(**SMALL, gamma=None), seed=0)
        assert agent.config.gamma == min(max(1 - 5 / limit, 0.95), 0.995)
        env.reset(seed=0)
        assert [env.step(np.float32([0]))[3] for _ in range(limit)] == [False] * (limit - 1) + [True]


def test_registered_wrappers_count_too():
    repeated = gym.wrappers.MaxAndSkipObservation(gym.make("MountainCarContinuous-v0"), skip=2)
    spec = dataclasses.replace(repeated.spec, id="wrapped/Repeated-v0")
    gym.register(**{name: getattr(spec, name) for name in ("id", "entry_point", "max_episode_steps")})
    gym.registry["wrapped/Repeated-v0"].additional_wrappers = spec.additional_wrappers
    assert episode_limit(EnvSource("wrapped/Repeated-v0", ["MaxAndSkipObservation(5)"])) == 100


def test_what_opencv_lacks_is_said(monkeypatch):
    module = importlib.import_module("gymnasium.wrappers.transform_observation")
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    assert module.ResizeObservation is gym.wrappers.ResizeObservation
    with refuses(UsageError, "opencv [atari]"):
        make_env(EnvSource("wrapped/Image-v0", ["ResizeObservation((4, 4))"]))


def test_a_second_wrapper_needs_a_second_flag(capsys):
    assert main(["train", "wrapped/Numbers-v0", "--wrap", "FlattenObservation", "FrameStackObservation(2)"]) == 2
    assert "--wrap 'FrameStackObservation(2)'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("space", "config", "words"),
    [
        (gym.spaces.Box(0, 255, (96, 96, 3), np.uint8), DDPGConfig(), "96x96x3 27,648 7,077,888 256 --network conv"),
        (gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), DQNConfig(hidden=(10,)), "28,224 282,240 conv"),
        (gym.spaces.Box(0, 255, (96, 96, 3), np.uint8), DQNConfig(network="conv"), None),
        (gym.spaces.Box(0, 255, (96, 96, 3), np.uint8), DDPGConfig(network="conv"), None),
        (gym.spaces.Box(0, 255, (128,), np.uint8), DQNConfig(), None),
        (gym.spaces.Box(0, 1, (8, 8), np.float32), DQNConfig(), None),
    ],
)
def test_images_for_dense_layers_are_named(space, config, words):
    note = image_note(Shaped(space, gym.spaces.Discrete(2)), config)
    assert all(word in note for word in words.split()) if words else note == ""


@pytest.mark.parametrize("vector", [False, True])
def test_images_in_a_flattened_dict_are_named(vector):
    camera = gym.spaces.Dict(front=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8))
    parts = {"camera": camera, "depth": gym.spaces.Box(0, 1, (8, 8), np.float32)}
    plain = Shaped(gym.spaces.Dict(parts), gym.spaces.Discrete(2))
    env = gym.wrappers.FlattenObservation(plain)
    note = image_note(gym.vector.SyncVectorEnv([lambda: env] * 2) if vector else env, DDPGConfig(hidden=(10,)))
    assert all(word in note for word in ("camera.front (8x8x3)", " 192 ", " 1,920 "))
    without = gym.wrappers.FilterObservation(plain, ["depth"])
    assert image_note(gym.wrappers.FlattenObservation(without), DDPGConfig()) == ""
