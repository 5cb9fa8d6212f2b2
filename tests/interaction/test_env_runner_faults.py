"""Failing environments: one-line messages, dropped transitions, and worker processes that hang or die."""

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
from ddpg.interaction.env_runner import make_env_runner
from ddpg.interaction.transitions import MAX_FAULTS_IN_A_ROW

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


class Brief(gym.Wrapper):
    """Counting with four steps an episode, whose step ``at`` over all episodes raises."""

    def __init__(self, at):
        super().__init__(Counting(4))
        self.at, self.life = at, 0

    def step(self, action):
        self.life += 1
        if self.life == self.at:
            raise RuntimeError("the simulator\nlost its state")
        return self.env.step(action)


def steps(runner, count):
    return [runner.step(np.zeros((runner.count, 1), np.float32)) for _ in range(count)]


def fault_of(env, count, seed=7, **options):
    """Return the one-line message of the fault that occurs within ``count`` steps, and the exception."""
    with pytest.raises(EnvironmentFault) as caught:
        steps(make_env_runner(env, seed, **options), count)
    (line,) = str(caught.value).splitlines()
    return line, caught.value


def test_a_spec_of_an_unexpected_type_does_not_hide_the_fault():
    env = Counting(nan_at=1)
    env.spec = {"mass": 1}
    assert "environment Counting failed in step 1 of" in fault_of(env, 1)[0]


# -- messages -----------------------------------------------------------------------------------------


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
def test_a_fault_names_step_episode_and_seed(fault, what):
    line, error = fault_of(Faulty(fault, at=25), 30)
    assert line.startswith("environment Faulty failed in step 5 of episode 3 since its reset with seed 7: " + what)
    assert (error.__cause__ is not None) == (fault == "Raises")
    assert isinstance(error, UsageError)


def test_a_fault_names_the_environment_by_its_id():
    line, _ = fault_of(gym.make("faulty/NaN-v0", disable_env_checker=True), 200, seed=None)
    assert line.startswith("environment faulty/NaN-v0 failed in step 10 of episode 15 since its reset without a seed: ")


def test_a_reset_that_raises_is_a_fault():
    line, error = fault_of(NoReset(), 200)
    assert line == (
        "environment NoReset failed in the reset to episode 15 since its reset with seed 7: "
        "OSError: no connection to the simulator"
    )
    assert isinstance(error.__cause__, OSError)


def test_an_interrupt_is_not_a_fault(monkeypatch):
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
def test_a_fault_of_a_vector_names_the_environment(mode, fault, what):
    line, _ = fault_of(SyncVectorEnv([Faulty, lambda: Faulty(fault, at=13)], autoreset_mode=mode), 30)
    assert line.startswith("environment 1 of 2 (SyncVectorEnv) failed in step 3 of episode 2 since the vector's")
    assert f"reset with seed 7: {what}" in line


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_in_a_sync_vector_names_the_environment(mode):
    """Its own step too, which is not that of the environments whose episodes are longer."""
    makers = [lambda: Counting(20), lambda: Brief(at=6), lambda: Counting(20)]
    line, error = fault_of(SyncVectorEnv(makers, autoreset_mode=mode), 30)
    assert line.startswith("environment 1 of 3 (SyncVectorEnv) failed in step 2 of episode 2 since the vector's reset")
    assert line.endswith("RuntimeError: the simulator lost its state")
    assert isinstance(error.__cause__, RuntimeError)


def test_a_wrapper_that_lists_infos_is_named():
    with refuses(EnvironmentFault, "info a list dict DictInfoToList"):
        make_env_runner(gym.wrappers.vector.DictInfoToList(SyncVectorEnv([Faulty] * 2)), 7)


# -- processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("Raises", "RuntimeError: the simulator lost its state"),
        ("Dies", "its process ended with exit code 7"),
        ("Hangs", "no answer within 0.5 s (step_timeout)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*ERROR")  # gymnasium's own message about a worker
def test_failing_worker_processes_are_named_and_ended(fault, what):
    inner = AsyncVectorEnv([Faulty, lambda: Faulty(fault, at=3)])
    env = gym.wrappers.vector.ClipReward(inner, -1, 1) if fault == "Hangs" else inner  # also through a wrapper
    line, _ = fault_of(env, 5, step_timeout=0.5 if fault == "Hangs" else None)
    assert line.startswith("environment 1 of 2 (AsyncVectorEnv) failed in step 3 of episode 1 since the vector's")
    assert f"reset with seed 7: {what}" in line
    assert not any(process.is_alive() for process in inner.processes)
    env.close()  # prints nothing and does not wait


