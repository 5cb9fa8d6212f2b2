"""TD3 against an implementation in NumPy; each of its options by hand; and that plain DDPG is unaffected."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from driven import SEED, Driven, K, difference, minibatches
from numpy_td3 import TD3, normal, threefry
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.algorithms import random_numbers
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.registry import ALGORITHMS, Algorithm
from ddpg.algorithms.td3 import TD3Update
from ddpg.replay.minibatch import Batch

CONFIG = DDPGConfig(
    hidden=(8, 6),
    critic_hidden=(5, 7),
    gamma=0.9,
    tau=0.1,
    actor_learning_rate=1e-2,
    critic_learning_rate=2e-2,
    n_critics=2,
    policy_delay=2,
    target_policy_noise=0.4,
    target_noise_clip=0.5,
)


driven = functools.partial(functools.cache(Driven), config=CONFIG)


@pytest.fixture(scope="module")
def by_hand():
    """The weights after 0 to K updates in NumPy."""
    as_float64 = functools.partial(tf.nest.map_structure, lambda array: array.astype(np.float64))
    (actor, *critics), targets = as_float64(driven("stepped").start().weights())
    agent, path = TD3(actor, critics, targets, CONFIG, SEED), []
    for fields in zip(*minibatches(), strict=True):
        path.append(([list(w) for w in (agent.actor, *agent.critics)], [list(w) for w in agent.targets]))
        agent.update(*(field.astype(np.float64) for field in fields))
    return [*path, ([agent.actor, *agent.critics], agent.targets)]


@pytest.mark.parametrize(
    "driver", [*(pytest.param(driver, marks=pytest.mark.slow) for driver in ("compiled", "uncompiled")), "stepped"]
)
def test_updates_equal_numpys(driver, by_hand):
    """In calls of one, two and two updates: the delay counts across calls, the noise depends on the update's number."""
    learner = driven(driver).start()
    for first, count in ((0, 1), (1, 2), (3, 2)):
        learner.train(count, first)
        assert difference(learner.weights(), by_hand[first + count]) < 1e-5
    assert difference(by_hand[0], by_hand[K]) > 1e-2
    apart = learner.session.run(learner.all_variables)
    learner.start().train(K)
    assert difference(apart, learner.session.run(learner.all_variables)) == 0


def test_actor_and_targets_do_not_move_in_between():
    """Updates 1 and 3 change only the critics: neither weights, moments nor Adam's powers of β of the actor."""
    learner = driven("stepped").start()
    actors = [v for v in learner.all_variables if v.name.startswith("actor/")]
    groups = [actors, *(network.target_variables for network in learner.networks)]
    metrics = []
    for first, moves in enumerate((False, True, False, True)):
        before, critics = learner.session.run(groups), learner.weights()[0][1:]
        metrics.append(learner.train(1, first))
        for one, other in zip(before, learner.session.run(groups), strict=True):
            assert (difference(one, other) > 0) == moves
        assert all(difference(*pair) > 1e-3 for pair in zip(critics, learner.weights()[0][1:], strict=True))
    assert metrics[0]["actor_loss"] == 0 != metrics[1]["actor_loss"] == metrics[2]["actor_loss"]
    assert metrics[3]["actor_loss"] != metrics[2]["actor_loss"]


# -- the noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "expected"), [(0, (0x6B200159, 0x99BA4EFE)), (2**32 - 1, (0x1CB996FC, 0xBB002BE7))])
def test_threefry_has_the_published_answers(word, expected):
    """The known answers published with Random123 by Salmon et al."""
    assert threefry((word, word), (word, word)) == expected
    words = tf.constant([word], tf.uint32)
    assert tuple(int(bits[0]) for bits in random_numbers.threefry((words, words), (words, words))) == expected


