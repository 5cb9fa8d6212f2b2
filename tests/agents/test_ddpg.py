"""The ``DDPG`` agent: spaces, acting, learning, options, the user's own loop, errors and several agents."""

import dataclasses
import functools
import gc
import weakref

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import ELSEWHERE, SHARED_CHANGES, relative_difference, without_the_change
from environments import Counting, Shaped
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg._tflearn import tflearn

v1 = tf.compat.v1
Box = gym.spaces.Box

# Not compiled, unless compilation is tested: tests/learners checks that compiled updates are the same. SGD has no
# slots, which are a third of the graph that Adam needs.
SMALL = DDPGConfig(
    hidden=(8,),
    batch_size=8,
    learning_starts=20,
    updates_per_call=4,
    buffer_size=100,
    optimizer="sgd",
    actor_learning_rate=0.1,
    jit=False,
)
# Where any driver will do, this one has the smallest graph. tests/learners checks that all drivers agree.
STEPPED = SMALL.replace(td_target="placeholder", updates_per_call=1)


def params(agent):
    with agent.session.as_default():
        return agent.actor.get_network_params() + agent.critic.get_network_params()


def trained(config=SMALL, seed=0, steps=60, env=None):
    agent = DDPG(env or gym.make("Pendulum-v1"), config, seed=seed)
    return agent.learn(steps)


@functools.cache
def learned(config=SMALL, seed=0, rewarding=False):
    """Return the parameters that ``trained`` learns, and the learner's type; computed once per configuration."""
    agent = trained(config, seed, env=Counting(20) if rewarding else None)
    return params(agent), type(agent.updater.learner).__name__


def all_equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))  # False if shapes differ


# -- types and shapes ---------------------------------------------------------------------------------


@functools.cache
def learned_from(dtype, shape):
    """Return the parameters learned from observations of this type and shape."""
    agent = trained(STEPPED, env=Shaped(Box(0, 100, shape, dtype), Box(-1, 1, (2,), np.float32)), steps=40)
    assert agent.num_updates == 20
    flat = np.zeros(6, dtype)
    np.testing.assert_array_equal(agent.predict(flat)[0], agent.predict(flat.reshape(shape))[0])
    return params(agent)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (np.uint8, (2, 3)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((np.float32, (2, 3)), (int, (6,)))),
    ],
)
def test_boxes_of_any_shape_and_type_of_observations_are_learned_from_alike(dtype, shape):
    assert all_equal(learned_from(dtype, shape), learned_from(np.float64, (6,)))


def test_any_box_of_float_actions_is_accepted():
    shape = (2, 3)
    space = Box(-3, np.linspace(1, 2, 6).reshape(shape), shape, np.float64)
    agent = DDPG((Box(-1, 1, (2,)), space), STEPPED, seed=0)
    agent.observe(np.zeros(2), space.sample(), 1.0, np.zeros(2), True, False)
    agent.update(1)
    action, state = agent.predict(np.zeros(2))
    assert state is None
    assert space.contains(action)
    batch, _ = agent.predict(np.zeros((5, 2)))
    assert batch.shape == (5, *shape)
    noisy, _ = agent.predict(np.zeros((5, 2)), deterministic=False)
    assert all(space.contains(row) for row in noisy)
    assert np.abs(noisy - batch).max() > 0


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (Box(-1, 1, (2,)), gym.spaces.Discrete(2), "Discrete"),
        (Box(-1, 1, (2,)), Box(-np.inf, np.inf, (1,)), "infinite bounds"),
        (gym.spaces.Discrete(4), Box(-1, 1, (1,)), "Box"),
    ],
)
def test_unsuitable_spaces(observation_space, action_space, message):
    with refuses(UsageError, message):
        DDPG((observation_space, action_space))


def test_nan_is_refused_before_it_is_stored():
    env = Counting(nan_at=2)
    agent = DDPG(env, STEPPED, seed=0)
    with refuses(UsageError, "observation nan"):
        agent.learn(30)
    assert len(agent.replay) == 1
    env.nan_at, env.nan_reward_at = None, 3
    with refuses(UsageError, "reward nan"):
        agent.learn(30)
    assert len(agent.replay) == 3
    with refuses(UsageError, "observation nan [1]"):
        agent.predict([0.0, np.nan])


