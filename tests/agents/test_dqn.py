"""Q-networks and DQN: TD paths with discrete actions, golden values, and the agent."""

import dataclasses
import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import ELSEWHERE, SHARED_CHANGES, assert_close, assert_golden, relative_difference, without_the_change
from environments import Counting, Pixels, Shown
from refusals import refuses

from ddpg import DQN, CriticNetwork, DQNConfig, QNetwork, UsageError, conv, evaluate, mlp
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.policies.exploration import DiscreteExploration
from ddpg.policies.network_policy import NumpyPolicy, SessionPolicy
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
# Not compiled, unless compilation is tested, and without Adam's slots, a third of the graph.
SMALL = DQNConfig(
    hidden=(8,), batch_size=8, learning_starts=20, updates_per_call=4, buffer_size=100, optimizer="sgd", jit=False
)
# Where any driver will do, this one has the smallest graph.
STEPPED = SMALL.replace(td_target="placeholder", updates_per_call=1)


@pytest.fixture
def box():
    return gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)


def params(agent):
    with agent.session.as_default():
        return agent.q.get_network_params()


def trained(config=SMALL, seed=0, steps=60, env=None):
    return DQN(env or gym.make("CartPole-v1"), config, seed=seed).learn(steps)


@functools.cache
def learned(config=SMALL, rewarding=False):
    """Return the parameters that ``trained`` learns, computed once per configuration."""
    return params(trained(config, env=Counting(20, action_space=gym.spaces.Discrete(3)) if rewarding else None))


# -- golden: three paths of a Q-network with RMSProp and a fixed target ----------------------------------


@pytest.mark.parametrize("path", ["stop_gradient", "placeholder", "output_delta"])
def test_golden_targets(path, golden, box, session, initialize):
    data = golden("dqn_targets")
    network = QNetwork(
        box,
        gym.spaces.Discrete(3),
        network=mlp((8,)),
        td_target=path,
        optimizer=v1.train.RMSPropOptimizer,
        learning_rate=float(data["lr"]),
    )
    initialize()
    network.set_network_params(data.list("init_next"))
    network.sync_target_network()
    network.set_network_params(data.list("init_eval"))
    for t in range(int(data["steps"])):
        states, actions = data[f"{t}/state"], data[f"{t}/action"]
        next_q = network.predict_target(data[f"{t}/next_state"]).max(axis=1, keepdims=True)
        y = data[f"{t}/reward"][:, None] + float(data["gamma"]) * next_q
        expected = "placeholder" if path == "placeholder" else "stop_gradient"
        assert_golden(network.get_gradients(states, actions, y), data.list(f"{expected}/{t}/grads"))
        assert_golden(network.train(states, actions, y), data[f"{expected}/{t}/loss"])


def test_golden_leak(golden, box, session, initialize):
    """The golden file's third path: without the stop, the gradient reaches the target network."""
    data = golden("dqn_targets")
    network = QNetwork(box, gym.spaces.Discrete(3), network=mlp((8,)))
    states, following = (v1.placeholder(tf.float32, [None, 4]) for _ in range(2))
    actions, rewards = v1.placeholder(tf.int32, [None, 1]), v1.placeholder(tf.float32, [None, 1])
    y = rewards + float(data["gamma"]) * tf.reduce_max(network.target(following), axis=1, keepdims=True)
    loss = tf.reduce_mean(tf.square(network.taken(network(states), actions) - y))
    leak = tf.gradients(loss, network.target_variables)
    initialize()
    network.set_network_params(data.list("init_next"))
    network.sync_target_network()
    network.set_network_params(data.list("init_eval"))
    feeds = {
        states: data["0/state"],
        following: data["0/next_state"],
        actions: data["0/action"][:, None],
        rewards: data["0/reward"][:, None],
    }
    assert_golden(session.run(leak, feeds), data.list("leaking/0/target_net_grads"))