def test_a_reset_that_hangs_times_out():
    class Sleeping(Faulty):
        def reset(self, *, seed=None, options=None):
            time.sleep(20)

    env = AsyncVectorEnv([Sleeping], shared_memory=False)
    with refuses(EnvironmentFault, "0 1 0.5"):
        make_env_runner(env, 7, step_timeout=0.5)
    assert [process.exitcode for process in env.processes] == [-9]  # killed, not waited for


def test_a_timeout_does_not_affect_answers_in_time():
    env = AsyncVectorEnv([Faulty])
    runner = make_env_runner(env, 7, step_timeout=60)
    assert [step.transitions.rewards.tolist() for step in steps(runner, 2)] == [[0.0], [0.0]]
    assert "step_wait" not in vars(env)  # gymnasium's method is restored
    env.close()


@pytest.mark.parametrize("env", [Faulty(), SyncVectorEnv([Faulty])])
def test_a_timeout_needs_worker_processes(env):
    with refuses(UsageError, "step_timeout 5 vectorization_mode async"):
        make_env_runner(env, 7, step_timeout=5)


# -- dropped transitions ------------------------------------------------------------------------------


def rows_of(steps):
    """Return rows of (environment, s, r, s′, terminated, truncated)."""
    return [tuple(row) for step in steps for row in transition_rows(step.transitions)]


class Once(Counting):
    """Counting, with observations [episode, step], but one observation or reward is NaN in one step of one episode."""

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
def test_a_single_environment_is_reset_after_a_dropped_transition(place):
    runner = make_env_runner(Once(place), 7, on_bad_transition="drop")
    found = []
    for _ in range(7):
        found += steps(runner, 1)
        assert list(found[-1].dropped) == ([0] if len(found) == 2 else [])
    assert rows_of(found)[:3] == [
        (0, [0, 0], 1.0, [0, 1], False, False),
        (0, [1, 0], 1.0, [1, 1], False, False),  # of the next episode: no transition joins the two
        (0, [1, 1], 2.0, [1, 2], False, False),
    ]
    assert [episode[:2] for step in found for episode in step.episodes] == [(10.0, 4)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["observation", "reward"])
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_vector_drops_the_rest_of_the_episode(mode, place, step):
    """By hand: only environment 1's first episode loses transitions, those from ``step`` on."""
    env = SyncVectorEnv([lambda: Counting(4), lambda: Once(place, step=step)], autoreset_mode=mode)
    runner = make_env_runner(env, 7, on_bad_transition="drop")
    found, dropped = [], []
    for _ in range(15):
        found += steps(runner, 1)
        dropped += found[-1].dropped
    assert np.isfinite(runner.observations).all()
    rows = rows_of(found)
    good, mine = [row for row in rows if row[0] == 0], [row for row in rows if row[0] == 1]
    every = [(episode, n) for episode in range(4) for n in range(4)][: len(good)]
    assert good == [(0, [e, n], n + 1.0, [e, n + 1], n == 3, False) for e, n in every]
    assert len(good) == (12 if mode == AutoresetMode.NEXT_STEP else 15)  # 3 of the 15 steps were resets
    kept = [(e, n) for e, n in every if e > 0 or n < step - 1]
    assert mine == [(1, [e, n], n + 1.0, [e, n + 1], n == 3, False) for e, n in kept]
    assert dropped == [1] * (4 - step + 1)
    ends = [episode[:2] for step in found for episode in step.episodes if episode.index == 1]
    assert ends == [(10.0, 4)] * 2  # three ended, and the one with the fault is not reported


def test_an_episode_with_a_bad_first_observation_is_dropped():
    """In SAME_STEP mode the last transition of the previous episode is kept."""

    class BadStart(Counting):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed)
            return (observation * np.nan if self.episode == 1 else observation), info

    env = SyncVectorEnv([lambda: Counting(4), lambda: BadStart(4)], autoreset_mode=AutoresetMode.SAME_STEP)
    runner = make_env_runner(env, 7, on_bad_transition="drop")
    mine = [row for row in rows_of(steps(runner, 12)) if row[0] == 1]
    assert [row[1] for row in mine] == [[episode, n] for episode in (0, 2) for n in range(4)]
    alone = make_env_runner(BadStart(4), 7, on_bad_transition="drop")
    assert [row[1] for row in rows_of(steps(alone, 8))] == [[episode, n] for episode in (0, 2) for n in range(4)]


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_is_reset_once_all_its_environments_have_failed(mode):
    """No episode ends by itself here, so that only a reset of the vector lets it continue."""
    env = SyncVectorEnv([functools.partial(Faulty, "NaN", at=at, once=True) for at in (2, 4)], autoreset_mode=mode)
    runner = make_env_runner(env, 7, on_bad_transition="drop")
    counts = [len(step.transitions) for step in steps(runner, 7)]
    assert counts == [2, 1, 1, 0, 2, 2, 2]