# -- acting -------------------------------------------------------------------------------------------


def test_predict_is_the_networks_action_in_env_units():
    agent = DDPG(Counting(20), STEPPED.replace(hidden=(256, 256), output_init="fan_in"), seed=0)
    observations = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    with agent.session.as_default():
        unit = agent.actor.predict(observations)
    np.testing.assert_allclose(agent.predict(observations)[0], 1 + 3 * unit, atol=1e-5)
    for observation, action in zip(observations, unit, strict=True):
        np.testing.assert_allclose(agent.predict(observation)[0], 1 + 3 * action, atol=1e-5)


# -- learning -----------------------------------------------------------------------------------------


def test_an_agents_bits_depend_on_its_seed_and_neither_on_other_agents_nor_on_the_calls_of_learn():
    one, other = (DDPG(gym.make("Pendulum-v1"), SMALL, seed=seed) for seed in (0, 1))
    for steps in (20, 11, 29):
        one.learn(steps)
        other.learn(steps)
    assert all_equal(params(one), learned()[0])
    assert not all_equal(params(other), learned()[0])


CHANGES = SHARED_CHANGES | {
    "hidden": (9,),
    "action_layer": 1,
    "actor_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "critic_hidden": (5,),
    "bounding": "inverting",
    "policy_gradient": "direct",
    "td_target": "placeholder",
    "action_gradient_clip": 1e-5,
}
# These change the actions while exploring, regardless of what is learned.
CHANGES_OF_ACTIONS = {
    "noise": "ornstein_uhlenbeck",
    "noise_scale": 0.5,
    "parameter_noise": 0.3,
    "noise_theta": 0.9,
    "noise_dt": 0.1,
    "exploration_initial": 0.5,
    "exploration_final": 0.5,
    "exploration_steps": 25,
    "learning_starts": CHANGES.pop("learning_starts"),
}


# Shown by hand in tests/algorithms, test_schedules.py, tests/networks and tests/cli/test_own_code.py.
BY_HAND = {
    *("critic", "atoms", "v_min", "v_max", "target_spread"),
    *("noise_schedule", "noise_final", "actor_learning_rate_schedule", "critic_learning_rate_schedule"),
    *("n_critics", "target_critics", "policy_delay", "target_policy_noise", "target_noise_clip"),
    *(
        "network",
        "block",
        "critic_norm",
        "critic_loss",
        "critic_l2",
        "pre_activation_penalty",
        "max_gradient_norm",
        "adam_beta1",
    ),
    *("weight_decay", "bc_alpha", "bc_only", "bc_final", "bc_steps", "actor_average", "weight_projection"),
    "affine_projection",
    *("actor_network", "critic_network", "shared_encoder"),
}


def test_every_option_is_listed_above():
    changed = {*CHANGES, *CHANGES_OF_ACTIONS, *BY_HAND, *ELSEWHERE}
    assert {field.name for field in dataclasses.fields(DDPGConfig)} == changed


# Slow: a fast test with values by hand or of earlier versions also fails if an agent ignores one of these. That of
# batch_size is in test_td3_bc.py, of td_target in test_updater.py, and of the policy's gradient in test_own_paths.py.
SHOWN = {
    *("hidden", "action_layer", "critic_hidden", "activation", "norm", "output_init", "bounding", "optimizer", "jit"),
    *("gamma", "tau", "target", "actor_learning_rate", "critic_learning_rate", "learning_rate_schedule"),
    *("updates_per_step", "updates_per_call", "batch_size", "buffer_size", "n_steps"),
    *("td_target", "policy_gradient", "action_gradient_clip"),
    *("prioritised", "priority_exponent", "priority_correction", "priority_correction_steps"),
    *("rescale_rewards", "normalize_observations", "normalize_rewards"),
}


