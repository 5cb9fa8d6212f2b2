"""Options whose arrays exceed the machine's memory are refused before anything is allocated."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, Pixels
from refusals import refuses

from ddpg import DDPG, DDPGConfig, DQNConfig, UsageError
from ddpg.agents import resource_limits
from ddpg.checkpoints import memory_limit
from ddpg.replay.buffer import ReplayBuffer

SPACES = gym.spaces.Box(-1.0, 1.0, (10,), np.float32), gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
IMAGES = Pixels().observation_space, Pixels().action_space
ROW = 4 * (10 + 2 + 1 + 1 + 1)  # s, a, r, index of s′, two flags with room to spare


@pytest.fixture
def memory(monkeypatch):
    """Set the memory size that the machine reports."""
    return lambda size: monkeypatch.setattr(memory_limit, "memory_limit", lambda: int(size))


def test_the_rows_that_a_run_fills_must_fit(memory):
    """Ten thousand rows of a million are filled; with the networks that is more than 1 MB and less than 3 MB."""
    small = DDPGConfig(hidden=(4,), batch_size=4)
    memory(3e6)
    resource_limits.check_memory(small, SPACES, rows=10_000)
    with refuses(UsageError, "buffer_size=1000000 0.1 GB 0.0 GB"):
        resource_limits.check_memory(small, SPACES, rows=1_000_000)
    memory(ROW * 10_000)
    with refuses(UsageError, "10000"):
        resource_limits.check_memory(small, SPACES, rows=10_000)
    resource_limits.check_memory(small.replace(buffer_size=100), SPACES, rows=10_000)


@pytest.mark.parametrize(("spaces", "row"), [(SPACES, ROW), (IMAGES, 100 + 4 * 6)])
def test_the_size_of_a_row_is_that_of_its_stored_fields(spaces, row):
    """The memory stores each observation of an episode once, and a minibatch has s and s′."""
    observations, actions = spaces
    stored, drawn = resource_limits._stored_bytes(spaces), resource_limits._drawn_bytes(spaces)
    assert stored == row
    assert drawn - stored == np.zeros(observations.shape, observations.dtype).nbytes
    count, size = 64, resource_limits._flat_size(actions)
    buffer = ReplayBuffer(count, observations.shape, size, observations.dtype)
    path = np.arange(count + 1)[(slice(None), *[None] * len(observations.shape))]
    states = np.broadcast_to(path, (count + 1, *observations.shape)).astype(observations.dtype)
    ends = np.zeros(count)
    for step in range(count):
        one = slice(step, step + 1)
        buffer.add(states[one], np.zeros((1, size)), [0.0], states[step + 1 : step + 2], ends[one], ends[one])
    assert 0 <= stored - (buffer.nbytes - (drawn - stored)) / count <= 2


def test_networks_must_fit(memory):
    """One layer of a million units: two networks of 10·10⁶ + 10⁶·2 weights, each with average and two moments."""
    wide = DDPGConfig(hidden=(1_000_000,), batch_size=5, buffer_size=10)
    weights = 2 * 12_000_000
    memory(4 * 4 * weights)
    resource_limits.check_memory(wide, SPACES)
    memory(4 * 4 * weights - 1)
    with refuses(UsageError, "hidden=(1000000,) 0.4 GB 0.4 GB"):
        resource_limits.check_memory(wide, SPACES)
    resource_limits.check_memory(wide.replace(critic_hidden=(999_999,)), SPACES)
    resource_limits.check_memory(wide.replace(actor_network=lambda states: states), SPACES)
    resource_limits.check_memory(wide.replace(optimizer="sgd"), SPACES)
    resource_limits.check_memory(DQNConfig(hidden=(1_000_000,)), (SPACES[0], gym.spaces.Discrete(2)))
    learning = 4 * (5 * weights + 2 * 5 * 1_000_000 * 2) + 10 * ROW
    memory(learning)
    resource_limits.check_memory(wide, SPACES, rows=10)
    memory(learning - 1)
    with refuses(UsageError, "GB"):
        resource_limits.check_memory(wide, SPACES, rows=10)
    wide_critic = wide.replace(hidden=(1,), critic_hidden=(999_999,))
    assert resource_limits._network_bytes(wide_critic, SPACES, learning=True) == (learning - 10 * ROW) // 2


def test_minibatches_of_large_images_are_fewer_a_call(memory):
    """Four frames of 210 x 160 colours: 256 transitions have 206 MB, and 32 minibatches would have 6.6 GB."""
    frames = gym.spaces.Box(0, 255, (210, 160, 12), np.uint8), SPACES[1]
    config = DDPGConfig(network="conv", hidden=(4,), buffer_size=10)
    minibatch = 256 * (2 * 210 * 160 * 12 + 4 * 5)
    assert resource_limits.largest_call(config, SPACES) == config.largest_call == 32
    assert resource_limits.largest_call(config, frames) == (4 << 30) // minibatch == 20
    resource_limits.check_options("here", config, frames, {})
    memory(minibatch)
    resource_limits.check_memory(config, frames)
    with refuses(UsageError, "batch_size=257"):
        resource_limits.check_memory(config.replace(batch_size=257), frames)
    huge = config.replace(batch_size=5400)
    assert resource_limits.largest_call(huge, frames) == 1
    with refuses(UsageError, "batch_size=5400"):
        resource_limits.check_options("here", huge, frames, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buffer_size": 10**12}, "buffer_size=1000000000000 24,000.0 GB"),
        ({"hidden": (10**7, 10**7)}, "hidden=(10000000 10000000) 3,200,001.0 GB"),
    ],
)
def test_an_agent_that_does_not_fit_is_refused(change, message):
    with refuses(UsageError, message):
        DDPG(Counting(), DDPGConfig(**change))


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_invalid_seeds_are_refused(seed):
    with refuses(UsageError, f"seed={seed!r} 0"):
        DDPG(Counting(), DDPGConfig(), seed=seed)
