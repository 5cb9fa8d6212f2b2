"""Environments that fail: named in one line, or dropped; processes that hang or die are ended."""

import functools
import time

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, transition_rows
from faulty_envs import Faulty, NoReset
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import UsageError
from ddpg.errors import EnvironmentFault
from ddpg.interaction.env_errors import MAX_FAULTS_IN_A_ROW
from ddpg.interaction.env_runner import make_env_runner

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def steps(interaction, count):
    return [interaction.step(np.zeros((interaction.count, 1), np.float32)) for _ in range(count)]


def fault_of(env, count, seed=7, **options):
    """Return the message of the fault within ``count`` steps: one line."""
    with pytest.raises(EnvironmentFault) as caught:
        steps(make_env_runner(env, seed, **options), count)
    (line,) = str(caught.value).splitlines()
    return line, caught.value


def test_a_spec_of_another_kind_does_not_hide_the_fault():
    env = Counting(nan_at=1)
    env.spec = {"mass": 1}
    assert "environment Counting failed in step 1 of" in fault_of(env, 1)[0]


# -- named --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("NaN", "observation holds nan at index [0]; expected finite numbers"),
        ("Infinity", "reward holds inf; expected a finite number"),
        ("Shape", "observation has shape (4,); expected (3,)"),
        ("Kind", "observation is an array of strings"),
        ("Flag", "terminated='no' is not a flag"),
        ("Raises", "RuntimeError: the simulator lost its state"),
    ],
)
def test_a_fault_says_where_it_was(fault, what):
    line, error = fault_of(Faulty(fault, at=25), 30)
    assert line.startswith("environment Faulty failed in step 5 of episode 3 since its reset with seed 7: " + what)
    assert (error.__cause__ is not None) == (fault == "Raises")
    assert isinstance(error, UsageError)


def test_an_environment_is_called_by_its_id():
    line, _ = fault_of(gym.make("faulty/NaN-v0", disable_env_checker=True), 200, seed=None)
    assert line.startswith("environment faulty/NaN-v0 failed in step 10 of episode 15 since its reset without a seed: ")


def test_a_reset_that_raises():
    line, error = fault_of(NoReset(), 200)
    assert line == (
        "environment NoReset failed in the reset to episode 15 since its reset with seed 7: "
        "OSError: no connection to the simulator"
    )
    assert isinstance(error.__cause__, OSError)


def test_an_interrupt_is_no_fault(monkeypatch):
    def interrupted(self, action):
        raise KeyboardInterrupt

    monkeypatch.setattr(Faulty, "step", interrupted)
    for env in (Faulty(), SyncVectorEnv([Faulty])):
        with pytest.raises(KeyboardInterrupt):
            steps(make_env_runner(env, 7), 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("fault", "what"),
    [("NaN", "observation holds nan at index [1, 0]"), ("Infinity", "reward of environment 1 holds inf")],
)
def test_a_vector_says_which(mode, fault, what):
    line, _ = fault_of(SyncVectorEnv([Faulty, lambda: Faulty(fault, at=13)], autoreset_mode=mode), 30)
    assert line.startswith("environment 1 of 2 (SyncVectorEnv) failed in step 3 of episode 2 since the vector's")
    assert f"reset with seed 7: {what}" in line


def test_a_vector_in_one_process_that_raises():
    line, error = fault_of(SyncVectorEnv([Faulty, lambda: Faulty("Raises", at=3)]), 30)
    assert line.startswith(
        "one of the 2 environments (SyncVectorEnv) failed in step 3 of episode 1 since the vector's reset"
    )
    assert line.endswith("RuntimeError: the simulator lost its state")
    assert isinstance(error.__cause__, RuntimeError)


