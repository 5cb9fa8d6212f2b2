"""Diagnostics of agents: by hand on tiny networks, with every option and path, and without side effects."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import OPTIONS, PATHS
from plain_runs import ACTIONS, SMALL, Swing

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig
from ddpg.agents.diagnostics import OF_NETWORKS, OF_VALUES, Diagnostics, diagnostic_columns
from ddpg.config.presets import RECIPES, recipe_options

LINE = gym.spaces.Box(-9.0, 9.0, (1,), np.float32)
BOX = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
TINY = {"hidden": (2,), "batch_size": 4, "buffer_size": 100, "jit": False, "optimizer": "sgd", "gamma": 0.5}


def set_weights(network, session, *arrays):
    with session.as_default():
        network.set_network_params([np.array(array, np.float32) for array in arrays])


AGENTS = {}  # by options: an agent, its diagnostics, and its empty memory


def by_hand(**options):
    """An agent without transitions whose diagnostics can be computed by hand.

    μ(s) = 0.5·relu(s), and Q(s, a) = 2·relu(s) + 2·relu(a). The actor's second unit is relu(−s).
    """
    if str(options) not in AGENTS:
        config = TINY | {"bounding": "zeroing", "actor_learning_rate": 0.3, "critic_learning_rate": 0.1} | options
        agent = DDPG((LINE, BOX), DDPGConfig(**config), seed=0)
        empty = {name: array.copy() for name, array in agent.memory.sampler.state().items()}
        AGENTS[str(options)] = agent, Diagnostics(agent), empty
    agent, _, empty = AGENTS[str(options)]
    agent.memory.sampler.restore(empty)
    agent.num_timesteps, agent.largest_reward = 0, 1.0
    if agent.config.hidden == TINY["hidden"]:
        set_weights(agent.actor, agent.session, [[1.0, -1.0]], [0.0, 0.0], [[0.5], [0.0]], [0.0])
        set_weights(agent.critic, agent.session, np.eye(2), [0.0, 0.0], [[2.0], [2.0]], [0.0])
    return agent


def observe(agent, rewards, state=1.0, terminated_at=None, truncated_at=None):
    """Store a transition for each of ``rewards``, in this order, all with the same state and action; return the agent.

    The action is 0.5.
    """
    for step, reward in enumerate(rewards):
        agent.observe([state], [0.5], reward, [state], step == terminated_at, step == truncated_at)
    return agent


# Options in which the tests below differ from the defaults; together, since none of them changes what the others test.
SCALED_AND_CLIPPED = {"rescale_rewards": True, "max_gradient_norm": 0.5}
WIDER_AND_SCHEDULED = {"hidden": (4, 2), "learning_rate_schedule": "linear", "gamma": 0.0}


def measured(agent, goal=1000):
    (diagnostics,) = (of_agent for other, of_agent, _ in AGENTS.values() if other is agent)
    return diagnostics.measure(goal)


def test_the_critics_step_by_hand():
    """s = 1, a = 0.5, y = r = 1: Q = 3, dL/dQ = 2·(3 − 1) = 4.

    Gradients: (4, 2) and 4 of the output, (8, 8, 4, 4) and (8, 8) of the hidden layer, norm √324 = 18. The step is
    0.1 times that, and the weights' norm √(1 + 1 + 4 + 4) = √10. Both units are active.
    """
    found = measured(observe(by_hand(), [1.0], terminated_at=0))
    assert found["critic_gradient_norm"] == pytest.approx(18.0)
    assert found["critic_weight_norm"] == pytest.approx(np.sqrt(10.0))
    assert found["critic_effective_learning_rate"] == pytest.approx(1.8 / np.sqrt(10.0))
    assert found["critic_dormant_share"] == found["critic_dead_share"] == 0.0
    assert found["critic_feature_rank"] == 1  # of one observation


def test_the_actors_step_by_hand():
    """r = 3 = Q, so the critic stays. ∇ₐQ = 2 at μ(s) = 0.5.

    Gradients: (2, 0) and 2 of the output, (1, 0) and (1, 0) of the hidden layer, norm √10. The step is 0.3 times
    that, and the weights' norm √(1 + 1 + 0.25) = 1.5. The second unit is never active.
    """
    found = measured(observe(by_hand(), [3.0], terminated_at=0))
    assert found["critic_gradient_norm"] == found["critic_effective_learning_rate"] == 0.0
    assert found["actor_gradient_norm"] == pytest.approx(np.sqrt(10.0))
    assert found["actor_weight_norm"] == pytest.approx(1.5)
    assert found["actor_effective_learning_rate"] == pytest.approx(0.3 * np.sqrt(10.0) / 1.5)
    assert found["actor_dormant_share"] == found["actor_dead_share"] == 0.5


def test_a_nearly_silent_unit_is_dormant_and_not_dead():
    agent = by_hand()
    set_weights(agent.actor, agent.session, [[1.0, 0.01]], [0.0, 0.0], [[0.5], [0.0]], [0.0])
    found = measured(observe(agent, [3.0]))
    assert (found["actor_dormant_share"], found["actor_dead_share"]) == (0.5, 0.0)  # its score is 0.0198


def test_features_of_two_directions():
    """For the states 1 and −1 the actor's units are (1, 0) and (0, 1), so the rank is 2 whichever 256 are drawn."""
    agent = by_hand()
    observe(agent, [0.0], state=1.0)
    assert measured(observe(agent, [0.0], state=-1.0))["actor_feature_rank"] == 2


