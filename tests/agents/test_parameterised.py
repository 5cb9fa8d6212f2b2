"""DDPG with parameterised actions: Tuple(Discrete, Tuple(Box, ...)) and OneOf(Box, ...)."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Aiming
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, Bounding, DDPGConfig, FlattenParameterisedAction, UsageError, evaluate
from ddpg.gradients.bounding import inverting, tanh_head

SPACES = {"Tuple": Aiming.tuple_space, "OneOf": Aiming.one_of_space}
SMALL = DDPGConfig(
    hidden=(32,),
    batch_size=32,
    learning_starts=200,
    updates_per_call=10,
    bounding="inverting",
    exploration_steps=1_000,
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    jit=False,
)
# Where nothing has to be learned: no Adam slots and the driver with the smallest graph, which is built sooner.
QUICK = SMALL.replace(optimizer="sgd", td_target="placeholder", updates_per_call=1)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
def test_learns_the_choice_and_its_parameters(space):
    """The best action is aim(7) with reward 1; uniformly random actions get about -0.1."""
    env = Aiming(SPACES[space])
    agent = DDPG(env, SMALL.replace(jit=True), seed=0)
    agent.learn(2_000)
    result = evaluate(agent, env, 5)
    assert result.summary()["success_rate"] == 1
    assert result.returns.mean() > 0.95


@pytest.mark.parametrize(("space", "mode"), [("Tuple", AutoresetMode.NEXT_STEP), ("OneOf", AutoresetMode.SAME_STEP)])
def test_vector_of_environments(space, mode):
    env = SyncVectorEnv([lambda: Aiming(SPACES[space])] * 3, autoreset_mode=mode)
    agent = DDPG(env, QUICK.replace(learning_starts=20, updates_per_step=1e-9), seed=0)
    agent.learn(60)
    stored = agent.replay.arrays()
    rewards = [1 - ((5 * row[3] + 5 - 7) / 5) ** 2 for row in stored["actions"] if row[:3].argmax() == 0]
    chosen = stored["actions"][:, :3].argmax(axis=1)
    np.testing.assert_allclose(stored["rewards"][chosen == 0, 0], rewards, atol=1e-5)
    np.testing.assert_array_equal(stored["rewards"][chosen == 2], 0)
    assert len(set(chosen)) == 3


def test_learning_through_the_wrapper_is_the_same():
    config = QUICK.replace(exploration_initial=1.0, exploration_final=0.1, learning_starts=40, exploration_steps=100)
    agents = [DDPG(env, config, seed=0) for env in (Aiming(), FlattenParameterisedAction(Aiming()))]
    for agent in agents:
        agent.learn(80)
    direct, wrapped = (agent.replay.arrays() for agent in agents)
    for name in direct:
        np.testing.assert_allclose(direct[name], wrapped[name], atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def agent():
    """An agent without noise."""
    return DDPG(Aiming(), QUICK.replace(noise_scale=0.0, learning_starts=0), seed=0)


def acting(agent):
    """Return actions in one environment, and whether each was clipped."""
    return agent.behaviour.act(agent.policy, np.zeros((1, 1), np.float32), agent.num_timesteps)


def test_exploration_is_epsilon_greedy_over_choices_and_parameters(agent):
    agent.num_timesteps = 0
    assert agent.exploration == 1.0
    policy = agent.policy(np.zeros((1, 1), np.float32))
    shares = []
    for steps in (0, 500, 1_000, 5_000):
        agent.num_timesteps = steps
        actions = np.concatenate([acting(agent)[0] for _ in range(2_000)])
        random = (actions != policy).any(axis=1)
        shares.append(random.mean())
        spread = actions[random]
        assert np.abs(spread.mean(axis=0)).max() < 0.2
        np.testing.assert_allclose(spread.std(axis=0), 1 / np.sqrt(3), atol=0.1)
        chosen = np.bincount(spread[:, :3].argmax(axis=1), minlength=3) / len(spread)
        np.testing.assert_allclose(chosen, 1 / 3, atol=0.12)
    np.testing.assert_allclose(shares, [1, 0.55, 0.1, 0.1], atol=0.04)


def test_predict_explores_in_the_same_way(agent):
    agent.num_timesteps = 0
    policy, _ = agent.predict([0.0])
    chosen = [agent.predict([0.0], deterministic=False)[0][0] for _ in range(300)]
    np.testing.assert_allclose(np.bincount(chosen, minlength=3) / 300, 1 / 3, atol=0.1)
    agent.num_timesteps = QUICK.exploration_steps
    chosen = [agent.predict([0.0], deterministic=False)[0][0] for _ in range(300)]
    assert np.mean(np.equal(chosen, policy[0])) > 0.85  # ε = 0.1


def test_random_actions_are_never_counted_as_clipped():
    agent = DDPG(Aiming(), QUICK.replace(noise_scale=100.0, learning_starts=0, exploration_final=1.0), seed=0)
    assert not any(acting(agent)[1].any() for _ in range(100))


def test_inverting_applies_to_all_outputs(agent):
    """Scores and parameters alike: at twice the bound, an outward gradient turns inwards."""
    with agent.graph.as_default():
        gradient = agent.actor.bound_action_gradient(np.ones((1, 6), np.float32), np.full((1, 6), 2, np.float32))
        np.testing.assert_array_equal(agent.session.run(gradient), np.full((1, 6), -0.5))


def test_inverting_on_a_tanh_head_is_refused():
    with refuses(UsageError, "damps twice"):
        DDPG(Aiming(), QUICK.replace(bounding=Bounding(tanh_head, inverting)))


@pytest.mark.parametrize("space", SPACES)
def test_checkpoint_keeps_the_space(space, tmp_path):
    agent = DDPG(Aiming(SPACES[space]), QUICK, seed=0)
    agent.learn(100)
    agent.save(tmp_path / "checkpoint")
    loaded = DDPG.load(tmp_path / "checkpoint")
    assert loaded.action_space == SPACES[space]
    assert str(loaded.predict([0.0])) == str(agent.predict([0.0]))
    other = SPACES["OneOf" if space == "Tuple" else "Tuple"]
    with refuses(UsageError, "action space"):
        DDPG.load(tmp_path / "checkpoint", Aiming(other))


def test_observe_stores_the_choice(agent):
    agent.observe([0.0], (0, ([7.0], [0.0, 0.0], [])), 1.0, [0.0], True, False)
    np.testing.assert_allclose(agent.replay.arrays()["actions"][0], [1, -1, -1, 0.4, 0, 0], rtol=1e-6)


def test_zero_width_parameters_are_refused():
    box = gym.spaces.Box(np.zeros(1, np.float32), np.zeros(1, np.float32))
    space = gym.spaces.Tuple((gym.spaces.Discrete(1), gym.spaces.Tuple((box,))))
    with refuses(UsageError, "parameters action 0 width"):
        DDPG(Aiming(space))