# -- processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("Raises", "RuntimeError: the simulator lost its state"),
        ("Dies", "its process ended with exit code 7"),
        ("Hangs", "no answer within 0.5 s (step_timeout)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium's own words about a worker
def test_processes_that_fail_are_named_and_ended(fault, what):
    inner = AsyncVectorEnv([Faulty, lambda: Faulty(fault, at=3)])
    env = gym.wrappers.vector.ClipReward(inner, -1, 1) if fault == "Hangs" else inner  # through a wrapper too
    line, _ = fault_of(env, 5, step_timeout=0.5 if fault == "Hangs" else None)
    assert line.startswith("environment 1 of 2 (AsyncVectorEnv) failed in step 3 of episode 1 since the vector's")
    assert f"reset with seed 7: {what}" in line
    assert not any(process.is_alive() for process in inner.processes)
    env.close()  # says nothing, waits for nobody


def test_a_reset_that_hangs():
    class Sleeping(Faulty):
        def reset(self, *, seed=None, options=None):
            time.sleep(20)

    env = AsyncVectorEnv([Sleeping], shared_memory=False)
    with refuses(EnvironmentFault, "0 1 0.5"):
        make_env_runner(env, 7, step_timeout=0.5)
    assert [process.exitcode for process in env.processes] == [-9]  # nobody waited for it


def test_a_timeout_harms_nobody_who_is_in_time():
    env = AsyncVectorEnv([Faulty])
    interaction = make_env_runner(env, 7, step_timeout=60)
    assert [step.transitions.rewards.tolist() for step in steps(interaction, 2)] == [[0.0], [0.0]]
    assert "step_wait" not in vars(env)  # gymnasium's own again
    env.close()


@pytest.mark.parametrize("env", [Faulty(), SyncVectorEnv([Faulty])])
def test_a_timeout_needs_processes(env):
    with refuses(UsageError, "step_timeout 5 vectorization_mode async"):
        make_env_runner(env, 7, step_timeout=5)


# -- dropped ------------------------------------------------------------------------------------------


def rows_of(steps):
    """Return rows of (environment, s, r, s′, terminated, truncated)."""
    return [tuple(row) for step in steps for row in transition_rows(step.transitions)]


class Once(Counting):
    """Counting, [episode, step], whose value is NaN in one step of one episode only."""

    def __init__(self, place, episode=0, step=2, **options):
        super().__init__(4, **options)
        self.fault = place, episode, step

    def step(self, action):
        observation, reward, *rest = super().step(action)
        place, *when = self.fault
        if when == [self.episode, self.step_number]:
            observation, reward = (observation * np.nan, reward) if place == "observation" else (observation, np.nan)
        return observation, reward, *rest


@pytest.mark.parametrize("place", ["observation", "reward"])
def test_one_environment_restarts_where_a_transition_is_dropped(place):
    interaction = make_env_runner(Once(place), 7, on_bad_transition="drop")
    found = []
    for _ in range(7):
        found += steps(interaction, 1)
        assert list(found[-1].dropped) == ([0] if len(found) == 2 else [])
    assert rows_of(found)[:3] == [
        (0, [0, 0], 1.0, [0, 1], False, False),
        (0, [1, 0], 1.0, [1, 1], False, False),  # of the next episode: nothing leads over
        (0, [1, 1], 2.0, [1, 2], False, False),
    ]
    assert [episode[:2] for step in found for episode in step.episodes] == [(10.0, 4)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["observation", "reward"])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_vector_drops_what_is_left_of_the_episode(mode, place, step):
    """By hand: of environment 1's first episode the transitions before ``step`` are kept, and all of the others."""
    env = SyncVectorEnv([lambda: Counting(4), lambda: Once(place, step=step)], autoreset_mode=mode)
    interaction = make_env_runner(env, 7, on_bad_transition="drop")
    found, dropped = [], []
    for _ in range(15):
        found += steps(interaction, 1)
        dropped += found[-1].dropped
    assert np.isfinite(interaction.observations).all()
    rows = rows_of(found)
    good, mine = [row for row in rows if row[0] == 0], [row for row in rows if row[0] == 1]
    every = [(episode, n) for episode in range(4) for n in range(4)][: len(good)]
    assert good == [(0, [e, n], n + 1.0, [e, n + 1], n == 3, False) for e, n in every]
    assert len(good) == (12 if mode == AutoresetMode.NEXT_STEP else 15)  # of 15 steps, 3 restarted it
    kept = [(e, n) for e, n in every if e > 0 or n < step - 1]
    assert mine == [(1, [e, n], n + 1.0, [e, n + 1], n == 3, False) for e, n in kept]
    assert dropped == [1] * (4 - step + 1)
    ends = [episode[:2] for step in found for episode in step.episodes if episode.index == 1]
    assert ends == [(10.0, 4)] * 2  # of three episodes that ended


def test_a_first_observation_that_is_bad():
    """SAME_STEP: the last transition of the episode before is good, the next episode is dropped."""

    class BadStart(Counting):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return (observation * np.nan if self.episode == 1 else observation), info

    env = SyncVectorEnv([lambda: Counting(4), lambda: BadStart(4)], autoreset_mode=AutoresetMode.SAME_STEP)
    interaction = make_env_runner(env, 7, on_bad_transition="drop")
    mine = [row for row in rows_of(steps(interaction, 12)) if row[0] == 1]
    assert [row[1] for row in mine] == [[episode, n] for episode in (0, 2) for n in range(4)]
    alone = make_env_runner(BadStart(4), 7, on_bad_transition="drop")
    assert [row[1] for row in rows_of(steps(alone, 8))] == [[episode, n] for episode in (0, 2) for n in range(4)]


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_that_is_lost_altogether_is_reset(mode):
    """No episode ends by itself here, so nothing else would bring it back."""
    env = SyncVectorEnv([functools.partial(Faulty, "NaN", at=at, once=True) for at in (2, 4)], autoreset_mode=mode)
    interaction = make_env_runner(env, 7, on_bad_transition="drop")
    counts = [len(step.transitions) for step in steps(interaction, 7)]
    assert counts == [2, 1, 1, 0, 2, 2, 2]


def test_nothing_is_dropped_for_ever():
    for env in (Faulty("NaN", at=5), SyncVectorEnv([lambda: Faulty("NaN", at=5)])):
        interaction = make_env_runner(env, 7, on_bad_transition="drop")
        steps(interaction, 4 + MAX_FAULTS_IN_A_ROW - 1)
        with refuses(EnvironmentFault, f"fault {MAX_FAULTS_IN_A_ROW}"):
            steps(interaction, 1)
    often = make_env_runner(Counting(4, nan_at=2), 7, on_bad_transition="drop")
    assert sum(len(step.transitions) for step in steps(often, 3 * MAX_FAULTS_IN_A_ROW)) == 3 * MAX_FAULTS_IN_A_ROW / 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["observation", "reward"])