def test_units_of_every_hidden_layer_are_counted():
    """Two of the first layer's four units are active, and both of the second's, so two of six are dead."""
    agent = by_hand(**WIDER_AND_SCHEDULED)
    first, second = [[1.0, -1.0, 2.0, -2.0]], [[1.0, 1.0]] * 4
    set_weights(agent.actor, agent.session, first, [0.0] * 4, second, [0.0] * 2, [[0.5], [0.0]], [0.0])
    assert measured(observe(agent, [3.0]))["actor_dead_share"] == pytest.approx(1 / 3)


def test_a_clipped_step_and_the_unclipped_gradient():
    found = measured(observe(by_hand(**SCALED_AND_CLIPPED), [1.0], terminated_at=0))
    assert found["critic_gradient_norm"] == pytest.approx(18.0)
    assert found["critic_effective_learning_rate"] == pytest.approx(0.05 / np.sqrt(10.0), rel=1e-5)


def test_the_step_uses_the_scheduled_learning_rate():
    """The schedule is linear; after 10 of 40 steps three quarters of the learning rate are left, of 10⁹ nearly all."""
    agent = observe(by_hand(**WIDER_AND_SCHEDULED), [1.0] * 10)
    early, later = (measured(agent, goal)["critic_effective_learning_rate"] for goal in (10**9, 40))
    assert later == pytest.approx(0.75 * early, rel=1e-5)


def values(agent):
    found = measured(agent)
    return {name: found[name] for name in OF_VALUES}


def test_q_against_the_return_by_hand():
    """γ = 0.5, so returns span 7 steps. Q(s, μ(s)) = 3; for rewards 1, 0, ..., 0, 4: R = 1 + 4/64 + 3/128."""
    agent = by_hand()
    observe(agent, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0])
    assert "q_value" not in measured(agent)  # no transition has 7 successors yet
    observe(agent, [9.0])
    found, expected = values(agent), 1 + 4 / 64 + 3 / 128
    assert found["q_value"] == pytest.approx(3.0)
    assert found["discounted_return"] == pytest.approx(expected)
    assert found["q_bias"] == pytest.approx((3 - expected) / expected)


def test_q_is_evaluated_at_clipped_actions():
    """At s = 8 the linear actor outputs 4, which is clipped to 1: Q = 2·8 + 2·1."""
    assert values(observe(by_hand(), [0.0] * 8, state=8.0))["q_value"] == pytest.approx(18.0)