def test_noise_is_normal_and_depends_on_its_seed_and_count():
    draw = random_numbers.standard_normal([999, 3], 5, tf.constant(8, tf.int64)).numpy()
    np.testing.assert_allclose(draw, normal((999, 3), 5, 8), atol=1e-5)
    assert abs(draw.mean()) < 0.06  # three standard errors of the mean of 2,997 numbers
    assert draw.std() == pytest.approx(1, abs=0.04)
    for seed, count in ((5, 9), (6, 8)):
        other = random_numbers.standard_normal([999, 3], seed, tf.constant(count, tf.int64)).numpy()
        assert abs(np.corrcoef(draw.ravel(), other.ravel())[0, 1]) < 0.06


# -- each option by itself, in an agent ----------------------------------------------------------------

SMALL = DDPGConfig(hidden=(4,), batch_size=2, updates_per_call=1, jit=False, gamma=0.5, optimizer="sgd")
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


def make_constant(agent, **values):
    """Make networks output constants, by their output biases, before squashing."""
    with agent.session.as_default():
        networks = {"actor": agent.actor} | {f"critic_{i}": critic for i, critic in enumerate(agent.critics)}
        for name, value in values.items():
            network = networks[name]
            weights = [0 * array for array in network.get_network_params()]
            network.set_network_params([*weights[:-1], np.full_like(weights[-1], value)])
            network.sync_target_network()


def test_the_target_uses_the_smallest_value_of_the_critics():
    """Q′ = 3, −1 and 2: y = 1 − 0.5; each critic's loss is from its own value."""
    agent = DDPG((BOX, BOX), SMALL.replace(n_critics=3), seed=0)
    make_constant(agent, critic_0=3.0, critic_1=-1.0, critic_2=2.0)
    agent.observe([0.0], [0.0], 1.0, [0.0], False, False)
    metrics = agent.update(1)
    assert metrics["critic_loss"] == pytest.approx(np.mean([2.5**2, 1.5**2, 1.5**2]), rel=1e-6)
    assert metrics["q_value"] == pytest.approx(4 / 3, rel=1e-6)
    assert metrics["actor_loss"] == pytest.approx(-3, abs=0.01)  # of the first critic, after its step


def test_the_target_uses_the_mean_of_the_critics():
    """Q′ = 3, −1 and 2: y = 1 + 0.5·4/3."""
    agent = DDPG((BOX, BOX), SMALL.replace(n_critics=3, target_critics="mean"), seed=0)
    make_constant(agent, critic_0=3.0, critic_1=-1.0, critic_2=2.0)
    agent.observe([0.0], [0.0], 1.0, [0.0], False, False)
    errors = np.array([3, -1, 2]) - (1 + 0.5 * 4 / 3)
    assert agent.update(1)["critic_loss"] == pytest.approx(np.mean(errors**2), rel=1e-6)


def test_the_mean_of_distributions_is_their_mixture():
    """Probabilities of (1/4, 1/4, 1/2) and (1/2, 1/4, 1/4) over -1, 0 and 1; r = 0, γ = 1: nothing moves."""
    logits = np.log(np.float32([[[0.25, 0.25, 0.5]], [[0.5, 0.25, 0.25]]]))
    options = {"critic": "distributional", "atoms": 3, "v_min": -1.0, "v_max": 1.0, "n_critics": 2}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        update = TD3Update.build(SMALL.replace(gamma=1.0, target_critics="mean", **options), (BOX, BOX))
        successors = [update.critic._predict(tf.constant(row)) for row in logits]
        y = update._from_critics(Batch(*[tf.zeros([1, 1])] * 5), successors)
        np.testing.assert_allclose(session.run(y), [[0.375, 0.25, 0.375]], rtol=1e-6)


def test_the_largest_error_of_the_critics_is_the_priority():
    """Q′ = 3 and −1: y = 1 − 0.5, so that the errors are 2.5 and 1.5."""
    options = {"prioritised": "proportional", "priority_exponent": 1.0, "buffer_size": 1}
    agent = DDPG((BOX, BOX), SMALL.replace(n_critics=2, **options), seed=0)
    make_constant(agent, critic_0=3.0, critic_1=-1.0)
    agent.observe([0.0], [0.0], 1.0, [0.0], False, False)
    agent.update(1)
    assert agent.memory.sampler.state()["priorities"] == pytest.approx([2.5], rel=1e-5)


