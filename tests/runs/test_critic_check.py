"""``check_critic``: Q beside simulated returns of disturbed actions."""

import dataclasses
import json
import math

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

import ddpg
from ddpg import DDPG, DDPGConfig, UsageError, progress
from ddpg.cli.main import main
from ddpg.runs import critic_check
from ddpg.runs.critic_check import CriticCheck, MeanOverStates, checked_options, ordered_pairs

TARGET, GAMMA, LENGTH = 0.5, 0.9, 5
SMALL = DDPGConfig(
    hidden=(16,), gamma=GAMMA, jit=False, learning_starts=50, batch_size=32, buffer_size=2_000, optimizer="sgd"
)


class Aim(gym.Env):
    """The reward is −(a − 0.5)² plus what the reset drew, and actions change nothing else."""

    observation_space = gym.spaces.Box(-2, 2, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length=LENGTH, truncates=False, reproducible=True):
        self.length, self.truncates, self.reproducible = length, truncates, reproducible

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, rng = self.length, self.np_random if self.reproducible else np.random.default_rng()
        self.bonus = float(rng.uniform())
        return self.observation, {}

    @property
    def observation(self):
        return np.array([self.bonus, self.left / self.length], np.float32)

    def step(self, action):
        self.left -= 1
        reward = self.bonus - (float(action[0]) - TARGET) ** 2
        over = self.left == 0
        return self.observation, reward, over and not self.truncates, over and self.truncates, {}


def agent_in(env, **options):
    return DDPG(env, SMALL.replace(**options), seed=0)


@pytest.fixture(scope="module")
def untrained():
    """An agent that learns nothing, in no environment."""
    with DDPG((Aim.observation_space, Aim.action_space), SMALL, seed=0) as agent:
        yield agent