def test_placeholder_and_stop_gradient_are_bit_identical(box, session, initialize, rng):
    networks = [
        QNetwork(box, gym.spaces.Discrete(3), network=mlp((8,)), td_target=path)
        for path in ("stop_gradient", "placeholder")
    ]
    initialize()
    networks[1].set_network_params(networks[0].get_network_params())
    inputs = rng.normal(size=(16, 4)), rng.integers(0, 3, 16), rng.normal(size=(16, 1))
    np.testing.assert_equal(*(network.get_gradients(*inputs) for network in networks))


# -- output_delta, on Q-networks and critics ------------------------------------------------------------


def gradient_pair(kind, box, session, initialize, rng, jit, clip, other_loss):
    """Return the gradients of output_delta and of ``other_loss(q, y)`` for one network and minibatch."""
    if kind == "q":
        network = QNetwork(box, gym.spaces.Discrete(3), network=mlp((16,)), td_target="output_delta", clip_delta=clip)
        actions = tf.constant(rng.integers(0, 3, (32, 1)), tf.float32)
    else:
        space = gym.spaces.Box(-1, 1, (2,))
        network = CriticNetwork(box, space, network=mlp((16,)), td_target="output_delta", clip_delta=clip)
        actions = tf.constant(rng.uniform(-1, 1, (32, 2)), tf.float32)
    states, y = tf.constant(rng.normal(size=(32, 4)), tf.float32), tf.constant(3 * rng.normal(size=(32, 1)), tf.float32)

    def both(states, actions, y):
        delta = [gradient for gradient, _ in network.compute_gradients(states, actions, y)]
        q = network.taken(network(states), actions) if kind == "q" else network(states, actions)
        return delta, tf.gradients(other_loss(q, y), network.trainable_variables)

    result = tf.function(both, jit_compile=jit, autograph=False)(states, actions, y)
    initialize()
    return session.run(result)