def test_too_many_faults_in_a_row_raise():
    for env in (Faulty("NaN", at=5), SyncVectorEnv([lambda: Faulty("NaN", at=5)])):
        runner = make_env_runner(env, 7, on_bad_transition="drop")
        steps(runner, 4 + MAX_FAULTS_IN_A_ROW - 1)
        with refuses(EnvironmentFault, f"fault {MAX_FAULTS_IN_A_ROW}"):
            steps(runner, 1)
    often = make_env_runner(Counting(4, nan_at=2), 7, on_bad_transition="drop")
    assert sum(len(step.transitions) for step in steps(often, 3 * MAX_FAULTS_IN_A_ROW)) == 3 * MAX_FAULTS_IN_A_ROW / 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", ["observation", "reward"])
def test_a_step_counts_as_one_fault_however_many_environments_fail(mode, place):
    """In one step more environments fail than faults in a row are allowed, which counts as one fault."""
    makers = [functools.partial(Once, place, episode=0)] * (MAX_FAULTS_IN_A_ROW + 5)
    runner = make_env_runner(SyncVectorEnv(makers, autoreset_mode=mode), 7, on_bad_transition="drop")
    counts = [len(step.transitions) for step in steps(runner, 4)]
    assert counts == [runner.count, 0, runner.count, runner.count]
    broken = SyncVectorEnv([functools.partial(Faulty, "Infinity", at=1)] * 3, autoreset_mode=mode)
    runner = make_env_runner(broken, 7, on_bad_transition="drop")
    steps(runner, MAX_FAULTS_IN_A_ROW - 1)
    with refuses(EnvironmentFault, f"fault {MAX_FAULTS_IN_A_ROW} drop"):
        steps(runner, 1)


class Unclear(Counting):
    """Counting, whose first episode ends with a success that is neither True nor False."""

    def step(self, action):
        *values, done, truncated, info = super().step(action)
        return *values, done, truncated, {"is_success": "yes" if self.episode == 0 else True} if done else info


@pytest.mark.parametrize("mode", [None, *MODES])
def test_an_invalid_is_success_is_dropped_like_other_bad_values(mode):
    def make():
        return Unclear(2) if mode is None else SyncVectorEnv([lambda: Unclear(2)], autoreset_mode=mode)

    found = steps(make_env_runner(make(), 7, on_bad_transition="drop"), 4)
    assert [list(step.dropped) for step in found] == [[], [0], [], []]
    assert [row[1] for row in rows_of(found)] == [[0, 0], [1, 0], [1, 1]]
    assert [episode for step in found for episode in step.episodes] == [(3.0, 2, 0, True, True)]
    line, _ = fault_of(make(), 2)
    assert "info['is_success']" in line


def test_exceptions_are_never_dropped():
    line, _ = fault_of(Faulty("Raises", at=3), 5, on_bad_transition="drop")
    assert line.endswith("RuntimeError: the simulator lost its state")


def test_a_wrong_shape_of_the_batch_is_never_dropped():
    class Flat(SyncVectorEnv):
        def step(self, actions):
            observations, *rest = super().step(actions)
            return observations.ravel(), *rest

    line, _ = fault_of(Flat([Faulty, Faulty]), 1, on_bad_transition="drop")
    assert "observation has shape (6,); expected (2, 3)" in line


def test_mujoco_that_draws_observations_without_a_display_is_told_how():
    mujoco = pytest.importorskip("mujoco")

    class Drawing(Counting):
        def reset(self, **options):
            raise mujoco.FatalError("a valid OpenGL context has not been created before mjr_makeContext was called")

    with refuses(EnvironmentFault, "FatalError mjr_makeContext MUJOCO_GL=egl"):
        make_env_runner(Drawing(4), 7)