def test_pairs_by_hand():
    """1 < 2 and 1 < 3 agree, 2 < 3 does not; equal Q count as half; nothing is known if returns are equal."""
    q = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    returns = np.array([[1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [5.0, 5.0, 5.0], [5.0, 5.0, 6.0]])
    np.testing.assert_array_equal(ordered_pairs(q, returns), [2 / 3, 0.5, np.nan, 1.0])


def test_more_actions_than_memory_can_compare_are_refused_at_once(untrained, monkeypatch):
    """Tables of all pairs would fill it: 32 bytes for each of K² pairs, so 10 GB are enough for 17,677 actions."""
    monkeypatch.setattr(critic_check, "memory_limit", lambda: 10_000_000_000)
    checked_options(1, 17_677, 0.3, None, None)
    for actions in (17_678, 2**31, 2**63 - 1):
        with refuses(UsageError, "actions=", "10.0 GB", "17677"):
            ddpg.check_critic(untrained, Aim(), actions=actions)


def test_an_interval_by_hand():
    """Of 1, 2, 3 the standard error is 1/√3, and Student's t with two degrees of freedom is 4.3027."""
    mean = MeanOverStates.of(np.array([1.0, 2.0, np.nan, 3.0]))
    assert (mean.mean, mean.low) == pytest.approx((2.0, 2.0 - 4.3027 / math.sqrt(3)), abs=1e-4)
    assert math.isnan(MeanOverStates.of(np.array([1.0])).low)
    assert math.isnan(MeanOverStates.of(np.array([np.nan])).mean)


def test_returns_and_q_are_of_the_same_actions(untrained):
    """Only the first reward depends on the tried action; the rest of an episode is the policy's."""
    env = Aim()
    found = ddpg.check_critic(untrained, env, states=4, actions=3, seed=7)
    assert found.actions.shape == (4, 5, 1)
    for number in range(4):
        observation, _ = env.reset(seed=7 + number)
        for _ in range(found.steps[number]):
            observation = env.step(untrained.predict(observation)[0])[0]
        tried, left = found.actions[number, :, 0], LENGTH - found.steps[number]
        np.testing.assert_allclose(tried[0], untrained.predict(observation)[0][0], atol=1e-6)
        rest, later = 0.0, observation
        for step in range(1, left):
            later = np.array([observation[0], (left - step) / LENGTH], np.float32)
            rest += GAMMA**step * (env.bonus - (float(untrained.predict(later)[0][0]) - TARGET) ** 2)
        expected = env.bonus - (tried.astype(np.float64) - TARGET) ** 2 + rest
        np.testing.assert_allclose(found.returns[number], expected, atol=1e-6)
        with untrained.session.as_default():
            q = untrained.critic.predict(np.repeat(observation[None], 5, axis=0), tried[:, None])[:, 0]
            gradient = untrained.critic.action_gradients(observation[None], tried[:1, None])[0, 0]
        np.testing.assert_allclose(found.q_values[number], q, rtol=1e-5, atol=1e-6)
        assert np.sign(tried[-1] - tried[0]) == np.sign(gradient)
        assert abs(tried[-1] - tried[0]) == pytest.approx(0.3, abs=1e-5) or abs(tried[-1]) == 1


def test_q_is_in_units_of_the_environment():
    """Rewards and observations are normalised; Q is multiplied by the scale of rewards again."""
    env = Aim()
    with agent_in(env, normalize_observations=True, normalize_rewards=True) as agent:
        agent.learn(200)
        found = ddpg.check_critic(agent, env, states=2, actions=1, seed=0)
        observation = env.reset(seed=0)[0]
        for _ in range(found.steps[0]):
            observation = env.step(agent.predict(observation)[0])[0]
        with agent.session.as_default():
            q = agent.critic.predict(agent.memory.observations(observation[None]), found.actions[0, :1])[0, 0]
        assert agent.reward_scale != 1
        assert found.q_values[0, 0] == pytest.approx(agent.reward_scale * q, rel=1e-5)


def test_q_stands_for_what_follows_a_horizon(untrained):
    """Of one step: r + γ·Q(s′, μ(s′)), and r alone in the last step of an episode."""
    env = Aim()
    found = ddpg.check_critic(untrained, env, states=6, actions=1, horizon=1, seed=3)
    last = 0
    for number in range(6):
        observation, _ = env.reset(seed=3 + number)
        for _ in range(found.steps[number]):
            observation = env.step(untrained.predict(observation)[0])[0]
        following, expected, over, *_ = env.step(found.actions[number, 1])
        if not over:
            with untrained.session.as_default():
                expected += GAMMA * float(
                    untrained.critic.predict(following[None], untrained.predict(following)[0][None])[0, 0]
                )
        assert found.returns[number, 1] == pytest.approx(expected, abs=1e-5)
        last += over
    assert 0 < last < 6
    assert (found.horizon, found.bootstrapped) == (1, True)
    assert "then Q" in str(found)


def test_q_stands_for_what_follows_a_time_limit():
    """Q = 10, and m = 3, 4 or 5 of the 5 rewards are left, all within the horizon: the return ends with 10·γ^m."""
    env = Aim(truncates=True)
    with agent_in(env) as agent:
        with agent.session.as_default():
            *arrays, bias = agent.critic.get_network_params()
            agent.critic.set_network_params([*map(np.zeros_like, arrays), np.full_like(bias, 10)])
        cut, alone = (ddpg.check_critic(agent, env, 4, 1, horizon=h, seed=0) for h in (LENGTH, None))
    left = LENGTH - cut.steps
    assert set(left) <= {3, 4, 5}
    np.testing.assert_allclose(cut.returns - alone.returns, np.repeat(10 * GAMMA ** left[:, None], 3, 1), atol=1e-5)


@pytest.mark.slow
def test_a_trained_critic_orders_actions():
    env = Aim()
    options = {"optimizer": "adam", "actor_learning_rate": 1e-6, "critic_learning_rate": 3e-3, "noise_scale": 0.5}
    with agent_in(env, **options) as agent:
        agent.learn(1_500)  # the actor hardly moves, so that a step along the gradient has something to gain
        found = ddpg.check_critic(agent, env, seed=0)
    assert found.ordered.low > 0.8
    assert found.gain.low > 0


@pytest.mark.slow
def test_states_are_a_returns_length_from_a_time_limit():
    """0.9^44 < 0.01: of 200 steps, states are among the first 156, and with γ = 0.99 in the first half."""
    env = Aim(length=200, truncates=True)
    for gamma, latest in ((0.9, 156), (0.99, 100)):
        with agent_in(env, gamma=gamma) as agent:
            found = ddpg.check_critic(agent, env, states=40, actions=1, seed=0)
        assert 0.8 * latest < found.steps.max() < latest
        assert found.horizon == (44 if gamma == 0.9 else 459)


def test_episodes_without_an_end_are_left(untrained):
    env = Aim(length=1_000_000)
    assert ddpg.check_critic(untrained, env, states=2, actions=1, seed=0).steps.max() < 1_000


def test_options_change_what_is_tried(untrained):
    env = Aim()
    usual = ddpg.check_critic(untrained, env, 3, 2, seed=0)
    again, narrow, other = (
        ddpg.check_critic(untrained, env, 3, 2, **options)
        for options in ({"seed": 0}, {"seed": 0, "disturbance": 0.01}, {"seed": 1})
    )
    np.testing.assert_array_equal(usual.actions, again.actions)
    np.testing.assert_array_equal(usual.returns, again.returns)
    assert np.abs(narrow.actions[:, 1:] - narrow.actions[:, :1]).max() < 0.05
    assert not np.array_equal(usual.actions, other.actions)


def test_a_training_episode_in_the_same_environment_is_abandoned():
    env = Aim()
    with agent_in(env) as agent:
        agent.learn(3)
        ddpg.check_critic(agent, env, 1, 1, seed=0)
        agent.learn(100)  # would refuse a transition that does not follow


class Doubling(Aim):
    """Observes the last action, and doubles each in the array that it was given."""

    def reset(self, *, seed=None, options=None):
        self.last = 0.0
        return super().reset(seed=seed)

    @property
    def observation(self):
        return np.array([self.last, self.left / self.length], np.float32)

    def step(self, action):
        assert abs(action[0]) <= 1
        action *= 2
        self.last = float(action[0])
        return super().step(action)


def test_an_environment_that_writes_into_its_actions_gets_the_same_ones_again(untrained):
    check = ddpg.check_critic(untrained, Doubling(length=20), states=10, seed=0)
    assert check.steps.max() > 1
    assert np.isfinite(check.returns).all()


def test_numbers_that_are_not_known_are_none():
    zeros = np.zeros((1, 3))
    found = CriticCheck(np.zeros((1, 3, 1)), zeros, zeros, np.zeros(1, int), 0.3, 10)
    assert found.summary()["ordered_pairs"] is None
    assert "not known" in str(found)
    known = dataclasses.replace(found, q_values=np.array([[1.0, 2, 3]] * 2), returns=np.array([[1.0, 2, 2]] * 2))
    assert "100 %" in str(known)
    assert known.summary()["gradient_step_gain"] == 1
    assert known.summary()["gradient_step_predicted"] == 2
    halves = dataclasses.replace(known, q_values=np.array([[1.0, 2, 3], [2, 1, 3]]))  # of two states one is ordered
    assert halves.ordered == MeanOverStates(0.5, 0.0, 1.0)


def test_refusals(untrained):
    agent, env = untrained, Aim()
    with ddpg.DQN(gym.make("CartPole-v1"), seed=0) as discrete:
        with refuses(UsageError, "agent"):
            ddpg.check_critic(discrete, gym.make("CartPole-v1"))
        with refuses(UsageError, "agent=3"):
            ddpg.check_critic(3, env)
        with refuses(UsageError, "a vector"):
            ddpg.check_critic(agent, gym.vector.SyncVectorEnv([Aim]))
        with refuses(UsageError, "action space"):
            ddpg.check_critic(agent, gym.wrappers.RescaleAction(env, -2, 2))
        with refuses(UsageError, "reset(seed=...)"):
            ddpg.check_critic(agent, Aim(reproducible=False), 2, 2, seed=0)
        for option, value in (
            ("states", 0),
            ("actions", 0),
            ("disturbance", 0),
            ("disturbance", math.nan),
            ("seed", -1),
        ):
            with refuses(UsageError, option):
                ddpg.check_critic(agent, env, **{option: value})


def test_the_command(tmp_path, capsys):
    options = {"total_timesteps": 60, "evaluation_interval": 60, "evaluation_episodes": 1, "progress_bar": False}
    run = ddpg.train("Pendulum-v1", SMALL, seed=0, root=tmp_path, **options)
    capsys.readouterr()
    small = ["--states", "2", "--actions", "2"]
    assert main(["check-critic", str(run), "--json", *small]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["env_id"], found["timesteps"], found["states"], found["horizon"]) == ("Pendulum-v1", 60, 2, 44)
    assert not found["bootstrapped"]
    assert main(["check-critic", str(run), *small, "--seed", str(found["seed"])]) == 0
    assert progress.format_number(found["q_value"]) in capsys.readouterr().out
    assert main(["check-critic", str(run), *small, "--horizon", "5"]) == 0
    assert "5 steps, then Q" in capsys.readouterr().out
    assert main(["check-critic", "zoo:Pendulum-v1"]) == 2
    assert "without its critic" in capsys.readouterr().err
