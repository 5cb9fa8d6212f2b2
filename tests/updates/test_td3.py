"""TD3 against TD3 written down again in NumPy; each of its options by hand; what they leave as it was."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from numpy_td3 import TD3, normal, threefry

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.experience.replay import Batch
from ddpg.updates import noise
from ddpg.updates.ddpg import DDPGUpdate
from ddpg.updates.learner import FusedLearner, SteppedLearner
from ddpg.updates.registry import ALGORITHMS, Algorithm
from ddpg.updates.td3 import TD3Update

v1 = tf.compat.v1
K, B, SEED = 5, 7, 11
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Box(-1, 1, (2,), np.float32)
NO_NETWORKS = {"actor_network": None, "critic_network": None}
CONFIG = DDPGConfig(
    hidden=(8, 6),
    batch_size=B,
    gamma=0.9,
    tau=0.1,
    actor_learning_rate=1e-2,
    critic_learning_rate=2e-2,
    n_critics=2,
    policy_delay=2,
    target_policy_noise=0.4,
    target_noise_clip=0.5,
)


def minibatches():
    rng = np.random.default_rng(0)
    n = lambda *shape: rng.normal(size=(K, B, *shape)).astype(np.float32)  # noqa: E731
    return Batch(n(3), np.tanh(n(2)), n(1), n(3), (rng.random((K, B, 1)) < 0.3).astype(np.float32))


class Driven:
    """A TD3 update with weights and targets of its own, driven."""

    def __init__(self, driver, config=CONFIG):
        self.graph, self.driver = tf.Graph(), driver
        with self.graph.as_default():
            v1.set_random_seed(SEED)
            self.update = update = TD3Update.build(config, (OBSERVATIONS, ACTIONS), NO_NETWORKS)
            if driver == "stepped":
                self.learner = SteppedLearner(update, batch_size=B)
            else:
                self.learner = FusedLearner(update, batch_size=B, updates_per_call=K, jit=driver == "compiled")
            self.networks = [update.actor, *update.critics]
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())
            rng = np.random.default_rng(1)
            for network in self.networks:
                variables = [*network.variables, *network.target_variables]
                values = [0.5 * rng.normal(size=variable.shape) for variable in variables]
                self.session.run([v.assign(value) for v, value in zip(variables, values, strict=True)])

    def weights(self):
        """Return the weights of actor and critics, and of their targets."""
        online = self.session.run([network.variables for network in self.networks])
        return online, self.session.run([network.target_variables for network in self.networks])

    def train(self, updates, first=0):
        rows = Batch(*(np.roll(field, -first, axis=0) for field in minibatches()))
        return self.learner.update(self.session, rows, updates)[0]


@pytest.fixture(scope="module")
def by_hand():
    """The weights after 0 to K updates in NumPy."""
    as_float64 = functools.partial(tf.nest.map_structure, lambda array: array.astype(np.float64))
    (actor, *critics), targets = as_float64(Driven("stepped").weights())
    agent, path = TD3(actor, critics, targets, CONFIG, SEED), []
    for fields in zip(*minibatches(), strict=True):
        path.append(([list(w) for w in (agent.actor, *agent.critics)], [list(w) for w in agent.targets]))
        agent.update(*(field.astype(np.float64) for field in fields))
    return [*path, ([agent.actor, *agent.critics], agent.targets)]


def difference(one, other):
    pairs = zip(tf.nest.flatten(list(one)), tf.nest.flatten(list(other)), strict=True)
    return max(np.abs(a - b).max() for a, b in pairs)


@pytest.mark.parametrize("driver", ["compiled", "uncompiled", "stepped"])
def test_updates_equal_numpys(driver, by_hand):
    """One update, two more, two more: the delay is counted across calls, the noise is of the update's number."""
    driven = Driven(driver)
    for first, count in ((0, 1), (1, 2), (3, 2)):
        driven.train(count, first)
        assert difference(driven.weights(), by_hand[first + count]) < 1e-5
    assert difference(by_hand[0], by_hand[K]) > 1e-2