def test_noise_on_the_target_action_is_clipped():
    """Q = 10·relu(a), μ′ = 0. With σ = 100 the noise is ±0.25, so that Q′ is 2.5 or 0."""
    config = SMALL.replace(target_policy_noise=100.0, target_noise_clip=0.25, hidden=(1,), batch_size=8)
    agent = DDPG((BOX, BOX), config, seed=0)
    make_constant(agent, actor=0.0)
    with agent.session.as_default():
        agent.critic.set_network_params([[[0.0], [1.0]], [0.0], [[10.0]], [0.0]])
        agent.critic.sync_target_network()
    agent.observe([0.0], [-1.0], 0.0, [0.0], False, False)
    share = agent.update(1)["critic_loss"] / (0.5 * 10 * 0.25) ** 2
    assert share == pytest.approx(np.round(8 * share) / 8, rel=1e-5)  # a multiple of an eighth
    assert 0 < share < 1


def test_noise_on_the_target_action_scales_with_the_half_range():
    """Q′ = relu(a), μ′ = 1, the middle of −2 to 4: 1 + 3/4, and 1 + 3 · 2, which is clipped to 4."""
    config = SMALL.replace(target_policy_noise=1.0, target_noise_clip=2.0, hidden=(1,))
    spaces = BOX, gym.spaces.Box(-2, 4, (1,))
    one = np.ones((2, 1), np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        update = TD3Update.build(config, spaces)
        batch = Batch(one, one, 0 * one, one, 0 * one, noise=np.array([[0.25], [9]], np.float32))
        y = update.target(batch.map(tf.constant))
        session.run(tf.compat.v1.global_variables_initializer())
        update.actor.set_network_params([0 * weights for weights in update.actor.get_network_params()])
        update.critic.set_network_params([[[0.0], [1.0]], [0.0], [[1.0]], [0.0]])
        for network in (update.actor, update.critic):
            network.sync_target_network()
        np.testing.assert_allclose(session.run(y), [[0.5 * 1.75], [0.5 * 4]], rtol=1e-6)


def test_actor_and_critic_begin_with_plain_ddpgs_weights():
    """Additional networks are created after actor and critic, so the same seed gives these the same initial weights."""
    agents = [DDPG((BOX, BOX), SMALL.replace(**changes), seed=3) for changes in ({}, {"n_critics": 2})]
    plain, twins = (agent.session.run([agent.actor.variables, agent.critic.variables]) for agent in agents)
    assert difference(plain, twins) == 0
    assert type(agents[0].symbolic_update) is DDPGUpdate
    assert not any("td3" in name or "critic_1" in name for name in agents[0].global_variables)
    first, second = agents[1].session.run([critic.variables for critic in agents[1].critics])
    assert difference(first, second) > 0


def test_residual_gradient_flows_through_the_smallest_value():
    """y is from the online networks: of two critics with values 3 and −1, both targets contain the second's bias."""
    agent = DDPG((BOX, BOX), SMALL.replace(n_critics=2, td_target="residual_gradient"), seed=0)
    make_constant(agent, critic_0=3.0, critic_1=-1.0)
    agent.observe([0.0], [0.0], 1.0, [0.0], False, False)
    agent.update(1)
    first, second = (agent.session.run(critic.variables[-1])[0] for critic in agent.critics)
    # Residuals: 3 − (1 − 0.5) = 2.5, whose y does not depend on the first bias, and −1 − (1 − 0.5) = −1.5.
    assert first == pytest.approx(3 - 1e-3 * 2 * 2.5, rel=1e-6)
    assert second == pytest.approx(-1 + 1e-3 * 2 * 1.5 * (1 - 0.5), rel=1e-6)


def test_a_ddpg_variant_without_td3s_options_refuses_them(monkeypatch):
    class OwnUpdate(DDPGUpdate):
        pass

    monkeypatch.setitem(ALGORITHMS, "DDPG", Algorithm(DDPGConfig, OwnUpdate))
    with refuses(UsageError, "OwnUpdate TD3Update"):
        DDPG((BOX, BOX), SMALL.replace(policy_delay=2))
