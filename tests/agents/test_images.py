"""Image observations like Atari's and CarRacing's: training on stacked frames, and a replay memory that fits."""

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import PATHS
from conftest import assert_close
from environments import Screen
from gymnasium.wrappers import DtypeObservation
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, conv, evaluate
from ddpg.agents import resource_limits
from ddpg.checkpoints import memory_limit
from ddpg.cli.train import Train
from ddpg.config.algorithm_options import NORMS
from ddpg.config.options import from_toml
from ddpg.config.presets import RECIPES, read_recipe
from ddpg.exports.export import FORMATS
from ddpg.learners import native
from ddpg.learners.graph import UncompiledLearner, XLALearner
from ddpg.learners.native import NativeLearner
from ddpg.policies import network_policy
from ddpg.policies.network_policy import CompiledPolicy, SessionPolicy

GB = 1_000_000_000


@pytest.fixture(autouse=True, scope="module")
def environments():
    gym.register("Screen-v0", Screen, kwargs={"shape": (210, 160, 3)})
    gym.register("Racing-v0", Screen, kwargs={"shape": (96, 96, 3), "discrete": False})
    gym.register("Tiny-v0", Screen, kwargs={"shape": (6, 6, 3)})


@pytest.mark.parametrize(
    ("jit", "compiler", "learner", "updates_per_call"),
    [
        pytest.param(True, "auto", NativeLearner, 2, marks=pytest.mark.slow),
        pytest.param(True, "xla", XLALearner, 2, marks=pytest.mark.slow),
        (False, "auto", UncompiledLearner, 2),
    ],
)
def test_stacked_frames_train(jit, compiler, learner, updates_per_call):
    env = gym.wrappers.FrameStackObservation(Screen((12, 12)), 4)
    config = DQNConfig(
        network="conv",
        hidden=(4,),
        batch_size=2,
        buffer_size=50,
        learning_starts=4,
        updates_per_call=2,
        optimizer="sgd",
        jit=jit,
        compiler=compiler,
    )
    agent = DQN(env, config, seed=0)
    agent.learn(8)
    assert agent.num_updates == 4
    assert type(agent.updater.learner) is learner
    assert agent.updater.learner.updates_per_call == updates_per_call
    assert env.action_space.contains(agent.predict(env.reset()[0])[0])


@pytest.mark.slow
def test_a_custom_network_that_no_compiler_supports_runs_op_by_op():
    """XLA's loops for the gradients of convolutions took 56 times as long as TensorFlow's kernels on a CPU."""

    def pooled(states, actions=None):
        layer = tf.nn.max_pool2d(tf.cast(states, tf.float32), 2, 2, "SAME")
        return convolved(layer) if actions is None else convolved(layer, actions)

    convolved = conv(((4, 3, 2),), dense=(4,))
    env = Screen((12, 12, 3), discrete=False)
    config = DDPGConfig(batch_size=2, buffer_size=50, learning_starts=4, updates_per_call=2)
    agent = DDPG(env, config, seed=0, actor_network=pooled, critic_network=pooled)
    agent.learn(6)
    assert agent.num_updates == 2
    images = np.random.default_rng(0).integers(0, 256, (2, 12, 12, 3)).astype(np.float32)
    np.testing.assert_array_equal(agent.policy(images), agent.policy._other(images))
    assert type(agent.updater.learner) is UncompiledLearner
    assert agent.updater.learner.updates_per_call == 1
    with refuses(UsageError, "MaxPool"):
        DDPG(env, config.replace(compiler="native"), seed=0, actor_network=pooled, critic_network=pooled).learn(6)


@pytest.mark.parametrize("norm", [None, *(pytest.param(norm, marks=pytest.mark.slow) for norm in NORMS)])
def test_compiled_updates_on_images_are_those_of_a_session(norm):
    config = DDPGConfig(network="conv", hidden=(4,), norm=norm, batch_size=3, buffer_size=50, learning_starts=8)
    config = config.replace(updates_per_call=1, compiler="native", optimizer="sgd", actor_learning_rate=0.1)
    agents = [
        DDPG(Screen((8, 7), discrete=False), each, seed=0)
        for each in (config, config.replace(jit=False, compiler="auto"))
    ]
    before = agents[0].get_parameters()
    for agent in agents:
        agent.learn(11)
        assert agent.num_updates == 3
    assert_close(agents[0].get_parameters(), agents[1].get_parameters(), rtol=1e-4, atol=1e-5)
    after = agents[0].get_parameters()
    assert any(value.ndim == 4 and (value != before[name]).any() for name, value in after.items())