@pytest.mark.parametrize("field", [pytest.param(f, marks=[pytest.mark.slow] * (f in SHOWN)) for f in CHANGES])
def test_every_option_changes_what_is_learned(field):
    fused = field in ("updates_per_call", "td_target", "clip_delta", "jit")
    base = without_the_change(SMALL if fused else STEPPED, field)
    if field == "action_layer":
        base = base.replace(hidden=(8, 8))
    if field == "td_target":
        base = base.replace(updates_per_call=1)
    if field == "action_gradient_clip":
        base = base.replace(bounding="inverting")
    rewarding = field == "rescale_rewards"  # because all of Pendulum's rewards are negative
    (one, learner), (other, other_learner) = (
        learned(config, rewarding=rewarding) for config in (base, base.replace(**{field: CHANGES[field]}))
    )
    if field in ("policy_gradient", "td_target", "jit"):
        # The same gradient, computed differently: equal up to rounding. That the computation differs is shown by
        # test_the_driver_decides_whether_xla_must_compile, test_policy.py and the type of the learner.
        assert relative_difference(other, one) < 1e-3
        assert learner == ("SteppedLearner" if field == "policy_gradient" else "UncompiledLearner")
        assert other_learner == ("NativeLearner" if field == "jit" else "SteppedLearner")
    elif field in ("hidden", "critic_hidden", "norm"):
        assert [a.shape for a in one] != [a.shape for a in other]
    else:
        # Equal options give equal bits (see above), so any difference is due to the option.
        assert not all_equal(one, other)


@functools.cache
def idle():
    """An agent that learns nothing."""
    return DDPG(gym.make("Pendulum-v1"), STEPPED, seed=0)


@functools.cache
def explored(config):
    """Return the first 60 actions of an agent with these options."""
    behaviour = idle().make_behaviour(np.random.default_rng(0), config)
    behaviour.start(1)
    policy = idle().exploring_policy
    return np.array([behaviour.act(policy, np.zeros((1, 3), np.float32), step)[0] for step in range(60)])


@pytest.mark.parametrize("field", CHANGES_OF_ACTIONS)
def test_every_exploration_option_changes_the_actions(field):
    base = STEPPED
    if field in ("noise_theta", "noise_dt"):
        base = base.replace(noise="ornstein_uhlenbeck")
    if field == "exploration_steps":
        base = base.replace(exploration_initial=1.0)
    changed = base.replace(**{field: CHANGES_OF_ACTIONS[field]})
    assert not np.array_equal(explored(changed), explored(base))


def test_a_loop_of_the_users_own():
    env = gym.make("Pendulum-v1")
    agent = DDPG(env, STEPPED, seed=0)
    observation, _ = env.reset(seed=0)
    for _ in range(30):
        action, _ = agent.predict(observation, deterministic=False)
        following, reward, terminated, truncated, _ = env.step(action)
        agent.observe(observation, action, reward, following, terminated, truncated)
        observation = following
    stored = agent.replay.arrays()
    assert agent.num_timesteps == len(agent.replay) == 30
    np.testing.assert_allclose(2 * stored["actions"][-1], action, rtol=1e-6)
    metrics = agent.update(10)
    assert agent.num_updates == 10
    assert set(metrics) == set(agent.metrics)
    assert metrics["critic_loss"] > 0


@pytest.mark.parametrize(
    ("bounding", "pre_activations", "outside", "factors"),
    [
        pytest.param("squashing", [0.5, 3, 4, -5], 0, [1, 1, 1, 1], marks=pytest.mark.slow),
        ("inverting", [0.5, 0.995, 2, -3], 0.5, [0.25, 0.0025, -0.5, 2]),
        ("zeroing", [0.5, 0.995, 2, -3], 0.5, [1, 1, 0, 0]),
    ],
)
def test_metrics_of_how_actions_meet_their_bounds(bounding, pre_activations, outside, factors):
    """Weights set by hand: μ(s) does not depend on s, and Q = 0.1 * (sum of the actions)."""
    box = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    config = STEPPED.replace(hidden=(4,), bounding=bounding, actor_learning_rate=1e-9, critic_learning_rate=1e-9)
    agent = DDPG((gym.spaces.Box(-1, 1, (1,), np.float32), box), config, seed=0)
    with agent.session.as_default():
        agent.actor.set_network_params([np.zeros((1, 4)), np.zeros(4), np.zeros((4, 4)), np.array(pre_activations)])
        positive = np.concatenate([np.zeros((1, 4)), np.eye(4)])
        agent.critic.set_network_params([positive, np.full(4, 10.0), np.full((4, 1), 0.1), np.zeros(1)])
    agent.observe(np.zeros(1), np.zeros(4), 0.0, np.zeros(1), True, False)
    metrics = agent.update(1)
    assert metrics["actions_outside"] == outside
    assert metrics["actions_saturated"] == 0.75
    assert metrics["action_gradient_norm"] == pytest.approx(0.2, rel=1e-4)
    assert metrics["bounded_gradient_norm"] == pytest.approx(0.1 * np.linalg.norm(factors), rel=1e-3)


