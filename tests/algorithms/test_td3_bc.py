"""TD3+BC: the actor's gradient and λ by hand, with every policy path and bounding; in agents, diagrams, and errors."""

import copy
import functools
import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from checkpoints import reseal
from driven import difference
from numpy_td3 import TD3
from refusals import refuses

from ddpg import DDPG, ActorNetwork, CriticNetwork, DDPGConfig, UsageError
from ddpg.algorithms.ddpg import policy_gradient
from ddpg.algorithms.registry import update_of
from ddpg.algorithms.td3_bc import TD3BCUpdate, cloning
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.laboratory.flow import trace_update
from ddpg.laboratory.picture import layout_nodes, node_box
from ddpg.replay.minibatch import Batch

STATES, BOX = gym.spaces.Box(-9, 9, (3,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
ALPHA = 2.5


def cubic(states, actions):
    """Features whose Q = w·features + b has an action gradient that depends on the action."""
    return tf.concat([states, actions, tf.square(actions)], axis=1)


@pytest.mark.parametrize(
    "bounding", [pytest.param(bounding, marks=[pytest.mark.slow] * (bounding == "zeroing")) for bounding in BOUNDINGS]
)
def test_the_gradient_is_the_papers(bounding, session, initialize, rng):
    """λ = α / mean|Q(s, a)|; for μ(s) = W·s + b, with or without tanh, ∂L/∂μ is −λ∇ₐQ/B + 2w(μ(s) − a)/(BA).

    On every path, with w = 1 and with weights of its own.
    """
    actor = ActorNetwork(STATES, BOX, network=tf.identity, bounding=bounding)
    critic = CriticNetwork(STATES, BOX, network=cubic)
    initialize()
    weights, bias = 0.3 * rng.normal(size=(3, 2)), 0.1 * rng.normal(size=2)
    actor.set_network_params([weights, bias])
    w, c = rng.normal(size=(7, 1)), rng.normal(size=1)
    critic.set_network_params([w, c])
    states, replayed = rng.normal(size=(5, 3)), rng.uniform(-1, 1, (5, 2))
    s, a = tf.constant(states, tf.float32), tf.constant(replayed, tf.float32)
    q = np.concatenate([states, replayed, replayed**2], axis=1) @ w + c
    scale = ALPHA / np.abs(q).mean()
    pre = states @ weights + bias
    mu = np.tanh(pre) if bounding == "squashing" else pre
    for of_cloning in (None, np.array([[0.5], [0.0], [1.0], [0.25], [2.0]], np.float32)):
        batch = Batch(s, a, tf.zeros([5, 1]), s, tf.zeros([5, 1]), cloning=of_cloning)
        upward = scale * (w[3:5, 0] + 2 * w[5:, 0] * mu)
        upward = upward - 2 / 2 * (1 if of_cloning is None else of_cloning) * (mu - replayed)
        if bounding == "squashing":
            upward = upward * (1 - mu**2)
        elif bounding == "inverting":
            upward = upward * np.where(upward > 0, (1 - mu) / 2, (mu + 1) / 2)
        else:
            upward = upward * ~(((mu >= 1) & (upward > 0)) | ((mu <= -1) & (upward < 0)))
        for name, path in POLICY_GRADIENTS.items():
            actor.policy_gradient = functools.partial(cloning, path, ALPHA)
            found = session.run([gradient for gradient, _ in policy_gradient(actor, critic, batch).gradients])
            np.testing.assert_allclose(found[0], -states.T @ upward / 5, rtol=1e-4, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(found[1], -upward.sum(axis=0) / 5, rtol=1e-4, atol=1e-5, err_msg=name)


UPDATED = {"hidden": (8, 6), "tau": 0.1, "gamma": 0.9, "batch_size": 7, "actor_learning_rate": 1e-2} | {
    **{"n_critics": 2, "target_policy_noise": 0.4, "normalize_observations": True, "updates_per_call": 1}
}


def recorded(rng, count=40):
    """Return transitions for ``remember``, whose observations differ in scale, so that normalising matters."""
    observations = rng.normal(size=(2, count, 3)) * [1, 5, 0.2] + [0, 3, 0]
    ended = rng.random(count) < 0.3
    return observations[0], rng.uniform(-1, 1, (count, 2)), rng.normal(size=count), observations[1], ended, ~ended


ALONE, FALLS = {"bc_only": True}, {"bc_alpha": ALPHA, "bc_final": 0.0625, "bc_steps": 20}


# Each gradient path, bounding and TD path once. (The gradient of all paths with all boundings is tested above.)
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("actors", "path", "bounding", "td_target"),
    [
        ({"bc_alpha": ALPHA}, "chain_rule", "squashing", "stop_gradient"),
        pytest.param(ALONE, "direct", "inverting", "placeholder", marks=pytest.mark.slow),
        (FALLS, "surrogate", "zeroing", "output_delta"),
    ],
    ids=["bc_alpha", "bc_only", "bc_final"],
)
def test_an_agents_update_equals_numpys(actors, path, bounding, td_target, jit):
    """From data to the weights after one update, in float64: normalised states, y, both losses, Adam, targets."""
    jit = jit and td_target != "placeholder"
    ways = {"policy_gradient": path, "bounding": bounding, "td_target": td_target, "jit": jit}
    config = DDPGConfig(**UPDATED, **ways, **actors)
    agent = DDPG((STATES, BOX), config, seed=3)
    data = recorded(np.random.default_rng(0))
    own = 10 if "bc_final" in actors else 0  # halfway through bc_steps the weight is √bc_final
    agent.remember(*(field[: 40 - own] for field in data))
    for row in zip(*(field[40 - own :] for field in data), strict=True):
        agent.observe(*row)
    networks = [agent.actor, *agent.critics]
    rng = np.random.default_rng(1)
    with agent.graph.as_default():
        moved = [variable for net in networks for group in (net.variables, net.target_variables) for variable in group]
        agent.session.run([variable.assign(0.5 * rng.normal(size=variable.shape)) for variable in moved])

    def weights():
        found = agent.session.run([[net.variables for net in networks], [net.target_variables for net in networks]])
        return tf.nest.map_structure(lambda array: array.astype(np.float64), found)

    (actor, *critics), targets = before = weights()
    by_hand = TD3(list(actor), [list(w) for w in critics], [list(w) for w in targets], config, agent.graph.seed)
    batch, _ = agent.memory.sampler.sample(copy.deepcopy(agent.generators["replay"]), 1, config.batch_size, 1.0)
    drawn = [np.asarray(field, np.float64) for field in itertools.islice(batch, 5)]
    normalised = [(states - data[0].mean(axis=0)) / data[0].std(axis=0) for states in (drawn[0][0], drawn[3][0])]
    weight = 0.25 if own else 1.0
    by_hand.update(normalised[0], drawn[1][0], drawn[2][0], normalised[1], drawn[4][0], weight)
    agent.update(1)
    after = weights()
    expected = [by_hand.actor, *by_hand.critics], by_hand.targets
    assert difference(after, expected) < 1e-5
    assert difference(before[0][:1], after[0][:1]) > 1e-3


def test_cloning_alone_ignores_q():
    """Rewards of any size do not change the actor; setting both options is refused."""
    agent, actors, critics = agent_with(jit=False, bc_only=True), [], []
    start, generator = agent.get_parameters(), agent.generators["replay"].bit_generator.state
    for scale in (1.0, -50.0):
        agent.set_parameters(start)
        agent.generators["replay"].bit_generator.state = generator
        agent.replay.arrays()["rewards"][:] *= scale
        agent.update(20)
        with agent.session.as_default():
            actors.append(agent.actor.get_network_params())
            critics.append(agent.critic.get_network_params())
    assert difference(*actors) == 0
    assert difference(*critics) > 1e-3
    with refuses(UsageError, "bc_only bc_alpha 2.5"):
        DDPGConfig(bc_only=True, bc_alpha=ALPHA)


CONFIG = DDPGConfig(hidden=(6,), bc_alpha=ALPHA, n_critics=2, policy_delay=2, target_policy_noise=0.2)
FALLING = {"bc_alpha": ALPHA, "bc_final": 0.5, "bc_steps": 20, "jit": False}


def agent_with(rewards=1.0, rows=64, **options):
    """An agent that has stored the action 0.6 in random states, with random rewards."""
    small = {"hidden": (16,), "batch_size": 16, "updates_per_call": 4, "optimizer": "sgd", "gamma": 0.0}
    config = DDPGConfig(**small, **options)
    agent = DDPG((STATES, gym.spaces.Box(-1, 1, (1,), np.float32)), config, seed=0)
    return observe_more(agent, rows, rewards)


def observe_more(agent, rows, rewards=1.0):
    rng = np.random.default_rng(0)
    for _ in range(rows):
        observation, successor = rng.uniform(-1, 1, (2, 3)).astype(np.float32)
        agent.observe(observation, [0.6], rewards * rng.normal(), successor, False, False)
    return agent


def test_the_options_select_the_update_and_bad_values_are_refused():
    assert update_of(CONFIG) is TD3BCUpdate
    assert update_of(DDPGConfig(bc_only=True)) is TD3BCUpdate
    assert update_of(DDPGConfig()) is not TD3BCUpdate
    for value in (-1.0, float("inf")):
        with refuses(UsageError, "bc_alpha"):
            DDPGConfig(bc_alpha=value)
    for value in (0.0, 1.5, float("nan")):
        with refuses(UsageError, "bc_final"):
            DDPGConfig(bc_alpha=ALPHA, bc_final=value)
    with refuses(UsageError, "bc_steps"):
        DDPGConfig(bc_alpha=ALPHA, bc_final=0.5, bc_steps=0)
    with refuses(UsageError, "bc_final 0.5 bc_alpha"):
        DDPGConfig(bc_final=0.5)


def remember_zeros(agent, rows):
    zeros = np.zeros((rows, 3), np.float32)
    agent.remember(zeros, zeros[:, :1], zeros[:, 0], zeros, zeros[:, 0] > 0, zeros[:, 0] > 0)


def test_the_weight_of_cloning_falls_with_the_agents_own_steps():
    """f^(n/N) after n of N steps, then f, with f = 0.5 and N = 20. Transitions added by ``remember`` do not count."""
    agent, before = agent_with(rows=0, **FALLING), 0
    for own, weight in ((0, 1.0), (5, 0.5**0.25), (10, 0.5**0.5), (20, 0.5), (24, 0.5)):
        observe_more(agent, own - before)
        remember_zeros(agent, 7)
        batch, _ = agent.memory.sampler.sample(np.random.default_rng(0), 2, 16, 1.0)
        np.testing.assert_allclose(batch.cloning, np.full((2, 16, 1), weight), rtol=1e-6)
        before = own


def cloning_of(agent):
    """Return the weight of cloning in the next minibatch."""
    batch, _ = agent.memory.sampler.sample(np.random.default_rng(0), 1, 4, 1.0)
    return float(batch.cloning[0, 0, 0])


def test_the_weight_of_cloning_counts_overwritten_steps():
    agent = agent_with(rows=15, buffer_size=4, **FALLING)
    assert cloning_of(agent) == pytest.approx(0.5**0.75)
    observe_more(agent, 10)
    assert cloning_of(agent) == 0.5


def test_a_loaded_agent_has_the_saved_weight_of_cloning(tmp_path):
    """With or without its memory; transitions added by ``remember`` do not count in the loaded agent either."""
    agent = agent_with(rows=15, buffer_size=8, **FALLING)
    for replay in (True, False):
        loaded = DDPG.load(agent.save(tmp_path / str(replay), replay=replay))
        remember_zeros(loaded, 8)
        assert cloning_of(loaded) == pytest.approx(0.5**0.75)
        observe_more(loaded, 1)
        assert cloning_of(loaded) == pytest.approx(0.5**0.8)


def test_a_checkpoint_without_the_count_of_own_steps_uses_the_memorys_size(tmp_path):
    """As earlier versions saved it."""
    agent = agent_with(rows=10, **FALLING)
    agent.save(tmp_path / "saved")
    manifest = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    del manifest["own_steps"]
    (tmp_path / "saved" / "manifest.json").write_text(json.dumps(reseal(manifest)))
    assert cloning_of(DDPG.load(tmp_path / "saved")) == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path != "chain_rule")) for path in POLICY_GRADIENTS]
)
def test_the_diagram_of_td3_bc(path):
    """The replayed actions feed the actor's step; λ depends on the critic's weights, but its gradient is stopped."""
    with gym.make("Pendulum-v1") as env:
        config = DDPGConfig(hidden=(8,), batch_size=16, policy_gradient=path)
        cloned = trace_update(env, config.replace(bc_alpha=ALPHA), seed=0)["actor"]
        if path == "direct":
            plain = trace_update(env, config, seed=0)["actor"]
            assert not any(edge["source"] == "a" for edge in plain)
    assert any(edge["source"] == "a" for edge in cloned)
    trained = [edge for edge in cloned if edge["trained"]]
    assert {edge["source"] for edge in trained} >= {"mu", "actor"}
    assert not any(edge["source"].startswith(("critic", "target")) for edge in trained)
    boxes = layout_nodes(cloned)
    assert {node_box(boxes, edge["source"], edge["destination"]).text for edge in cloned} >= {"replayed\na"}


@pytest.mark.slow
def test_the_diagram_of_cloning_alone():
    """The replayed actions feed the actor's step, and no edge comes from a critic."""
    with gym.make("Pendulum-v1") as env:
        alone = trace_update(env, DDPGConfig(hidden=(8,), batch_size=16, bc_only=True), seed=0)["actor"]
    assert {edge["destination"] for edge in alone if edge["source"] == "a"}
    assert not any(edge["source"].startswith("critic") for edge in alone)