@pytest.mark.parametrize("kind", ["ddpg", pytest.param("dqn", marks=pytest.mark.slow)])
def test_compiled_acting_is_a_sessions(kind, monkeypatch):
    """On batches of one to three observations, of which two sizes are compiled, with the weights of the moment."""
    monkeypatch.setattr(network_policy, "MOST_SIZES", 2)
    options = {"network": "conv", "hidden": (4,), "batch_size": 2, "buffer_size": 50, "learning_starts": 6}
    options |= {"updates_per_call": 1, "normalize_observations": True}
    small = Screen((8, 7), discrete=kind == "dqn")
    small.observation_space = gym.spaces.Box(0.0, 255.0, (8, 7), np.float32)  # bytes are not normalised
    agent = DQN(small, DQNConfig(**options), seed=0) if kind == "dqn" else DDPG(small, DDPGConfig(**options), seed=0)
    policy, images = agent.policy, np.random.default_rng(0).integers(0, 256, (5, 8, 7)).astype(np.float32)
    first = policy(images[:1])
    agent.learn(12)
    for count in range(1, 4):
        np.testing.assert_allclose(policy(images[:count]), policy._other(images[:count]), rtol=1e-5, atol=1e-6)
    assert sorted(policy._compiled) == [1, 2]
    learned = policy(images[:1])
    assert (learned != first).any()
    agent.set_parameters({name: np.zeros_like(value) for name, value in agent.get_parameters().items()})
    np.testing.assert_array_equal(policy(images[:1]), np.zeros_like(learned))


def test_acting_runs_in_the_session_where_nothing_is_compiled():
    agents = [
        DDPG(Screen((8, 7), discrete=False), DDPGConfig(network="conv", jit=jit), seed=0) for jit in (True, False)
    ]
    assert [type(agent.policy) for agent in agents] == [CompiledPolicy, SessionPolicy]


def test_few_minibatches_of_images_are_one_call(monkeypatch):
    """Two images of 8 · 7 numbers in each of 3 transitions: 336 numbers a minibatch, kept below the limit."""
    floats = DtypeObservation(Screen((8, 7)), np.float32)
    for env, network in ((Screen((8, 7)), "mlp"), (floats, "conv")):
        update = DQN(env, DQNConfig(network=network, hidden=(4,), target="online"), seed=0).updater._update
        for limit, expected in ((2**24, 8), (336 * 5, 5), (1, 1)):
            monkeypatch.setattr(native, "LARGEST_CALL", limit)
            assert native._minibatches_per_call(update, 3, 8) == expected


def test_padding_is_zeros_around_images_or_none():
    """Filters of 3 x 3 with stride 2 on 8 x 7 pixels: 4 x 4 positions with zeros, 3 x 3 without."""
    for padding, positions in (("same", 16), ("valid", 9)):
        agent = DQN(Screen((8, 7)), seed=0, q_network=conv(((2, 3, 2),), dense=(4,), padding=padding))
        assert (2 * positions, 4) in [value.shape for value in agent.get_parameters().values()]
    with refuses(UsageError, "padding='full' same valid"):
        conv(padding="full")