@pytest.mark.parametrize("jit", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("kind", ["q", "critic"])
def test_unclipped_delta_is_stop_gradient(kind, jit, box, session, initialize, rng):
    def mean_square(q, y):
        return tf.reduce_mean(tf.square(q - y))

    delta, loss = gradient_pair(kind, box, session, initialize, rng, jit, None, mean_square)
    assert relative_difference(delta, loss) < 1e-6


@pytest.mark.parametrize("jit", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("kind", ["q", "critic"])
def test_clipped_delta_is_twice_huber(kind, jit, box, session, initialize, rng):
    def huber(q, y):
        error = tf.abs(q - y)
        return tf.reduce_mean(tf.where(error <= 1.0, 0.5 * tf.square(error), error - 0.5))

    delta, loss = gradient_pair(kind, box, session, initialize, rng, jit, 1.0, huber)
    assert relative_difference(delta, [2 * array for array in loss]) < 1e-6


def test_clip_delta_needs_output_delta(box, graph):
    with refuses(UsageError, "clip_delta=1.0 td_target='output_delta'"):
        QNetwork(box, gym.spaces.Discrete(3), clip_delta=1.0)
    with refuses(UsageError, "clip_delta 0.0"):
        QNetwork(box, gym.spaces.Discrete(3), td_target="output_delta", clip_delta=0.0)


# -- the update -----------------------------------------------------------------------------------------


def test_actions_must_be_integers_of_the_space(box, session, initialize):
    """The first one that is not is named with its index."""
    network = QNetwork(box, gym.spaces.Discrete(3), network=mlp((8,)))
    initialize()
    for actions, message in (
        *(([0, action], f"index 1 {action} 0 2") for action in (3, -1, 0.5)),
        *(([0.9, 1.0], "index 0 0.9"), ([float("nan"), 0], "index 0 nan"), ([0], ""), (["a", "b"], "")),
    ):
        with refuses(UsageError, f"actions expected {message}"):
            network.train(np.ones((2, 4)), actions, np.ones((2, 1)))
    network.train(np.ones((2, 4)), [0.0, 2.0], np.ones((2, 1)))


def batch_of(rng, size=8):
    n = lambda *shape: rng.normal(size=(size, *shape)).astype(np.float32)  # noqa: E731
    actions = rng.integers(0, 3, (size, 1)).astype(np.float32)
    return Batch(n(4), actions, n(1), n(4), (rng.random((size, 1)) < 0.5).astype(np.float32))


@pytest.mark.parametrize("double_q", [False, True])
def test_target_by_hand(double_q, box, session, initialize, rng):
    network = QNetwork(box, gym.spaces.Discrete(3), network=mlp((8,)))
    initialize()
    network.set_network_params([rng.normal(size=array.shape) for array in network.get_network_params()])
    batch = batch_of(rng, 64)
    update = DQNUpdate(network, DQNConfig(gamma=0.5, double_q=double_q))
    y = session.run(update.target(Batch(*map(tf.constant, batch))))
    online, target = network.predict(batch.next_observations), network.predict_target(batch.next_observations)
    chosen = (online if double_q else target).argmax(axis=1)
    expected = batch.rewards[:, 0] + 0.5 * (1 - batch.terminated[:, 0]) * target[np.arange(64), chosen]
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-5)
    assert (online.argmax(axis=1) != target.argmax(axis=1)).any()


def test_residual_gradient_flows_through_the_target(box, session, initialize, rng):
    network = QNetwork(box, gym.spaces.Discrete(3), network=mlp((8,)), td_target="residual_gradient")
    update = DQNUpdate(network, DQNConfig(gamma=0.9))
    batch = Batch(*map(tf.constant, batch_of(rng)))
    y = update.target(batch)
    assert all(gradient is not None for gradient in tf.gradients(y, network.trainable_variables))
    q = network.taken(network(batch.observations), batch.actions)
    residual = network.td_gradients(q, y)
    stopped = tf.gradients(tf.reduce_mean(tf.square(q - tf.stop_gradient(y))), network.trainable_variables)
    full = tf.gradients(tf.reduce_mean(tf.square(q - y)), network.trainable_variables)
    initialize()
    residual, stopped, full = session.run(([gradient for gradient, _ in residual], stopped, full))
    assert relative_difference(residual, full) < 1e-6
    assert relative_difference(residual, stopped) > 0.01


@pytest.mark.parametrize(
    "options",
    [
        {"double_q": True, "target_update_interval": 3, "n_steps": 2},
        pytest.param(
            {"td_target": "residual_gradient", "critic_loss": "huber", "norm": "layer"}, marks=pytest.mark.slow
        ),
        pytest.param({"td_target": "output_delta", "prioritised": "lap"}, marks=pytest.mark.slow),
        pytest.param({"target": "online", "prioritised": "proportional", "norm": "batch"}, marks=pytest.mark.slow),
    ],
)
def test_native_updates_are_those_of_the_graph(options):
    """The maximum of the next values, its place and its gradient, and copies of the network at an interval."""
    agents = [
        trained(SMALL.replace(**options, **driver))
        for driver in ({}, {"jit": True, "compiler": "native", "threads": 1})
    ]
    for agent in agents:
        agent.update(9)
    expected, actual = (agent.get_parameters() for agent in agents)
    assert_close(actual, expected, rtol=1e-4, atol=1e-6)


# -- the agent --------------------------------------------------------------------------------------------


CHANGES = SHARED_CHANGES | {
    "hidden": (9,),
    "learning_rate": 1e-2,
    "td_target": "residual_gradient",
    "double_q": True,
    "target_update_interval": 4,
}


# Covered by tests below.
BY_HAND = {
    "network",
    "q_network",
    "block",
    "critic_loss",
    "max_gradient_norm",
    "adam_beta1",
    "weight_decay",
    "action_mask",
    *("exploration_initial", "exploration_final", "exploration_steps"),
    "weight_projection",
    "affine_projection",
}


# Slow: the code that reads a shared option is shared, and is tested with DDPG; tests by hand show the others.
@pytest.mark.slow
@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(DQNConfig) if f.name not in {*BY_HAND, *ELSEWHERE}]
)
def test_every_option_changes_what_is_learned(field):
    fused = field in ("updates_per_call", "td_target", "clip_delta", "jit")
    base = without_the_change(SMALL if fused else STEPPED, field)
    if field == "double_q":
        base = base.replace(learning_rate=0.1)
    rewarding = field == "rescale_rewards"
    one, other = (learned(config, rewarding) for config in (base, base.replace(**{field: CHANGES[field]})))
    if field == "jit":
        assert relative_difference(other, one) < 1e-3
    else:
        pairs = zip(one, other, strict=False)
        assert not all(np.array_equal(a, b) for a, b in pairs)


