"""Updates that run while environments step (``overlap``): their number, their data, and errors in either."""

import threading

import numpy as np
import pytest
from agent_options import TINY
from environments import Counting, ReusingVector
from gymnasium.vector import AutoresetMode
from refusals import refuses

from ddpg import DDPG, Callback, DDPGConfig
from ddpg.errors import EnvironmentFault

SMALL = DDPGConfig(**TINY, learning_starts=0, updates_per_call=2, buffer_size=50)
LIMIT = 20  # seconds for a wait that takes milliseconds


class UpdateRecorder(Callback):
    """Records the number of updates after each step, and the memory's size before each call of updates."""

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
def test_due_updates_run_beside_the_next_step_on_what_was_stored_before_it(overlap, made, remembered):
    notes = UpdateRecorder()
    DDPG(Counting(7), SMALL.replace(overlap=overlap), seed=0).learn(6, [notes])
    assert (notes.made, notes.remembered) == (made, remembered)


def test_a_vectors_updates_run_beside_its_next_step():
    """Two environments: 2 transitions and 1.5 updates a step; the updates of step three run in the fourth step."""
    notes = UpdateRecorder()
    config = SMALL.replace(overlap=True, updates_per_call=1, updates_per_step=0.75)
    DDPG(ReusingVector(AutoresetMode.SAME_STEP), config, seed=0).learn(8, [notes])
    assert (notes.made, notes.remembered) == ([0, 1, 3, 4], [2, 4, 6])


class Meeting(Counting):
    """Its second step either waits for the updates that run beside it, or makes them wait for it."""

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


class OnUpdate(Callback):
    def __init__(self, function):
        self.on_update = function


def test_results_do_not_depend_on_which_ends_first():
    """Nor on the calls of ``learn``."""
    found = []
    for env, calls in ((Meeting(env_first=True), [20]), (Meeting(env_first=False), [3, 17])):
        agent = DDPG(env, SMALL.replace(overlap=True), seed=0)
        for steps in calls:
            agent.learn(steps, [OnUpdate(env.note)])
        assert env.waits == 1
        found.append(weights_of(agent))
    np.testing.assert_array_equal(*found)


def test_an_interrupted_agent_resumes_exactly(tmp_path):
    """14 steps are two episodes; at their end an update is due, which the checkpoint keeps."""
    config = SMALL.replace(overlap=True, noise="ornstein_uhlenbeck", learning_rate_schedule="constant")
    uninterrupted = DDPG(Counting(7), config, seed=0).learn(14)
    assert uninterrupted.loop.owed_updates == 1
    uninterrupted.save(tmp_path / "c")
    uninterrupted.learn(9)
    rest = DDPG.load(tmp_path / "c", Counting(7)).learn(9)
    assert rest.num_updates == uninterrupted.num_updates == 22
    # Observations contain the episode's number, which restarts in a new environment.
    assert len(rest.replay) == len(uninterrupted.replay)


def no_update_thread_is_left():
    for thread in threading.enumerate():
        if thread.name == "ddpg-background":
            thread.join(LIMIT)
            assert not thread.is_alive()
    return True


def test_an_error_in_a_step_is_raised_after_the_updates():
    agent = DDPG(Counting(7, nan_at=5), SMALL.replace(overlap=True), seed=0)
    with refuses(EnvironmentFault, "step 5 episode 1"):
        agent.learn(10)
    assert (agent.num_timesteps, agent.num_updates) == (4, 4)  # the fourth update ran beside the step that failed
    assert no_update_thread_is_left()
    agent.env.nan_at = None
    agent.learn(10)
    assert agent.num_updates == 13


class Slow(Counting):
    """Its second step waits for an event, and sets another when it has ended."""

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


def test_an_error_in_updates_is_raised_after_the_step():
    env = Slow()

    def fail(agent, metrics):
        threading.Timer(0.05, env.go.set).start()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DDPG(env, SMALL.replace(overlap=True), seed=0).learn(10, [OnUpdate(fail)])
    assert env.ended
    assert no_update_thread_is_left()