def test_actor_and_targets_stand_still_in_between():
    """Updates 1 and 3 move critics alone: no weight, no moment and no power of β of the actor moves."""
    driven = Driven("uncompiled")
    with driven.graph.as_default():
        actors = [v for v in v1.global_variables() if v.name.startswith("actor/")]
        others = [v for network in driven.networks for v in network.target_variables]
        metrics = []
        for first, moves in enumerate((False, True, False, True)):
            before, critics = driven.session.run([actors, others]), driven.weights()[0][1:]
            metrics.append(driven.train(1, first))
            after = driven.session.run([actors, others])
            for one, other in zip(before, after, strict=True):
                assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True)) == moves
            assert all(difference([a], [b]) > 1e-3 for a, b in zip(critics, driven.weights()[0][1:], strict=True))
    assert metrics[0]["actor_loss"] == 0 != metrics[1]["actor_loss"] == metrics[2]["actor_loss"]
    assert metrics[3]["actor_loss"] != metrics[2]["actor_loss"]


# -- the noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [(0, (0x6B200159, 0x99BA4EFE)), (2**32 - 1, (0x1CB996FC, 0xBB002BE7))],
)
def test_threefry_has_the_published_answers(word, expected):
    """The known answers that come with Salmon et al.'s Random123."""
    assert threefry((word, word), (word, word)) == expected
    words = tf.constant([word], tf.uint32)
    assert tuple(int(bits[0]) for bits in noise.threefry((words, words), (words, words))) == expected


def test_noise_is_normal_and_of_its_seed_and_count():
    draw = noise.standard_normal([999, 3], 5, tf.constant(8, tf.int64)).numpy()
    np.testing.assert_allclose(draw, normal((999, 3), 5, 8), atol=1e-5)
    assert abs(draw.mean()) < 0.06  # three deviations of a mean of 2 997
    assert draw.std() == pytest.approx(1, abs=0.04)
    for seed, count in ((5, 9), (6, 8)):
        other = noise.standard_normal([999, 3], seed, tf.constant(count, tf.int64)).numpy()
        assert abs(np.corrcoef(draw.ravel(), other.ravel())[0, 1]) < 0.06


# -- each by itself, in an agent ----------------------------------------------------------------------

SMALL = DDPGConfig(hidden=(4,), batch_size=2, updates_per_call=1, jit=False, gamma=0.5)
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


def constant(agent, **values):
    """Make networks constant: their output biases, before squashing."""
    with agent.session.as_default():
        networks = {"actor": agent.actor} | {f"critic_{i}": critic for i, critic in enumerate(agent.critics)}
        for name, value in values.items():
            network = networks[name]
            weights = [0 * array for array in network.get_network_params()]
            network.set_network_params([*weights[:-1], np.full_like(weights[-1], value)])
            network.sync_target_network()


def test_the_least_of_the_critics_counts():
    """Q′ = 3, −1 and 2: y = 1 − 0.5; each critic's loss is from its own value."""
    agent = DDPG((BOX, BOX), SMALL.replace(n_critics=3), seed=0)
    constant(agent, critic_0=3.0, critic_1=-1.0, critic_2=2.0)
    agent.observe([0.0], [0.0], 1.0, [0.0], False, False)
    metrics = agent.update(1)
    assert metrics["critic_loss"] == pytest.approx(np.mean([2.5**2, 1.5**2, 1.5**2]), rel=1e-6)
    assert metrics["q_value"] == pytest.approx(4 / 3, rel=1e-6)
    assert metrics["actor_loss"] == pytest.approx(-3, abs=0.01)  # of the first critic, after its step