def test_rescaled_rewards_by_hand(box):
    """Divided by the largest reward so far, even if it has been overwritten, or by 1 if that is larger."""
    agent = DQN((box, gym.spaces.Discrete(3)), STEPPED.replace(rescale_rewards=True, buffer_size=1), seed=0)
    state = np.ones(4)
    for rewards, scaled in (([-8.0], -8.0), ([0.5], 0.5), ([4.0, 2.0], 0.5)):
        for reward in rewards:
            agent.observe(state, 1, reward, state, True, False)
        with agent.session.as_default():
            q = agent.q.predict(state[None])[0, 1]
        assert agent.update(1)["loss"] == pytest.approx((q - scaled) ** 2, rel=1e-5)


def test_exploration_schedule():
    options = {"exploration_initial": 0.9, "exploration_final": 0.1, "exploration_steps": 100}
    agent = DQN(gym.make("CartPole-v1"), SMALL.replace(**options))
    shares = []
    for agent.num_timesteps in (0, 50, 100, 1000):
        shares.append(agent.exploration)
    np.testing.assert_allclose(shares, [0.9, 0.5, 0.1, 0.1])
    observations = np.zeros((10_000, 4))
    greedy = agent.predict(observations)[0]
    noisy = agent.predict(observations, deterministic=False)[0]
    assert (greedy == greedy[0]).all()
    assert (noisy != greedy).mean() == pytest.approx(0.05, abs=0.01)  # half of the random actions equal the greedy one


def test_random_actions_of_one_environment_are_those_of_a_vector_of_one():
    """A single number is drawn in another way: the same numbers, and the generator is where it was then, too."""
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    behaviour = DiscreteExploration(one, 300, lambda step: 0.0, choices=5)
    drawn = [behaviour.act(lambda observations: None, np.zeros((1, 2)), step)[0] for step in range(300)]
    np.testing.assert_array_equal(drawn, [other.integers(0, 5, (1, 1)) for _ in range(300)])
    assert drawn[0].dtype == np.float32
    assert one.random() == other.random()


def test_periodic_target_is_a_copy_every_interval():
    agent = trained(STEPPED.replace(target_update_interval=6))
    with agent.session.as_default():
        assert agent.num_updates == 40

        def distance_to_target():
            target = agent.session.run([agent.q.target_variables])[0]
            return max(np.abs(a - b).max() for a, b in zip(params(agent), target, strict=True))

        assert distance_to_target() > 0  # 40 = 6·6 + 4
        agent.update(2)
        assert distance_to_target() == 0
        agent.update(1)
        before = agent.session.run(agent.q.target_variables)
        agent.update(4)
        np.testing.assert_equal(agent.session.run(agent.q.target_variables), before)


def test_discrete_start_is_honoured():
    env = Counting(20, action_space=gym.spaces.Discrete(3, start=5))
    agent = trained(STEPPED, env=env)
    assert {int(action) for action in env.actions} == {5, 6, 7}
    assert set(agent.replay.arrays()["actions"].ravel()) == {0.0, 1.0, 2.0}
    assert agent.predict(np.zeros(2))[0] in (5, 6, 7)
    with refuses(UsageError, "action 8"):
        agent.observe(np.zeros(2), 8, 0.0, np.zeros(2), False, False)