def test_actions_that_leave_the_box_are_counted():
    agent = DDPG(gym.make("Pendulum-v1"), STEPPED.replace(bounding="zeroing", noise_scale=0.0), seed=0)
    agent.predict(np.zeros((3, 3)))
    agent.learn(SMALL.learning_starts + 1)  # random actions, and one of the actor, which is inside the box
    assert (agent.num_clipped_predictions, agent.num_clipped_actions) == (0, 0)
    with agent.session.as_default():
        agent.actor.set_network_params([0 * p for p in agent.actor.get_network_params()[:-1]] + [np.array([1.5])])
        agent.refresh_policy()
    action, _ = agent.predict(np.zeros((3, 3)))
    np.testing.assert_array_equal(action, np.full((3, 1), 2.0))
    assert (agent.num_clipped_predictions, agent.num_clipped_actions) == (3, 0)
    agent.learn(1)
    assert agent.counts == {"clipped_actions": agent.num_clipped_actions} == {"clipped_actions": 1}


def test_observe_refuses_bad_transitions():
    agent = idle()
    good = {
        "observation": np.zeros(3),
        "action": [1.0],
        "reward": 0.0,
        "next_observation": np.zeros(3),
        "terminated": False,
        "truncated": False,
    }
    for change, message in [
        ({"action": [2.5]}, "action [2.5]"),
        ({"reward": np.nan}, "reward nan"),
        ({"next_observation": np.zeros(4)}, "next_observation (4,)"),
        ({"observation": np.zeros((2, 3))}, "one transition"),
    ]:
        with refuses(UsageError, message):
            agent.observe(**good | change)
    assert len(agent.replay) == 0
    agent.observe(**good)
    assert len(agent.replay) == 1


def test_observed_actions_are_scaled_in_float64():
    box = gym.spaces.Box(np.array([1e8, -1e300]), np.array([1e8 + 1, 1e300]), dtype=np.float64)
    agent = DDPG((gym.spaces.Box(-1, 1, (3,)), box), DDPGConfig(hidden=(4,), buffer_size=10, jit=False), seed=0)
    for action in ([1e8, 1e300], [1e8 + 0.25, 5e299], [1e8 + 1, 0.0]):
        agent.observe(np.zeros(3), action, 0.0, np.zeros(3), False, False)
    np.testing.assert_allclose(agent.replay.arrays()["actions"], [[-1, 1], [-0.5, 0.5], [1, 0]], atol=1e-7)


@pytest.mark.parametrize(("call", "message"), [("update", "n=0"), ("learn", "total_timesteps=0")])
def test_calls_without_anything_to_do_raise(call, message):
    with refuses(UsageError, message):
        getattr(idle(), call)(0)


def test_custom_networks():
    def features(states, actions=None):
        joined = states if actions is None else tf.concat([states, actions], 1)
        return tflearn.fully_connected(joined, 5, activation="tanh", scope="only", reuse=v1.AUTO_REUSE)

    agent = DDPG(gym.make("Pendulum-v1"), STEPPED, seed=0, actor_network=features, critic_network=features)
    assert [a.shape for a in params(agent)] == [(3, 5), (5,), (5, 1), (1,), (4, 5), (5,), (5, 1), (1,)]
    agent.learn(40)
    assert agent.num_updates == 20


@pytest.mark.parametrize(
    "options",
    [
        {"prioritised": "lap", "pre_activation_penalty": 0.1},
        pytest.param({"policy_gradient": "direct"}, marks=pytest.mark.slow),
    ],
)
def test_deleting_an_agent_frees_its_session_and_graph(options):
    agent = trained(SMALL.replace(**options))
    session, graph = weakref.ref(agent.session), weakref.ref(agent.graph)
    handle = agent.session
    del agent
    gc.collect()
    with refuses(RuntimeError, "closed"):
        handle.run(tf.constant(0))
    del handle
    gc.collect()
    assert session() is None
    assert graph() is None