class Pointing(gym.Env):
    """A bright column; the action is to point at it, from -1 at the left to 1 at the right. Episodes of one step."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._column = int(self.np_random.integers(8))
        return self._image(), {}

    def step(self, action):
        return self._image(), -abs(float(action[0]) - (self._column / 3.5 - 1)), True, False, {}

    def _image(self):
        image = np.zeros((8, 8), np.uint8)
        image[:, self._column] = 255
        return image


@pytest.mark.parametrize(
    "recipe", [name if name == "ddpg" else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_every_recipe_reads_images(recipe):
    """Both networks get two convolutions, which learn; the critics' dense layers have their own units."""
    small = {
        "hidden": (4,),
        "critic_hidden": (5,),
        "batch_size": 2,
        "buffer_size": 50,
        "learning_starts": 8,
        "updates_per_call": 1,
    }
    fitting = {"network": "conv", "action_layer": 0, "normalize_observations": False, "updates_per_step": 1.0}
    fitting |= {"jit": recipe != "ddpg"}  # compiled in the other tests
    agent = DDPG(
        Screen((8, 8), discrete=False),
        DDPGConfig(**from_toml(DDPGConfig, read_recipe(recipe), recipe) | small | fitting),
        seed=0,
    )
    before = agent.get_parameters()
    agent.learn(12)  # four updates, one of a delayed actor
    assert type(agent.updater.learner) is (NativeLearner if recipe != "ddpg" else UncompiledLearner)
    after = agent.get_parameters()
    for network, units in (("actor", 4), ("critic", 5)):
        kernels = {name: value for name, value in before.items() if name.startswith(network) and value.ndim == 4}
        trained = [name for name, value in kernels.items() if (after[name] != value).any()]
        assert [kernels[name].shape for name in trained][:2] == [(3, 3, 1, 16), (3, 3, 16, 32)]
        assert any(value.ndim == 2 and value.shape[1] == units for name, value in before.items() if network in name)


@pytest.mark.slow
@pytest.mark.parametrize(("option", "path"), PATHS, ids=lambda value: str(value))
def test_every_gradient_path_learns_from_images(option, path, tmp_path):
    """All learners make the same updates, and a loaded agent acts as the saved one."""
    base = {"network": "conv", "hidden": (4,), "batch_size": 2, "buffer_size": 50, "learning_starts": 8}
    config = DDPGConfig(**base, **{option: path}, updates_per_call=1, jit=False)
    compiled = [] if path == "placeholder" else [config.replace(jit=True, compiler=name) for name in ("native", "xla")]
    agents = [DDPG(Screen((8, 8), discrete=False), each, seed=0) for each in (config, *compiled)]
    for agent in agents:
        agent.learn(12)
        assert agent.num_updates == 4
    for agent in agents[1:]:
        assert_close(agent.get_parameters(), agents[0].get_parameters(), atol=1e-5)
    agents[0].save(tmp_path / "saved")
    image = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    loaded = DDPG.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(image)[0], agents[0].predict(image)[0])


def test_policies_on_images_are_read_back_without_tensorflow(tmp_path):
    """Also portable ones. tests/exports/test_every_policy.py compares all formats of policies on images."""
    agent = DDPG(Screen((2, 8, 7), discrete=False), DDPGConfig(network="conv", hidden=(4,), jit=False), seed=0)
    path = agent.export(tmp_path / "policy")
    images = np.random.default_rng(0).integers(0, 256, (20, 2, 8, 7), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    script = f"""if 1:
        import sys, numpy as np
        sys.path.insert(0, {str(path)!r})
        import act, ddpg
        images = np.load({str(tmp_path / "images.npy")!r})
        np.save({str(tmp_path / "alone.npy")!r}, act.load()(images))
        for portable in (False, True):
            actions = ddpg.load_policy({str(path)!r}, portable=portable).predict(images)[0]
            np.testing.assert_allclose(actions, act.load()(images), atol=1e-6)
        assert "tensorflow" not in sys.modules
        """
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "alone.npy"), agent.predict(images)[0], atol=1e-5)


def test_an_agent_learns_from_shifted_images_and_a_resumed_one_continues_with_the_same_bits(tmp_path):
    """Episodes of five steps; the agent is saved at the end of one, between two calls of updates."""
    small = {"hidden": (4,), "batch_size": 2, "buffer_size": 50, "learning_starts": 4, "updates_per_call": 2}
    config = DQNConfig(**small, random_shift=2, optimizer="sgd", target="online", jit=False)
    one = DQN(Screen((6, 6)), config, seed=0).learn(10)
    drawn, rows = one.memory.sampler.sample(np.random.default_rng(0), 1, 8, 1.0)
    assert (drawn.observations != one.replay.gather(rows).observations).any()
    loaded = DQN.load(one.save(tmp_path / "saved"), Screen((6, 6)))
    for agent in (one, loaded):
        agent.learn(5)
    assert loaded.num_updates == one.num_updates > 6
    np.testing.assert_equal(loaded.get_parameters(), one.get_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"n_steps": 3}, {"prioritised": "proportional", "target": "ema"}], ids=str)
