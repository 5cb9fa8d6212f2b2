"""Actions are finite, or an error names the observation: of agents, of exported policies, and during learning."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.errors import EnvironmentFault
from ddpg.interaction.actions import finite_outputs
from ddpg.policies import standalone

BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
SPACES = (BOX, gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
HUGE = np.array([3e38, -3e38, 3e38])
SMALL = {"hidden": (64, 64), "jit": False, "buffer_size": 50, "optimizer": "sgd"}


@pytest.fixture(
    scope="module",
    params=[{"bounding": "squashing"}, {"bounding": "inverting"}, {"norm": "batch"}, {"algorithm": "DQN"}],
    ids=str,
)
def agent(request):
    options = {**SMALL, **request.param}
    if options.pop("algorithm", "") == "DQN":
        agent = DQN((BOX, gym.spaces.Discrete(3)), DQNConfig(**options), seed=0)
    else:
        agent = DDPG(SPACES, DDPGConfig(**options), seed=0)
    # Larger weights, as after learning: initially those of the output layer are too small to overflow.
    weights = agent.get_parameters()
    agent.set_parameters({n: 30 * v if v.ndim == 2 else v for n, v in weights.items()})
    return agent


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_agent_refuses_to_act_with_nan(agent, deterministic, recwarn):
    with refuses(UsageError, "observation 1 3e+38"):
        agent.predict(np.stack([np.zeros(3), HUGE]), deterministic=deterministic)
    assert np.isfinite(agent.predict(np.full(3, 1e6), deterministic=deterministic)[0]).all()
    assert not recwarn.list


def test_an_exported_policy_refuses_to_act_with_nan(agent, tmp_path, recwarn):
    policy = ddpg.load_policy(agent.export(tmp_path / "policy"))
    with refuses(UsageError, "observation 0 3e+38"):
        policy.predict(HUGE)
    with np.errstate(all="ignore"), refuses(ValueError, "overflow"):
        standalone.load(tmp_path / "policy")(HUGE)
    observations = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(policy.predict(observations)[0], agent.predict(observations)[0])
    assert not [warning for warning in recwarn.list if warning.category is RuntimeWarning]


@pytest.mark.parametrize("compiled", [False, True])
def test_learning_ends_with_an_environment_error(compiled):
    class Huge(Counting):
        def _observation(self):
            return HUGE if self.step_number == 3 else np.zeros(3)

    env = Huge(9, observation_space=BOX)
    options = SMALL | {"jit": compiled, "learning_starts": 0, "updates_per_step": 1e-9}
    agent = DDPG(env, DDPGConfig(**options), seed=0)
    agent.set_parameters({n: 30 * v if v.ndim == 2 else v for n, v in agent.get_parameters().items()})
    with refuses(EnvironmentFault, "3e+38"):
        agent.learn(9)
    assert agent.num_timesteps == 3


def test_non_finite_weights_are_named_instead_of_the_observation():
    def policy(observations):
        return observations * np.float32(np.nan)

    with refuses(FloatingPointError, "weights"):
        finite_outputs(policy, np.zeros((2, 3), np.float32), not_finite=FloatingPointError)


@pytest.mark.parametrize("value", [0.0, -1.0, 3e38, -3e38])
def test_large_finite_outputs_pass(value):
    """Their squares overflow, but a linear layer may output them."""
    outputs = np.full((2, 3), value, np.float32)
    assert finite_outputs(lambda observations: outputs, np.zeros((2, 1), np.float32)) is outputs


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 1])
def test_one_non_finite_number_is_enough(value, row):
    def policy(observations):
        outputs = np.zeros((len(observations), 3), np.float32)
        outputs[np.abs(observations[:, 0]) > 1, 2] = value
        return outputs

    observations = np.zeros((2, 1), np.float32)
    observations[row] = -7
    with refuses(UsageError, f"observation {row} -7 [0]"):
        finite_outputs(policy, observations)
