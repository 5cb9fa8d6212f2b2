"""The updater: metrics of several updates, the choice of driver, and divergence."""

import contextlib

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import DRIVERS
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig
from ddpg.learners import updater
from ddpg.learners.graph import SteppedLearner

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES = {DDPG: BOX, DQN: gym.spaces.Discrete(3)}
QUICK = {"hidden": (8,), "batch_size": 4, "optimizer": "sgd", "jit": False}
CONFIGS = {
    DDPG: DDPGConfig(**QUICK, actor_learning_rate=0.1, critic_learning_rate=0.1),
    DQN: DQNConfig(**QUICK, learning_rate=0.1),
}


def made(kind, updates_per_call, td_target="stop_gradient", config=None):
    config = (config or CONFIGS[kind]).replace(updates_per_call=updates_per_call, td_target=td_target)
    agent = kind((BOX, SPACES[kind]), config, seed=0)
    rng = np.random.default_rng(0)
    for number in range(20):
        before, after = rng.uniform(-1, 1, (2, 2))
        action = 1 if kind is DQN else rng.uniform(-1, 1, 2).astype(np.float32)
        agent.observe(before, action, number, after, True, False)
    return agent


def rewinder(agent):
    """Return a function that restores the agent's present weights and random numbers."""
    weights, generator = agent.get_parameters(), agent.generators["replay"].bit_generator
    state = generator.state

    def rewind():
        agent.set_parameters(weights)
        generator.state = state

    return rewind


@pytest.mark.parametrize(
    ("kind", "updates_per_call", "n", "td_target"),
    [(DDPG, 2, 5, "stop_gradient"), (DDPG, 1, 3, "placeholder"), (DQN, 4, 3, "stop_gradient")],
)
def test_metrics_are_means_over_updates(kind, updates_per_call, n, td_target):
    """Five updates in calls of two are two, two and one, so the last call's metrics have a weight of a fifth."""
    agent = made(kind, updates_per_call, td_target)
    assert isinstance(agent.updater.learner, SteppedLearner) == (td_target == "placeholder")
    rewind = rewinder(agent)
    together = agent.update(n)
    assert agent.num_updates == n
    rewind()
    each = [agent.update(1) for _ in range(n)]
    assert agent.num_updates == 2 * n
    loss = agent.metrics[0]
    assert each[0][loss] > 1.1 * each[-1][loss] or each[-1][loss] > 1.1 * each[0][loss]
    for name in agent.metrics:
        assert together[name] == pytest.approx(np.mean([one[name] for one in each]), rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize(
    ("hidden", "batch_size", "compiler", "learner"),
    [
        ((64, 64), 64, "auto", "NativeLearner"),  # 10 * 64 * 9,027 weights: 6 million operations
        ((256, 256), 256, "auto", "XLALearner"),  # 10 * 256 * 134,403: 344 million
        pytest.param((64, 64), 64, "xla", "XLALearner", marks=pytest.mark.slow),
        pytest.param((256, 256), 256, "native", "NativeLearner", marks=pytest.mark.slow),
    ],
)
def test_with_a_gpu_small_updates_stay_on_the_processor(monkeypatch, hidden, batch_size, compiler, learner):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    for name in ("NativeLearner", "XLALearner"):  # chosen, and not built
        monkeypatch.setattr(updater, name, lambda *arguments, name=name, **options: name)
    config = DDPGConfig(hidden=hidden, batch_size=batch_size, compiler=compiler, buffer_size=300, optimizer="sgd")
    assert DDPG((BOX, BOX), config, seed=0).updater.learner == learner


def with_gradient_zero(compiler, **options):
    """An agent with a saturated actor, whose gradient is exactly 0."""
    box = gym.spaces.Box
    config = DDPGConfig(batch_size=64, jit=compiler != "none", compiler=compiler.replace("none", "auto"), **options)
    agent = DDPG((box(-1, 1, (3,)), box(-1, 1, (1,))), config, seed=0)
    rng = np.random.default_rng(0)
    before, after = rng.uniform(-1, 1, (2, 300, 3)).astype(np.float32)
    flags = np.zeros((2, 300), bool)
    agent.remember(before, rng.uniform(-1, 1, (300, 1)).astype(np.float32), rng.normal(size=300), after, *flags)
    agent.set_parameters({"actor/output/b:0": [30.0]}, exact_match=False)
    return agent


@pytest.mark.parametrize("compiler", ["native", *(pytest.param(c, marks=pytest.mark.slow) for c in ("xla", "none"))])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"hidden": (64,), "max_gradient_norm": 1.0}, marks=pytest.mark.slow),
        {"hidden": (1,), "critic_norm": "layer", "max_gradient_norm": 0.01},
    ],
)
def test_clipping_the_norm_of_a_zero_gradient_gives_zero(compiler, options):
    agent = with_gradient_zero(compiler, **options)
    metrics = agent.update(8)
    assert metrics["action_gradient_norm"] >= 0
    assert all(np.isfinite(array).all() for array in agent.get_parameters().values())
    assert agent.predict(np.zeros(3, np.float32))[0] == pytest.approx([1])