def test_all_learners_get_the_same_shifted_images(options):
    """In calls of one, two and four minibatches; but priorities are new only after a call, so then in calls of one."""
    most = 1 if "prioritised" in options else 4
    base = {"network": "conv", "hidden": (4,), "batch_size": 3, "buffer_size": 50, "learning_starts": 8}
    config = DDPGConfig(**base, **options, random_shift=2, optimizer="sgd", actor_learning_rate=0.1, jit=False)
    agents = [
        DDPG(Screen((8, 7), discrete=False), config.replace(**driver), seed=0)
        for driver in (
            {"updates_per_call": most},
            {"updates_per_call": 1, "td_target": "placeholder"},
            {"updates_per_call": min(2, most), "jit": True, "compiler": "native"},
            {"updates_per_call": most, "jit": True, "compiler": "xla"},
        )
    ]
    for agent in agents:
        agent.learn(8)
        agent.update(4)
    plain = DDPG(Screen((8, 7), discrete=False), agents[0].config.replace(random_shift=0), seed=0).learn(8)
    plain.update(4)
    weights = agents[0].get_parameters()
    assert any((value != weights[name]).any() for name, value in plain.get_parameters().items())
    for agent in agents[1:]:
        assert agent.generators["replay"].bit_generator.state == agents[0].generators["replay"].bit_generator.state
        assert_close(agent.get_parameters(), agents[0].get_parameters(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"random_shift": 1},
        {"n_critics": 2, "policy_delay": 2, "actor_average": 3, "norm": "layer"},
        {"norm": "batch", "target": "online", "policy_gradient": "direct"},
        {"target": "none", "critic_norm": "renorm", "n_critics": 2, "td_target": "stop_gradient"},
    ],
    ids=str,
)
def test_an_actor_on_the_critics_convolutions_with_every_learner_checkpoint_and_export(options, tmp_path):
    base = {"network": "conv", "hidden": (4,), "batch_size": 3, "buffer_size": 50, "learning_starts": 8}
    config = DDPGConfig(**base, **options, shared_encoder=True, optimizer="sgd", actor_learning_rate=0.1, jit=False)
    drivers = {"jit": True, "compiler": "native"}, {"jit": True, "compiler": "xla"}, {"td_target": "placeholder"}
    agents = [
        DDPG(Screen((8, 7), discrete=False), config.replace(**{"updates_per_call": 1} | driver), seed=0)
        for driver in ({}, *drivers)
    ]
    before = agents[0].get_parameters()
    for agent in agents:
        agent.learn(8)
        agent.update(4)
    weights = agents[0].get_parameters()
    kernels = {name for name, value in weights.items() if value.ndim == 4}
    assert not any("actor" in name for name in kernels)
    assert all((weights[name] != before[name]).any() for name in weights if name.endswith("/W:0"))
    for agent in agents[1:]:
        assert_close(agent.get_parameters(), weights, rtol=1e-4, atol=1e-5)
    image = np.random.default_rng(0).integers(0, 256, (8, 7), dtype=np.uint8)
    native = agents[1]
    loaded = DDPG.load(native.save(tmp_path / "saved"), Screen((8, 7), discrete=False))
    np.testing.assert_array_equal(loaded.predict(image)[0], native.predict(image)[0])
    for agent in (native, loaded):
        agent.update(3)
    np.testing.assert_equal(loaded.get_parameters(), native.get_parameters())
    np.testing.assert_allclose(  # by compiled code, whose copy of the encoder is that of the last update
        native.policy(image[None].astype(np.float32)),
        native.policy._other(image[None].astype(np.float32)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert native.export(tmp_path / "policy", format="savedmodel").exists()  # compared with the agent


@pytest.mark.slow
def test_ddpg_learns_from_pixels():
    """Guessing the middle is off by 0.57 on average."""
    env = Pointing()
    config = DDPGConfig(network="conv", hidden=(32,), batch_size=32, learning_starts=200, buffer_size=5_000)
    agent = DDPG(env, config, seed=0)
    before = evaluate(agent, env, 100, seed=1).returns.mean()
    agent.learn(3_000)
    after = evaluate(agent, env, 100, seed=1).returns.mean()
    assert before < -0.4
    assert after > -0.15


def test_actions_enter_after_the_convolutions():
    with refuses(UsageError, "action_layer=1 'conv' 0"):
        DDPGConfig(network="conv", action_layer=1)


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((12, 12), 1), ((12, 12, 3), 3), ((4, 12, 12), 4), ((4, 12, 16), 4), ((4, 12, 12, 3), 12), ((3, 16, 12), 3)],
)
def test_stacked_frames_are_channels(shape, kernel):
    with tf.Graph().as_default():
        network = conv(((5, 3, 2),), dense=(4,))
        network(tf.compat.v1.placeholder(tf.float32, [None, *shape]))
        (weights,) = (v for v in tf.compat.v1.trainable_variables() if v.shape.rank == 4)
        assert tuple(weights.shape) == (3, 3, kernel, 5)


