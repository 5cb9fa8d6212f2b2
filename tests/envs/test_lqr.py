"""The linear-quadratic regulator with a known optimum: the environment, its Riccati solution, and a learned critic."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import ddpg_envs
from ddpg import DDPG, UsageError, evaluate
from ddpg.config.presets import PRESETS, preset_config

LQR = ddpg_envs.LQREnv
ENV_ID = "ddpg_envs/LQR-v0"


def test_render_shows_the_mass():
    env = gym.make(ENV_ID, render_mode="rgb_array")
    env.reset(options={"state": [1.0, 0.0]})

    def columns(colour):
        mass_and_arrow = env.render()[60:]  # below the text
        return np.argwhere((mass_and_arrow == colour).all(axis=-1))[:, 1]

    assert env.render().shape == (176, 640, 3)
    assert columns((40, 90, 200)).mean() == pytest.approx(320 + 128, abs=1)  # 1 m to the right of the middle
    assert len(columns((200, 60, 60))) == 0
    env.step(np.array([-2.5], np.float32))  # the largest force: an arrow of 0.6 m to the left, from the new position
    assert columns((200, 60, 60)).min() == pytest.approx(448 - 0.6 * 128, abs=3)
    assert columns((200, 60, 60)).max() == pytest.approx(448, abs=3)
    env.reset(options={"state": [9.0, 0.0]})
    assert columns((40, 90, 200)).mean() == pytest.approx(320 + 256, abs=1)


@given(st.integers(0, 1000), st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20))
@settings(max_examples=20)
def test_deterministic_finite_and_clipped(seed, actions):
    trajectories = []
    for bound in (2.5, 100.0):
        env = gym.make(ENV_ID)
        states = [env.reset(seed=seed)[0]]
        for action in actions:
            state, reward, terminated, truncated, _ = env.unwrapped.step(np.clip([action], -bound, bound))
            assert np.isfinite(state).all()
            assert reward <= 0
            assert (terminated, truncated) == (False, False)
            states.append(state)
        trajectories.append(states)
    np.testing.assert_array_equal(*trajectories)


def test_ends_after_100_steps():
    env = gym.make(ENV_ID)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(100)]
    assert ends == [(False, False)] * 99 + [(False, True)]


@pytest.mark.parametrize("gamma", [0.9, 0.95, 0.99])
def test_riccati_solves_bellman_and_the_gain_is_admissible(gamma, rng):
    states = rng.uniform(-1, 1, (500, 2))
    gain = LQR.optimal_gain(gamma)
    best = -states @ gain.T
    # V*(x) = max over a of Q*(x, a), attained by the gain's action.
    np.testing.assert_allclose(LQR.action_value(states, best, gamma), LQR.value(states, gamma), rtol=1e-8)
    np.testing.assert_allclose(LQR.action_gradient(states, best, gamma), 0, atol=1e-9)
    assert (LQR.action_value(states, best + 0.1, gamma) < LQR.value(states, gamma)).all()
    # Actions are never clipped on the way to the origin.
    for _ in range(100):
        actions = -states @ gain.T
        assert np.abs(actions).max() < 2.5
        states = states @ LQR.A.T + actions @ LQR.B.T


def test_action_gradient_is_the_derivative(rng):
    states, actions = rng.uniform(-1, 1, (50, 2)), rng.uniform(-2, 2, (50, 1))
    numeric = (LQR.action_value(states, actions + 1e-5, 0.95) - LQR.action_value(states, actions - 1e-5, 0.95)) / 2e-5
    np.testing.assert_allclose(LQR.action_gradient(states, actions, 0.95)[:, 0], numeric, rtol=1e-6, atol=1e-6)


def test_value_is_the_discounted_return():
    env, gamma, total = gym.make(ENV_ID, max_episode_steps=400), 0.9, 0.0
    state, _ = env.reset(options={"state": [0.7, -0.4]})
    gain = LQR.optimal_gain(gamma)
    for step in range(400):
        state, reward, *_ = env.step((-gain @ state).astype(np.float32))
        total += gamma**step * reward
    assert total == pytest.approx(LQR.value(np.array([[0.7, -0.4]]), gamma)[0], rel=1e-4)


@pytest.mark.slow
def test_learned_action_gradient_and_policy_are_the_exact_ones():
    """DDPG from scratch: its critic's ∇ₐQ against the Riccati solution, and its policy against the gain."""
    env = gym.make(ENV_ID)
    preset = PRESETS[ENV_ID]
    agent = DDPG(env, preset_config(ENV_ID), seed=0).learn(preset.total_timesteps)
    gamma = agent.config.gamma
    rng = np.random.default_rng(0)
    states = rng.uniform(-0.7, 0.7, (400, 2))
    best = -states @ LQR.optimal_gain(gamma).T
    # ∇ₐQ near the policy, where it is used; exact per newton, and the critic's per half-range (2.5 N).
    forces = best + rng.uniform(-0.5, 0.5, best.shape)
    exact = 2.5 * LQR.action_gradient(states, forces, gamma)
    with agent.session.as_default():
        learned = agent.critic.action_gradients(states, forces / 2.5)
    assert np.corrcoef(learned[:, 0], exact[:, 0])[0, 1] > 0.9
    slope = (learned * exact).sum() / (exact**2).sum()
    assert 0.9 < slope < 1.1
    actions, _ = agent.predict(states)
    assert np.corrcoef(actions[:, 0], best[:, 0])[0, 1] > 0.98
    # Within 10 % of the optimal return, from the same initial states.

    class Optimal:
        def predict(self, observation, deterministic):
            return (-LQR.optimal_gain(0.99) @ observation).astype(np.float32), None

    optimum = evaluate(Optimal(), env, 50, seed=1).returns.mean()
    assert evaluate(agent, env, 50, seed=1).returns.mean() > 1.1 * optimum


@pytest.mark.parametrize(
    ("env_id", "force", "felt"),
    [
        ("ddpg_envs/LQR-v0", -3.0, -2.5),
        ("ddpg_envs/LQR-v0", -2.0, -2.0),
        ("ddpg_envs/AsymmetricLQR-v0", -2.0, -0.5),
        ("ddpg_envs/AsymmetricLQR-v0", 2.0, 2.0),
    ],
)
def test_forces_outside_the_box_are_clipped_and_reported(env_id, force, felt):
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0, options={"state": [0.0, 0.0]})
    observation, reward, _, _, info = env.step([force])
    assert observation[1] == pytest.approx(0.1 * felt)  # Δv = dt · force / 1 kg
    assert reward == pytest.approx(-0.2 * felt**2)
    assert info["action_clipped"] == (felt != force)


@pytest.mark.parametrize(("low", "high"), [(1, 2), (-2, -1), (0, 1), (-1, 0), (1, -1)])
def test_forces_must_be_possible_to_either_side(low, high):
    with refuses(UsageError, f"low={low} high={high}"):
        LQR(low, high)


@pytest.mark.parametrize("state", [[0.5], [np.nan, 0], [1, 2, 3]])
def test_an_initial_state_must_be_two_finite_numbers(state):
    with refuses(UsageError, "two"):
        LQR().reset(options={"state": state})


@pytest.mark.parametrize("action", [[[0.5]], [0.5, 0.5], [np.nan], ["a"], [[1], 2], None])
def test_a_force_must_be_one_finite_number(action):
    env = LQR()
    env.reset(seed=0)
    with refuses(UsageError, "one"):
        env.step(action)