@pytest.mark.parametrize(
    ("network", "driver"),
    [
        ("critic_1", "native"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("critic_1", "stepped"), ("critic_1", "uncompiled"), ("actor", "native"), ("critic", "xla"))
        ),
    ],
)
def test_non_finite_weights_are_divergence_even_if_the_loss_is_finite(network, driver):
    """Adam's step is NaN if a second moment is below 0, after the loss has been computed."""
    config = CONFIGS[DDPG].replace(optimizer="adam", n_critics=2 if network == "critic_1" else 1, **DRIVERS[driver])
    agent = made(DDPG, config.updates_per_call, config.td_target, config)
    action = agent.predict(np.zeros(2, np.float32))[0]
    slot = agent.global_variables[f"{network}/hidden_0/W/Adam_1:0"]
    with agent.graph.as_default():
        agent.session.run(slot.assign(np.full(slot.shape, -1.0, np.float32)))
    with refuses(FloatingPointError, "1 updates"):
        agent.update(1)
    np.testing.assert_array_equal(agent.predict(np.zeros(2, np.float32))[0], action)


def test_rewards_are_divided_by_a_scale_below_or_above_one():
    agent = made(DDPG, 2)
    rewind, rewards = rewinder(agent), agent.replay.arrays()["rewards"]
    given = rewards.copy()
    for scale in (0.25, 4.0):
        found = []
        for rewards[:], divisor in ((given, scale), (given / scale, 1.0)):
            rewind()
            found.append(agent.updater.run(agent.session, 2, divisor)[0])
        assert found[0] == pytest.approx(found[1])
    assert np.ptp(rewards) > 1


def test_divergence_is_a_loss_that_is_not_finite(monkeypatch):
    agent = made(DDPG, 1)
    for place, diverged in ((0, True), (1, False)):
        metrics = dict.fromkeys(agent.updater.metrics, 1.0) | {agent.updater.metrics[place]: np.inf}
        monkeypatch.setattr(agent.updater.learner, "update", lambda *_, metrics=metrics: (metrics, [], None, True))
        with refuses(FloatingPointError, "inf") if diverged else contextlib.nullcontext():
            assert agent.updater.run(agent.session, 1)[0] == metrics


def test_divergence_is_reported_before_its_td_errors_reach_the_priorities(monkeypatch):
    agent = made(DDPG, 1, config=CONFIGS[DDPG].replace(prioritised="proportional"))
    size = agent.config.batch_size
    result = dict.fromkeys(agent.updater.metrics, np.inf), [], np.full((1, size), np.inf, np.float32), True
    monkeypatch.setattr(agent.updater.learner, "update", lambda *_: result)
    with refuses(FloatingPointError, "inf diverged"):
        agent.updater.run(agent.session, 1)
    assert agent.memory.sampler.state()["largest_priority"] == 1


@pytest.mark.parametrize(
    ("per_step", "per_call", "largest"), [(1, 32, 32), (0.1, 32, 32), (1.5, 32, 32), (3, 32, 33), (3, 4, 6), (7, 2, 2)]
)
def test_the_largest_call_is_of_whole_steps(per_step, per_call, largest):
    assert DDPGConfig(updates_per_step=per_step, updates_per_call=per_call).largest_call == largest


@pytest.mark.parametrize("driver", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_updates_that_are_due_together_are_one_call(driver):
    """At three updates a step, six are due after two steps; a call of four would leave another one of two."""
    config = CONFIGS[DDPG].replace(updates_per_call=4, updates_per_step=3, learning_starts=1, **DRIVERS[driver])
    agent = made(DDPG, 4, config=config)
    learner, counts = agent.updater.learner, []
    call = learner.update
    learner.update = lambda session, batch, count: counts.append(count) or call(session, batch, count)
    agent.update(6)
    agent.update(7)
    assert counts == [6, 6, 1]
