"""A wrapping ring, saved and restored at any moment: all later samples are those of the ring without interruption."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ddpg import ReplayBuffer
from ddpg.replay.hindsight import Hindsight
from ddpg.replay.priorities import Priorities
from ddpg.replay.sampling import Sampler

BOX = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
GOALS = gym.spaces.Dict(achieved_goal=BOX, desired_goal=BOX, observation=BOX)
KINDS = ("uniform", "n_steps", "proportional", "lap", "hindsight")
MAX_LANES = 3

# Rounds of (environments that step, those whose episode ends, whether minibatches are sampled afterwards).
ROUNDS = st.lists(
    st.tuples(
        st.sets(st.integers(0, MAX_LANES - 1), min_size=1, max_size=MAX_LANES),
        st.sets(st.integers(0, MAX_LANES - 1), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


def distance(achieved, desired, info):
    return -np.abs(achieved - desired)[..., 0]


class SampledMemory:
    """A memory filled by environments with unique observations, and sampled from."""

    def __init__(self, kind, capacity, n_steps):
        self.buffer = ReplayBuffer(capacity, (3,), 1)
        priorities = Priorities(kind, None, capacity) if kind in ("proportional", "lap") else None
        relabel = Hindsight(self.buffer, 4, GOALS, distance) if kind == "hindsight" else None
        self.sampler = Sampler(self.buffer, 1 if kind == "hindsight" else n_steps, 0.9, priorities, relabel)
        self.kind, self.rng = kind, np.random.default_rng(7)
        self.last, self.number = {}, 0

    def copy(self, capacity):
        """Return the memory that a run resumed from a checkpoint of this one has."""
        other = SampledMemory(self.kind, capacity, self.sampler._n_steps)
        other.sampler.restore(self.sampler.state())
        other.rng.bit_generator.state = self.rng.bit_generator.state
        other.number = self.number
        return other

    def end_all_episodes(self):
        """End all episodes, as every run does at a checkpoint."""
        self.buffer.end_episodes()
        self.last = {}

    def step(self, env_indices, ended):
        rows = []
        for env_index in env_indices:
            before = self.last.get(env_index, self._observation(env_index))
            after = self._observation(env_index)
            self.last[env_index] = after
            if env_index in ended:
                del self.last[env_index]
            rows.append((before, [0.1 * self.number], float(self.number % 7), after, env_index in ended, False))
        self.buffer.add(*map(np.array, zip(*rows, strict=True)), list(env_indices))

    def draw(self):
        batch, rows = self.sampler.sample(self.rng, 2, 4, 0.5)
        self.sampler.update(rows, self.rng.normal(size=rows.shape).astype(np.float32) * 3)
        return [rows, *batch]

    def _observation(self, env_index):
        self.number += 1
        return np.array([self.number, 100 + env_index, -self.number], np.float32)


def play(memory, rounds):
    drawn = []
    for env_indices, ended, draws in rounds:
        memory.step(sorted(env_indices), ended)
        if draws:
            drawn += memory.draw()
    return drawn


@pytest.mark.filterwarnings("ignore:hindsight")  # random rewards instead of the environment's
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("uniform", "lap"))) for kind in KINDS]
)
@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(1, 4), ROUNDS, ROUNDS)
def test_a_restored_memory_continues_as_if_never_interrupted(kind, capacity, n_steps, before, after):
    """The interruption may come before the ring is full, in its first round or later, within episodes."""
    straight = SampledMemory(kind, capacity, n_steps)
    play(straight, before)
    resumed = straight.copy(capacity)
    straight.end_all_episodes()
    resumed.end_all_episodes()
    event(f"rounds of the ring before the break: {straight.buffer.added // capacity}")
    np.testing.assert_equal(play(resumed, after), play(straight, after))
    np.testing.assert_equal(resumed.sampler.state(), straight.sampler.state())
    np.testing.assert_equal(resumed.draw(), straight.draw())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:hindsight")
@pytest.mark.parametrize("kind", ["n_steps", "proportional", "hindsight"])
@given(st.integers(2, 12), st.integers(1, 12), ROUNDS)
def test_a_larger_ring_keeps_episodes_and_their_order(kind, capacity, more, rounds):
    """Rows are shifted so that the oldest is first; transitions, successors and priorities stay."""
    memory = SampledMemory(kind, capacity, 3)
    play(memory, rounds)
    larger = memory.copy(capacity + more)
    oldest = memory.buffer._position if memory.buffer.added >= capacity else 0
    rows = (np.arange(len(memory.buffer)) + oldest) % capacity
    here, there = memory.buffer.gather(rows, 3, 0.9), larger.buffer.gather(np.arange(len(rows)), 3, 0.9)
    np.testing.assert_equal([*there], [*here])
    if kind == "proportional":
        np.testing.assert_array_equal(larger.sampler.state()["priorities"], memory.sampler.state()["priorities"][rows])