def test_a_return_ends_with_its_episode():
    """Rewards 1, 2 and 4, then terminated: 1 + 1 + 1, and no bootstrap."""
    found = values(observe(by_hand(), [1.0, 2.0, 4.0] + [8.0] * 5, terminated_at=2))
    assert found == pytest.approx({"q_value": 3.0, "discounted_return": 3.0, "q_bias": 0.0})
    # Q = 3 instead of −3: the bias is twice the magnitude of the return.
    found = values(observe(by_hand(), [-3.0] + [0.0] * 7, terminated_at=0))
    assert found == pytest.approx({"q_value": 3.0, "discounted_return": -3.0, "q_bias": 2.0})


def test_a_truncated_return_is_bootstrapped_with_q():
    """Truncated instead: γ³·Q is added, with Q = 3."""
    assert values(observe(by_hand(), [1.0, 2.0, 4.0] + [8.0] * 5, truncated_at=2))[
        "discounted_return"
    ] == pytest.approx(3.0 + 3 / 8)


def test_q_is_reported_in_reward_units():
    """Rewards are divided by the largest, 4, so Q = 3 means 12 in reward units."""
    found = values(observe(by_hand(**SCALED_AND_CLIPPED), [4.0] + [0.0] * 7))
    assert found["q_value"] == pytest.approx(12.0)
    assert found["discounted_return"] == pytest.approx(4.0 + 12 / 128)


def test_the_step_uses_scaled_rewards():
    """r = 4 divided by 4: as in test_the_critics_step_by_hand."""
    assert measured(observe(by_hand(**SCALED_AND_CLIPPED), [4.0], terminated_at=0))[
        "critic_gradient_norm"
    ] == pytest.approx(18.0)


def test_with_gamma_zero_the_return_is_the_reward():
    assert values(observe(by_hand(**WIDER_AND_SCHEDULED), [2.0, 5.0]))["discounted_return"] == 2.0


def measured_once(agent, goal=1000):
    diagnostics = Diagnostics(agent)
    found = diagnostics.measure(goal)
    diagnostics.close()
    return found


def test_the_value_of_a_q_network_is_its_largest_output():
    with DQN((LINE, gym.spaces.Discrete(3)), DQNConfig(**TINY), seed=0) as agent:
        weights = [[1.0, -1.0]], [0.0, 0.0], [[1.0, 5.0, 2.0], [0.0] * 3], [0.0] * 3
        set_weights(agent.q, agent.session, *weights)
        for _ in range(8):
            agent.observe([1.0], 0, 1.0, [1.0], False, False)
        found = measured_once(agent)
    assert found["q_value"] == pytest.approx(5.0)
    assert found["q_dormant_share"] == 0.5
    assert found["q_weight_norm"] == pytest.approx(np.sqrt(2 + 1 + 25 + 4))


def swinging(config, **networks):
    """An untrained agent with a minibatch in memory."""
    env = Swing(ACTIONS)
    agent = DDPG(env, config, seed=1, **networks)
    rng = np.random.default_rng(0)
    observation, _ = env.reset()
    for _ in range(58):
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        following, reward, terminated, truncated, _ = env.step(action)
        agent.observe(observation, action, reward, following, terminated, truncated)
        observation = env.reset()[0] if terminated or truncated else following
    return agent


LITTLE = SMALL | {"hidden": (8,), "batch_size": 8, "gamma": 0.5, "updates_per_call": 1, "output_init": "fan_in"}
LITTLE |= {"jit": False}
CASES = {
    **{f"{name}={value}": needs | {name: value} for name, value, needs in OPTIONS},
    **{"=".join(path): dict([path]) for path in PATHS},
    "block=residual": {"block": "residual", "hidden": (8, 8)},
    "everything": {"n_critics": 2, "policy_delay": 4, "prioritised": "proportional", "n_steps": 3, "norm": "batch"},
}


def check_all_present(agent, found):
    assert list(found) == diagnostic_columns(agent)
    assert all(np.isfinite(number) for number in found.values()), found
    for name, number in found.items():
        if name.endswith("_share"):
            assert 0 <= number <= 1
        elif not name.startswith(OF_VALUES):
            assert number > 0, name  # ranks, norms and steps are positive


