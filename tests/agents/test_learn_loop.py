"""Updates beside the steps of the environments: which, from what, in any order; and what becomes of failures."""

import threading

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, ReusingVector
from gymnasium.vector import AutoresetMode
from refusals import refuses

from ddpg import DDPG, Callback, DDPGConfig
from ddpg.errors import EnvironmentFault

SMALL = DDPGConfig(
    hidden=(4,), batch_size=4, learning_starts=0, updates_per_call=2, buffer_size=50, jit=False, optimizer="sgd"
)
LIMIT = 20  # seconds that one side waits for the other, which takes milliseconds


class Noting(Callback):
    """Notes updates made after each step, and what was remembered before each call of updates."""

    def __init__(self):
        self.made, self.remembered = [], []

    def on_step(self, agent):
        self.made.append(agent.num_updates)

    def on_update(self, agent, metrics):
        self.remembered.append(len(agent.replay))


def weights_of(agent):
    return np.concatenate([array.ravel() for array in agent.get_parameters().values()])


@pytest.mark.parametrize(
    ("overlap", "made", "remembered"),
    [(False, [0, 2, 2, 4, 4, 6], [2, 4, 6]), (True, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5])],
)
def test_owed_updates_are_made_beside_the_next_step_from_what_was_stored_before_it(overlap, made, remembered):
    notes = Noting()
    DDPG(Counting(7), SMALL.replace(overlap=overlap), seed=0).learn(6, [notes])
    assert (notes.made, notes.remembered) == (made, remembered)


def test_updates_of_a_vector_are_those_that_its_last_step_earned():
    """Two environments: 2 transitions a step, 1.5 updates; the call of the fourth step learns from those of three."""
    notes = Noting()
    config = SMALL.replace(overlap=True, updates_per_call=1, updates_per_step=0.75)
    DDPG(ReusingVector(AutoresetMode.SAME_STEP), config, seed=0).learn(8, [notes])
    assert (notes.made, notes.remembered) == ([0, 1, 3, 4], [2, 4, 6])


class Meeting(Counting):
    """Waits in its second step, beside which updates are made, for the end of the updates; or lets them wait for it."""

    def __init__(self, env_first):
        super().__init__(7)
        self.env_first, self.stepped, self.updated = env_first, threading.Event(), threading.Event()
        self.waits = 0

    def step(self, action):
        if self.step_number == 1 and not self.stepped.is_set():
            if not self.env_first:
                assert self.updated.wait(LIMIT)
                self.waits += 1
            self.stepped.set()
        return super().step(action)

    def note(self, agent, metrics):
        if self.env_first and not self.updated.is_set():
            assert self.stepped.wait(LIMIT)
            self.waits += 1
        self.updated.set()


class Told(Callback):
    def __init__(self, function):
        self.on_update = function


@pytest.mark.parametrize("env_first", [True, False])
def test_whichever_ends_first_the_numbers_are_the_same(env_first):
    env = Meeting(env_first)
    agent = DDPG(env, SMALL.replace(overlap=True), seed=0).learn(20, [Told(env.note)])
    assert env.waits == 1
    plain = DDPG(Counting(7), SMALL.replace(overlap=True), seed=0).learn(20)
    np.testing.assert_array_equal(weights_of(agent), weights_of(plain))
    without = DDPG(Counting(7), SMALL, seed=0).learn(20)
    assert not np.array_equal(weights_of(agent), weights_of(without))


def test_processes_do_what_one_process_does():
    found = []
    for mode in ("sync", "async"):
        env = gym.make_vec("Pendulum-v1", 2, mode)
        try:
            found.append(weights_of(DDPG(env, SMALL.replace(overlap=True), seed=0).learn(40)))
        finally:
            env.close()
    np.testing.assert_array_equal(*found)


def test_learning_goes_on_exactly(tmp_path):
    """14 steps are two episodes; at their end an update is owed, which the checkpoint keeps."""
    config = SMALL.replace(overlap=True, noise="ornstein_uhlenbeck", learning_rate_schedule="constant")
    whole = DDPG(Counting(7), config, seed=0).learn(14).learn(9)
    first = DDPG(Counting(7), config, seed=0).learn(14)
    assert first.loop.owed_updates == 1
    first.save(tmp_path / "c")
    rest = DDPG.load(tmp_path / "c", Counting(7)).learn(9)
    assert rest.num_updates == whole.num_updates == 22
    # Which episode it is stands in the observations, and a new environment counts anew.
    assert len(rest.replay) == len(whole.replay)
    same = DDPG(Counting(7), config, seed=0).learn(3).learn(20)
    np.testing.assert_array_equal(weights_of(same), weights_of(whole))


def no_thread_is_left():
    for thread in threading.enumerate():
        if thread.name == "ddpg-beside":
            thread.join(LIMIT)
            assert not thread.is_alive()
    return True


def test_a_step_that_fails_is_told_once_the_updates_are_made():
    agent = DDPG(Counting(7, nan_at=5), SMALL.replace(overlap=True), seed=0)
    with refuses(EnvironmentFault, "step 5 episode 1"):
        agent.learn(10)
    assert (agent.num_timesteps, agent.num_updates) == (4, 4)  # the fourth beside the step that failed
    assert no_thread_is_left()
    agent.env.nan_at = None
    agent.learn(10)
    assert agent.num_updates == 13


class Slow(Counting):
    """Its second step waits until it is let go, and tells that it has ended."""

    def __init__(self):
        super().__init__(7)
        self.go, self.ended = threading.Event(), False

    def step(self, action):
        waits = self.step_number == 1
        if waits:
            assert self.go.wait(LIMIT)
        result = super().step(action)
        self.ended = self.ended or waits
        return result


def test_updates_that_fail_are_told_once_the_step_has_ended():
    env = Slow()

    def fail(agent, metrics):
        threading.Timer(0.05, env.go.set).start()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DDPG(env, SMALL.replace(overlap=True), seed=0).learn(10, [Told(fail)])
    assert env.ended
    assert no_thread_is_left()