@pytest.mark.slow
def test_learns_on_a_vector():
    """Expected values: at the last step 1 for the right action and 0 for the other; a step earlier γ for both."""
    env = gym.vector.SyncVectorEnv([lambda name=name: Shown(name, name, gym.spaces.Discrete(2)) for name in (0, 1)])
    options = {"learning_rate": 1e-2, "tau": 0.05, "gamma": 0.5, "exploration_final": 1.0, "learning_starts": 50}
    config = DQNConfig(hidden=(16,), batch_size=32, updates_per_call=50, jit=False, **options)
    agent = DQN(env, config, seed=0).learn(600)
    with agent.session.as_default():
        q = agent.q.predict(np.array([[0, 1], [1, 1], [0, 0], [1, 0]]))
    np.testing.assert_allclose(q, [[1, 0], [0, 1], [0.5, 0.5], [0.5, 0.5]], atol=0.1)


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (2,)), gym.spaces.MultiBinary(2)])
def test_other_action_spaces(space, box):
    with refuses(UsageError, "Discrete"):
        DQN((box, space))


# -- images -----------------------------------------------------------------------------------------------


def test_images_are_stored_as_bytes_and_acted_on_through_the_session():
    agent = trained(STEPPED.replace(network="conv", hidden=(8, 8)), env=Pixels())
    assert agent.replay.arrays()["observations"].dtype == np.uint8
    assert isinstance(agent.policy, SessionPolicy)
    assert isinstance(DQN(gym.make("CartPole-v1"), STEPPED).policy, NumpyPolicy)
    shapes = [array.shape for array in params(agent)]
    assert shapes[0] == (3, 3, 1, 16)
    assert shapes[2] == (3, 3, 16, 32)


def test_conv_divides_only_images_up_to_255_by_255():
    """Earlier versions also divided float images from 0 to 1, which made them nearly black."""

    def values(high, dtype, pictures, **options):
        config = STEPPED.replace(network="conv", hidden=(8,), **options)
        agent = DQN((gym.spaces.Box(0, high, (6, 6, 1), dtype), gym.spaces.Discrete(3)), config, seed=0)
        with agent.session.as_default():
            return agent.q.predict(pictures)

    pictures = np.random.default_rng(0).integers(0, 256, (4, 6, 6, 1)).astype(np.float32)
    expected = values(255, np.uint8, pictures)
    assert np.ptp(expected, axis=0).min() > 1e-5
    for high, dtype, normalized in ((1, np.float32, False), (255, np.float32, True)):
        found = values(high, dtype, pictures / 255, normalize_observations=normalized)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(values(255, np.float32, pictures), expected, atol=1e-6)
    np.testing.assert_allclose(values(np.inf, np.float32, pictures / 255), expected, atol=1e-6)


@pytest.mark.slow
def test_compiled_and_uncompiled_updates_on_images_agree():
    """Compilation must convert bytes to floats as well; convolutions are not compiled (test_images.py)."""
    config = SMALL.replace(network="mlp", hidden=(8,), batch_size=4, updates_per_call=3)
    expected, actual = (trained(config.replace(jit=jit), env=Pixels()).get_parameters() for jit in (False, True))
    assert_close(actual, expected, rtol=0, atol=1e-6)


def test_conv_needs_images(box, graph):
    with refuses(UsageError, "conv layers"):
        QNetwork(box, gym.spaces.Discrete(2), network=conv())
    with refuses(UsageError, "filters="):
        conv(filters=((16, 0, 1),))


@pytest.mark.slow
def test_dqn_learns_from_pixels():
    """Catch a falling pixel: a random policy catches a third. Learns in seconds on a CPU."""
    env = Pixels()
    config = DQNConfig(
        network="conv",
        hidden=(32,),
        batch_size=32,
        learning_starts=200,
        gamma=0.9,
        exploration_steps=2_000,
        buffer_size=5_000,
        jit=False,
    )
    agent = DQN(env, config, seed=0)
    before = evaluate(agent, env, 100, seed=1).returns.mean()
    agent.learn(3_000)
    after = evaluate(agent, env, 100, seed=1).returns.mean()
    assert before < 0.6
    assert after > 0.9