@pytest.mark.slow  # test_measuring_changes_nothing measures an agent with several of them
@pytest.mark.parametrize("case", CASES)
def test_diagnostics_with_every_option_and_path(case):
    with swinging(DDPGConfig(**LITTLE | CASES[case])) as agent:
        check_all_present(agent, measured_once(agent))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_diagnostics_of_every_recipe(recipe):
    options = recipe_options(recipe, DDPGConfig, "Swing")
    kept = {name: LITTLE[name] for name in ("batch_size", "buffer_size", "gamma", "jit")} | {"hidden": (8, 8)}
    with swinging(DDPGConfig(**options | kept)) as agent:
        check_all_present(agent, measured_once(agent))


@pytest.mark.slow
def test_custom_networks_are_measured_at_their_last_layer():
    """The last layer has five features, two of them always 0: two fifths are dead. Earlier layers are not counted."""

    def network(states, *actions):
        features = tf.keras.layers.Dense(3)(tf.concat([states, *actions], axis=1))
        return tf.concat([features, tf.zeros_like(features)[:, :2]], axis=1)

    with swinging(DDPGConfig(**LITTLE), actor_network=network) as agent:
        found = measured_once(agent)
    assert found["actor_dead_share"] == 0.4
    assert 1 <= found["actor_feature_rank"] <= 3  # the five features span three dimensions


def test_measuring_changes_nothing_and_uses_the_current_weights_and_a_generator_of_its_own():
    """Moving statistics, priorities and the count of updates stay the same, too."""
    options = {"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2, "norm": "batch", "critic_norm": None}
    with swinging(DDPGConfig(**LITTLE | options | {"prioritised": "proportional", "n_steps": 3})) as agent:
        agent.update(5)

        def state():
            found = agent.get_parameters() | {f"replay/{name}": a for name, a in agent.memory.sampler.state().items()}
            generators = {name: generator.bit_generator.state for name, generator in agent.generators.items()}
            return {name: array.copy() for name, array in found.items()}, generators, agent.num_updates

        before, diagnostics = state(), Diagnostics(agent)
        first = diagnostics.measure(1000)
        after, second = state(), diagnostics.measure(1000)
        assert (before[1], before[2]) == (after[1], after[2])
        np.testing.assert_equal(after[0], before[0])
        assert first == second  # the same step draws the same numbers
        agent.num_timesteps += 1
        assert diagnostics.measure(1000) != first  # another step draws others
        agent.num_timesteps -= 1
        agent.update(1)
        third = diagnostics.measure(1000)  # as a fresh copy: nothing is left of the measurements before
        assert third["critic_weight_norm"] != first["critic_weight_norm"]
        assert third == measured_once(agent)
        diagnostics.close()
        check_all_present(agent, third)
        assert {f"critic_2_{measure}" for measure in OF_NETWORKS} < third.keys()


def test_without_memory_nothing_is_measured():
    agent = by_hand()
    assert Diagnostics(agent).measure(100) == {}


def test_returns_of_a_vector_stay_within_one_environment():
    """Two environments with rewards 1 and 3, γ = 0.5: returns of 7 steps, which only the oldest two rows have."""
    agent = by_hand()
    agent.env = gym.make_vec("Pendulum-v1", 2)
    for step in range(8):
        for env_index in range(2):
            state = [1.0 + step + 0.25 * env_index], [2.0 + step + 0.25 * env_index]
            agent.observe(state[0], [0.5], 1.0 + 2 * env_index, state[1], False, False, env_index=env_index)
    found = values(agent)
    agent.env = agent.env.close()
    # R = r·(2 − 2⁻⁶) + 2⁻⁷·Q(s₇, μ(s₇)) with Q = 2·s₇ + 2; 256 draws of two rows are a mean between both.
    lowest, highest = ((2 - 2**-6) * r + 2**-7 * (2 * s + 2) for r, s in ((1, 8), (3, 8.25)))
    assert lowest < found["discounted_return"] < highest
    assert found["discounted_return"] == pytest.approx((lowest + highest) / 2, rel=0.1)
    assert 3.0 < found["q_value"] < 3.75  # from the states 1 and 1.25 only
