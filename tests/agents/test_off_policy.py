"""Loading an agent from a checkpoint or a run directory."""

import pytest
from agent_options import TINY
from gymnasium.spaces import Box, Discrete
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.agents.off_policy import agent_for, load_agent

BOX = Box(-1, 1, (2,))
SMALL = TINY | {"buffer_size": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory whose best checkpoint is neither its first nor its last."""
    root = tmp_path_factory.mktemp("run")
    agent = DDPG((BOX, BOX), DDPGConfig(**SMALL), seed=0)
    for steps in (10, 20, 30):
        agent.num_timesteps = steps
        agent.save(root / "checkpoints" / str(steps))
        if steps == 20:
            agent.save(root / "checkpoints" / "best")
    return root


@pytest.mark.parametrize(("which", "steps"), [({}, 30), ({"which": "latest"}, 30), ({"which": "best"}, 20)])
def test_the_requested_checkpoint_of_a_run_directory_is_loaded(run, which, steps):
    assert load_agent(run, **which).num_timesteps == steps


def test_a_checkpoint_is_loaded_as_the_class_that_saved_it(tmp_path):
    DQN((BOX, Discrete(2)), DQNConfig(**SMALL), seed=0).save(tmp_path / "dqn")
    assert type(load_agent(tmp_path / "dqn")) is DQN


def test_a_missing_checkpoint_is_refused(tmp_path):
    with refuses(UsageError, "nothing"):
        load_agent(tmp_path / "nothing")


def test_the_agent_class_fits_the_action_space():
    assert agent_for(BOX) is DDPG
    assert agent_for(Discrete(3)) is DQN