def test_a_step_counts_once_however_many_environments_are_at_fault(mode, place):
    """Two steps in which all are at fault are two faults in a row; from then on so is every step."""
    makers = [functools.partial(Once, place, episode=0)] * (MAX_FAULTS_IN_A_ROW + 5)
    interaction = make_env_runner(SyncVectorEnv(makers, autoreset_mode=mode), 7, on_bad_transition="drop")
    counts = [len(step.transitions) for step in steps(interaction, 4)]
    assert counts == [interaction.count, 0, interaction.count, interaction.count]
    broken = SyncVectorEnv([functools.partial(Faulty, "Infinity", at=1)] * 3, autoreset_mode=mode)
    interaction = make_env_runner(broken, 7, on_bad_transition="drop")
    steps(interaction, MAX_FAULTS_IN_A_ROW - 1)
    with refuses(EnvironmentFault, f"fault {MAX_FAULTS_IN_A_ROW} drop"):
        steps(interaction, 1)


class Unclear(Counting):
    """Counting, whose first episode ends with a success that is neither True nor False."""

    def step(self, action):
        *values, done, truncated, info = super().step(action)
        return *values, done, truncated, {"is_success": "yes" if self.episode == 0 else True} if done else info


@pytest.mark.parametrize("mode", [None, *MODES])
def test_a_success_that_is_none_is_dropped_as_other_values_are(mode):
    def make():
        return Unclear(2) if mode is None else SyncVectorEnv([lambda: Unclear(2)], autoreset_mode=mode)

    found = steps(make_env_runner(make(), 7, on_bad_transition="drop"), 4)
    assert [list(step.dropped) for step in found] == [[], [0], [], []]
    assert [row[1] for row in rows_of(found)] == [[0, 0], [1, 0], [1, 1]]
    assert [episode for step in found for episode in step.episodes] == [(3.0, 2, 0, True)]
    line, _ = fault_of(make(), 2)
    assert "info['is_success']" in line


def test_what_is_raised_is_never_dropped():
    line, _ = fault_of(Faulty("Raises", at=3), 5, on_bad_transition="drop")
    assert line.endswith("RuntimeError: the simulator lost its state")


def test_what_a_vector_may_return_in_no_row_is_never_dropped():
    class Flat(SyncVectorEnv):
        def step(self, actions):
            observations, *rest = super().step(actions)
            return observations.ravel(), *rest

    line, _ = fault_of(Flat([Faulty, Faulty]), 1, on_bad_transition="drop")
    assert "observation has shape (6,); expected (2, 3)" in line