@pytest.mark.parametrize("clip", [0.25, 10.0])
def test_noise_on_the_target_action_is_clipped_and_stays_in_the_box(clip):
    """Q = 10·relu(a): with σ = 100 the noise is ±clip, and μ′ = 0 becomes clip or 0, or the bound 1."""
    config = SMALL.replace(target_policy_noise=100.0, target_noise_clip=clip, hidden=(1,), batch_size=8)
    agent = DDPG((BOX, BOX), config, seed=0)
    constant(agent, actor=0.0)
    with agent.session.as_default():
        agent.critic.set_network_params([[[0.0], [1.0]], [0.0], [[10.0]], [0.0]])
        agent.critic.sync_target_network()
    agent.observe([0.0], [-1.0], 0.0, [0.0], False, False)
    loss = agent.update(1)["critic_loss"] / (0.5 * 10 * min(clip, 1.0)) ** 2
    assert loss == pytest.approx(np.round(8 * loss) / 8, rel=1e-5)  # a number of eighths
    assert 0 < loss < 1


def test_networks_begin_as_plain_ddpgs():
    """What is on is made after actor and critic: the same seed begins with the same weights, and ends with them."""
    agents = [DDPG((BOX, BOX), SMALL.replace(**changes), seed=3) for changes in ({}, {"n_critics": 2})]
    plain, twins = (agent.session.run([agent.actor.variables, agent.critic.variables]) for agent in agents)
    assert difference(plain, twins) == 0
    assert type(agents[0].symbolic_update) is DDPGUpdate
    assert not any("td3" in name or "critic_1" in name for name in agents[0].global_variables)
    first, second = agents[1].session.run([critic.variables for critic in agents[1].critics])
    assert difference(first, second) > 0


def learned(**changes):
    config = SMALL.replace(**{name: getattr(CONFIG, name) for name in ("n_critics", "policy_delay")})
    agent = DDPG((BOX, BOX), config.replace(target_policy_noise=0.2, **changes), seed=0)
    for number in range(9):
        agent.observe([number / 9], [0.0], number, [0.0], False, False)
    return agent


def test_saved_in_the_middle_of_a_delay(tmp_path):
    agent = learned()
    agent.update(3)
    agent.save(tmp_path / "c")
    loaded = DDPG.load(tmp_path / "c")
    for _ in range(3):
        assert loaded.update(1) == agent.update(1)
    assert difference(*(a.session.run([list(a.global_variables.values())]) for a in (loaded, agent))) == 0


def test_calls_of_any_length_draw_the_same_noise():
    """Minibatches apart: one transition, so that every minibatch is that."""
    agents = [DDPG((BOX, BOX), learned().config.replace(updates_per_call=calls), seed=0) for calls in (1, 4)]
    for agent in agents:
        agent.observe([0.5], [0.0], 1.0, [0.0], False, False)
        agent.update(7)
    one, other = (list(agent.global_variables.values()) for agent in agents)
    assert difference(agents[0].session.run([one]), agents[1].session.run([other])) == 0


@pytest.mark.parametrize("td_target", ["placeholder", "output_delta", "residual_gradient"])
def test_with_every_td_path(td_target):
    losses = [learned(td_target=path).update(1)["critic_loss"] for path in ("stop_gradient", td_target)]
    # Of the online networks, which begin as their targets.
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_variant_of_ddpg_that_knows_no_twins_does_not_ignore_them(monkeypatch):
    class OwnUpdate(DDPGUpdate):
        pass

    monkeypatch.setitem(ALGORITHMS, "DDPG", Algorithm(DDPGConfig, OwnUpdate))
    with pytest.raises(UsageError, match="OwnUpdate would ignore options of TD3Update that are set"):
        DDPG((BOX, BOX), SMALL.replace(policy_delay=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_critics": 0}, "n_critics=0 must be at least 1"),
        ({"policy_delay": 0}, "policy_delay=0"),
        ({"target_policy_noise": -0.1}, "target_policy_noise=-0.1"),
        ({"target_noise_clip": 0.0}, "target_noise_clip=0.0"),
    ],
    ids=str,
)
def test_bad_values(change, message):
    with pytest.raises(UsageError, match=message):
        SMALL.replace(**change)