def test_channels_keep_the_order_of_stacked_frames():
    pictures = np.random.default_rng(0).normal(size=(2, 3, 4, 5, 2)).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        from ddpg.networks.layers import _images

        found = session.run(_images(tf.constant(pictures)))
        single = session.run(_images(tf.constant(pictures[..., 0])))
    np.testing.assert_array_equal(found[0, 1, 2], pictures[0, :, 1, 2].ravel())
    np.testing.assert_array_equal(single[1, 3, 4], pictures[1, :, 3, 4, 0])


def test_the_default_buffer_size_fits_into_memory(tmp_path, monkeypatch, capsys):
    """A transition of Racing takes 96 x 96 x 3 bytes and five numbers; half of 10 GB holds 180,714 of them."""
    monkeypatch.setattr(memory_limit, "memory_limit", lambda: 10 * GB)
    (tmp_path / "options.toml").write_text("buffer_size = 1234")
    for words, size in (
        (["Racing-v0"], 180_714),
        (["Racing-v0", "--recipe", "ddpg"], 180_714),
        (["Racing-v0", "--buffer-size", "500"], 500),
        (["Racing-v0", "--config", str(tmp_path / "options.toml")], 1_234),
        (["Tiny-v0"], 1_000_000),
    ):
        assert Train.parse(words, "ddpg train").args[0].buffer_size == size
        err = capsys.readouterr().err
        assert err.count("\n") == (size == 180_714)
        assert ("--buffer-size 180714" in err) == (size == 180_714)


def test_a_failed_allocation_is_a_one_line_error_with_the_largest_size(monkeypatch):
    monkeypatch.setattr(resource_limits, "REPLAY", 1 << 62)  # so that the allocation fails
    env = Screen((96, 96, 3), discrete=False)
    with refuses(UsageError, "buffer_size=1000000000 --buffer-size") as caught:
        DDPG(env, DDPGConfig(buffer_size=10**9), seed=0)
    fits = resource_limits.fitting_buffer(env.observation_space, env.action_space)
    assert str(caught.value).endswith(f"--buffer-size {fits}")
    assert "capacity" not in str(caught.value)


@pytest.mark.parametrize(
    "format", [pytest.param(name, marks=[pytest.mark.slow] * (name != "numpy")) for name in FORMATS]
)
def test_images_beside_numbers_learn_and_are_exported_as_the_documentation_says(format, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "images.md").read_text(encoding="utf-8")
    reach: dict = {}
    exec(page.partition("```python\n# reach.py")[2].partition("```")[0], reach)
    env = gym.wrappers.FlattenObservation(gym.make("Reach-v0"))
    np.testing.assert_array_equal(env.reset(seed=0)[0][:256].reshape(16, 16, 1), env.unwrapped.observe()["camera"])
    config = DDPGConfig(batch_size=4, learning_starts=20, actor_learning_rate=0.01, updates_per_call=2)
    agent = DDPG(env, config, seed=0, actor_network=reach["network"], critic_network=reach["network"])
    before = agent.get_parameters()
    agent.learn(24)
    assert type(agent.updater.learner) is NativeLearner
    assert all((value != before[name]).any() for name, value in agent.get_parameters().items())
    agent.export(tmp_path / "policy", format)  # refused if it does not act as the agent does
