"""What a worker gets from the agent: its share of exploration and the policy; and the options that workers lack."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import SMALL_UPDATE
from environments import Counting, Shaped
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, mlp
from ddpg.workers.remote_loop import current_weights, worker_exploration, worker_spec_of
from ddpg.workers.worker import RolloutRequest, Worker
from ddpg.workers.worker_options import check_options


def agent_of(**options):
    small = {"hidden": (4,), "jit": False, "optimizer": "sgd", "target": "online"}
    return DDPG(Counting(), DDPGConfig(**small | options), seed=3)


def scale_of(behaviour):
    """Return the standard deviation of 4000 draws of a behaviour's noise."""
    behaviour.rng = np.random.default_rng(0)
    return float(np.std([behaviour.act(zero, np.zeros((1, 2)), 10_000)[0] for _ in range(4000)]))


def zero(observations):
    return np.zeros((len(observations), 1), np.float32)


def test_noise_is_spread_over_the_workers_geometrically():
    with agent_of(noise_scale=0.1) as agent:
        scales = [scale_of(worker_exploration(agent, worker, 3)) for worker in range(3)]
        assert scales == pytest.approx([0.2, 0.1, 0.05], rel=0.05)
        assert scale_of(worker_exploration(agent, 0, 1)) == pytest.approx(0.1, rel=0.05)


def test_a_noise_schedule_is_scaled_per_worker():
    with agent_of(noise_scale=0.1, noise_schedule="linear", noise_final=0.02, exploration_steps=5000) as agent:
        scales = [scale_of(worker_exploration(agent, worker, 2)) for worker in range(2)]
        assert scales == pytest.approx([0.04, 0.01], rel=0.05)


def test_epsilon_is_spread_as_in_ape_x():
    agent = DQN(
        Counting(action_space=gym.spaces.Discrete(2)), DQNConfig(hidden=(4,), jit=False, exploration_final=0.5), seed=0
    )
    with agent:
        shares = [worker_exploration(agent, worker, 3).epsilon(10_000) for worker in range(3)]
        assert shares == pytest.approx([0.5, 0.5**4.5, 0.5**8])
        assert worker_exploration(agent, 0, 1).epsilon(10_000) == 0.5
        assert worker_exploration(agent, 2, 3).epsilon(0) == 1


def test_a_worker_acts_as_the_agent_does():
    with agent_of(normalize_observations=True) as agent:
        agent.observe([1.0, 2.0], [0.0], 0.0, [3.0, 4.0], False, False)
        agent.observe([3.0, 4.0], [0.0], 0.0, [5.0, 7.0], True, False)
        spec = worker_spec_of(agent, Counting, 1, 3, 0)
        spec.behaviours[0].random_steps = 0
        spec.behaviours[0]._noise.scale = np.float32(0)
        worker = Worker(spec, 0, 0)
        worker.load(0, current_weights(agent))
        rollout = worker.rollout(RolloutRequest(0, 0, 0, 0))
        np.testing.assert_allclose(
            rollout.transitions.actions, agent.policy(rollout.transitions.observations), atol=1e-6
        )
        assert np.ptp(rollout.transitions.actions) > 1e-4


@pytest.mark.parametrize("jit", [False, True])
def test_a_worker_acts_on_images_as_the_agent_does(jit):
    """Its weights are those of the moment, although the agent acts in the session or by compiled code."""
    env = partial(Shaped, gym.spaces.Box(0, 255, (2, 7, 6), np.uint8), gym.spaces.Box(-1, 1, (2,)))
    config = DDPGConfig(network="conv", hidden=(4,), jit=jit, buffer_size=50, learning_starts=0, **SMALL_UPDATE)
    with DDPG(env(), config, seed=3) as agent:
        assert agent.policy.program is None
        spec = worker_spec_of(agent, env, 1, 3, 0)
        spec.behaviours[0]._noise.scale = np.float32(0)
        worker = Worker(spec, 0, 0)
        found = []
        for version in range(2):
            worker.load(version, current_weights(agent))
            seen = worker.rollout(RolloutRequest(0, 0, version, 0)).transitions
            assert seen.observations.dtype == np.uint8
            with agent.session.as_default():
                np.testing.assert_allclose(seen.actions, agent.actor.predict(np.float32(seen.observations)), atol=1e-6)
            found.append(seen.actions)
            agent.set_parameters({name: 3 * value for name, value in agent.get_parameters().items()})
        assert np.abs(found[0] - found[1]).max() > 1e-3


def test_workers_without_a_numpy_program_are_refused():
    def pooled(states):
        return mlp((4,))(tf.nn.max_pool2d(states, 2, 2, "SAME"))

    env = Shaped(gym.spaces.Box(0, 255, (6, 6, 1), np.uint8), gym.spaces.Box(-1, 1, (2,)))
    agent = DDPG(env, DDPGConfig(jit=False, buffer_size=50, **SMALL_UPDATE), seed=3, actor_network=pooled)
    with agent, refuses(UsageError, "workers NumPy collector='local'"):
        worker_spec_of(agent, Shaped, 1, 3, 0)


def test_current_weights_change_with_updates():
    with agent_of(learning_starts=0, batch_size=2, optimizer="adam") as agent:
        agent.observe([1.0, 2.0], [0.0], 0.0, [3.0, 4.0], False, False)
        before = [array.copy() for array in current_weights(agent)]
        agent.update(3)
        assert not any(np.array_equal(old, new) for old, new in zip(before, current_weights(agent), strict=True))


def test_all_unsupported_options_are_named_in_one_error():
    class Own:
        def sample(self, rng):
            return np.zeros((1, 1), np.float32)

        def reset(self, index):
            pass

    config = DDPGConfig(noise=Own(), parameter_noise=0.1, overlap=True, step_timeout=3.0)
    with pytest.raises(UsageError) as caught:
        check_options(config, 2)
    for name in ("n_envs=2", "noise=", "parameter_noise=0.1", "overlap=True", "step_timeout=3.0"):
        assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    check_options(DDPGConfig(n_steps=3, normalize_observations=True, hindsight=0, prioritised="lap"))


def test_a_make_env_that_cannot_be_pickled_is_refused():
    with agent_of() as agent, refuses(UsageError, "worker"):
        worker_spec_of(agent, lambda: Counting(), 1, 3, 0)
