"""Calls of environments: exceptions and invalid return values become faults, and process state is restored."""

import contextlib
import os
import signal
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hostile_envs import AT_STEP, FAILURES, OF_STEPS, TAMPERING, Hostile
from refusals import refuses

from ddpg.errors import EnvironmentFault
from ddpg.interaction import env_calls
from ddpg.interaction.env_calls import CheckedEnv, ProbedEnv
from ddpg.interaction.env_runner import make_env_runner

EXPECTED_TEXT = {
    "Exits": "sys.exit",
    "ExitsWithZero": "sys.exit (SystemExit): 0",
    "ExitsWithText": "the window was closed",
    "BaseException": "Odd",
    "InfoNone": "info of step is None",
    "InfoList": "info of step is a list",
    "Masked": "observation is a masked array",
    "MaskedReward": "reward is a masked array",
    "OneValueLess": "step returned a tuple of 4 values",
    "OddSuccess": "is_success",
}
CASES = [name for name in (*FAILURES, *OF_STEPS) if name != "Interrupts"]


def step_until_failure(env, expected=EnvironmentFault, **options):
    """Step ``env`` until it raises; return the message as one line, and the number of steps before."""
    runner = make_env_runner(env, 7, **options)
    lengths = []

    def step():
        runner.step(np.zeros((runner.count, 1), np.float32))
        lengths.append(1)

    with pytest.raises(expected) as caught:
        list(iter(step, "never"))
    return " ".join(str(caught.value).splitlines()), len(lengths)


@pytest.mark.parametrize("on_bad_transition", ["raise", "drop"])
@pytest.mark.parametrize("name", CASES)
def test_a_failing_step_is_a_fault(name, on_bad_transition):
    if on_bad_transition == "drop" and name.startswith(("Masked", "OddSuccess")):
        return  # dropped with its episode, which is no fault
    line, count = step_until_failure(Hostile((FAILURES | OF_STEPS)[name], "step"), on_bad_transition=on_bad_transition)
    assert count == AT_STEP - 1
    assert line.startswith("environment Hostile failed in step 5 of episode 4 since its reset with seed 7: ")
    assert EXPECTED_TEXT.get(name, name) in line


@pytest.mark.parametrize("name", [name for name in CASES if name in FAILURES])
def test_a_failing_reset_is_a_fault(name):
    line, count = step_until_failure(Hostile(FAILURES[name], "reset"))
    assert count == 30
    assert "failed in the reset to episode 4" in line
    assert EXPECTED_TEXT.get(name, name).replace("step", "reset").replace("tuple of 4", "tuple of 1") in line


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("name", CASES)
def test_a_failing_environment_of_a_vector_is_a_fault(name, mode):
    bad = (FAILURES | OF_STEPS)[name]
    makers = [lambda: CheckedEnv(Hostile(None, "nowhere")), lambda: CheckedEnv(Hostile(bad, "step"))]
    line, _ = step_until_failure(SyncVectorEnv(makers, autoreset_mode=mode))
    assert "failed in step" in line
    assert EXPECTED_TEXT.get(name, name) in line


def test_a_keyboard_interrupt_is_not_turned_into_a_fault():
    assert step_until_failure(Hostile(FAILURES["Interrupts"], "reset"), KeyboardInterrupt)[1] == 30


def test_failing_to_close_is_a_fault_that_hides_no_earlier_exception():
    for name in ("Exits", "BaseException"):
        env = Hostile(FAILURES[name], "close")
        with refuses(EnvironmentFault, "close"):
            env_calls.close(env)
        env_calls.close_quietly(env)
        with pytest.raises(ZeroDivisionError), env_calls.closing(env):
            raise ZeroDivisionError
        with pytest.raises(EnvironmentFault), env_calls.closing(env):
            pass
    env_calls.close_quietly(Hostile(FAILURES["Interrupts"], "close"))


def test_a_worker_whose_environment_fails_to_close_has_its_own_exit_status():
    with pytest.raises(SystemExit) as caught:
        CheckedEnv(Hostile(FAILURES["Exits"], "close"), in_worker=True).close()
    assert caught.value.code == env_calls.CLOSE_FAILED
    with pytest.raises(EnvironmentFault):
        CheckedEnv(Hostile(FAILURES["Exits"], "close")).close()
    ProbedEnv(Hostile(FAILURES["Exits"], "close")).close()
    with refuses(EnvironmentFault, "KeyboardInterrupt"):
        CheckedEnv(Hostile(FAILURES["Interrupts"], "reset"), in_worker=True)._call(FAILURES["Interrupts"], None, None)


def process_state():
    mask = os.umask(0o077)
    os.umask(mask)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    errors = [entry for entry in warnings.filters if entry[0] == "error"]
    return os.getcwd(), mask, handlers, np.geterr(), sys.stdout, sys.stderr, errors


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", ["Directory", "Umask", "Errors", "Warnings", "Signals"])
def test_process_state_that_a_call_changes_is_restored(name, raises):
    with env_calls.own_directory():
        before = process_state()
        env = Hostile(None, "nowhere")

        def tampering():
            TAMPERING[name](env, None)
            if raises:
                raise ValueError

        with contextlib.suppress(EnvironmentFault):
            env_calls.call(tampering, fault=lambda error: EnvironmentFault("failed"))
        assert process_state() == before


def test_streams_are_restored(monkeypatch):
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, sys, "stdout", before[0])
        stack.callback(setattr, sys, "stderr", before[1])

        def taking():
            sys.stdout = sys.stderr = None

        env_calls.call(taking, fault=lambda error: error)
        assert (sys.stdout, sys.stderr) == before


def test_an_environment_may_silence_warnings():
    with warnings.catch_warnings():
        before = list(warnings.filters)

        def silencing():
            warnings.filterwarnings("ignore", "of the simulator")
            warnings.simplefilter("error")

        env_calls.call(silencing, fault=lambda error: error)
        assert warnings.filters[0][0] == "ignore"
        assert warnings.filters[1:] == before


def test_environments_have_their_own_working_directory(tmp_path):
    here = os.getcwd()
    call = {"fault": lambda error: error}
    with env_calls.own_directory():
        env_calls.call(os.chdir, tmp_path, **call)
        assert os.getcwd() == here
        assert env_calls.call(os.getcwd, **call) == str(tmp_path)
        (tmp_path / "gone").mkdir()
        env_calls.call(os.chdir, tmp_path / "gone", **call)
        (tmp_path / "gone").rmdir()
        env_calls.call(int, **call)
        assert os.getcwd() == here
    assert env_calls.call(os.getcwd, **call) == here


def test_a_checked_environment_steps_like_the_plain_one():
    plain, checked = Hostile(None, "nowhere"), CheckedEnv(Hostile(None, "nowhere"))
    for env in (plain, checked):
        env.reset(seed=3)
    assert isinstance(checked, gym.Env)
    for _ in range(10):
        one, other = (env.step(np.zeros(1, np.float32)) for env in (plain, checked))
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]


class Replacing(Counting):
    """Counting, but ``value`` replaces one of the values that a step returns."""

    def __init__(self, place, value, dtype=np.float64):
        largest = 100 if np.issubdtype(dtype, np.integer) else np.inf
        super().__init__(observation_space=gym.spaces.Box(0 if dtype == np.uint8 else -largest, largest, (2,), dtype))
        self.place, self.value = place, value

    def _observation(self):
        return super()._observation().astype(self.observation_space.dtype)

    def step(self, action):
        values = list(super().step(action))
        values[self.place] = self.value
        return tuple(values)


@pytest.mark.parametrize(
    ("place", "value", "dtype", "message"),
    [
        (0, np.zeros(1), np.float64, "observation shape (1,) (2,)"),  # would be broadcast
        (0, 0.5, np.float64, "observation shape () (2,)"),
        (0, np.zeros((2, 1)), np.float64, "observation shape (2, 1) (2,)"),
        (0, np.array(["1", "2"]), np.float64, "observation strings"),
        (0, np.array([0, 0.5]), np.uint8, "observation 0.5 [1] uint8 255"),
        (0, np.array([0, 256]), np.uint8, "observation 256 [1] uint8 255"),
        (0, np.array([0, 128]), np.int8, "observation 128 [1] int8 127"),
        (0, np.array([0.75, 0]), np.int32, "observation 0.75 [0] int32"),
        (0, np.array([0, np.nan]), np.int32, "observation nan [1] int32"),
        (0, np.array([0, 2**24 + 1]), np.float32, "observation integer 16777217 [1]"),
        (1, "1.5", np.float64, "reward str"),
        (1, None, np.float64, "reward None"),
        (1, np.array([1.0]), np.float64, "reward shape (1,)"),
        (2, -0.7, np.float64, "terminated=-0.7 flag"),
        (2, "False", np.float64, "terminated='False' flag"),
        (3, None, np.float64, "truncated=None flag"),
    ],
)
def test_a_vector_refuses_values_that_its_arrays_would_convert(place, value, dtype, message):
    env = SyncVectorEnv([lambda: CheckedEnv(Replacing(place, value, dtype))])
    with refuses(EnvironmentFault, "failed in step 1", message):
        make_env_runner(env, 0).step(np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(("place", "value"), [(0, np.array([0, np.nan])), (1, np.float32("nan")), (1, np.inf)])
def test_non_finite_values_reach_the_vector_to_be_dropped(place, value):
    env = SyncVectorEnv([lambda: CheckedEnv(Replacing(place, value)), lambda: CheckedEnv(Counting())])
    step = make_env_runner(env, 0, on_bad_transition="drop").step(np.zeros((2, 1), np.float32))
    assert list(step.dropped) == [0]
    assert step.transitions.next_observations.tolist() == [[0, 1]]


@pytest.mark.parametrize("value", [[1, 2], np.array([1, 2]), np.array([1, 2], np.float16), (True, 2.0)])
def test_lossless_number_types_are_accepted_in_a_vector(value):
    for dtype in (np.float32, np.int8, np.uint8):
        env = SyncVectorEnv([lambda dtype=dtype: CheckedEnv(Replacing(0, np.asarray(value).astype(dtype), dtype))])
        step = make_env_runner(env, 0).step(np.zeros((1, 1), np.float32))
        assert step.transitions.next_observations.tolist() == [[1, 2]]
    assert CheckedEnv(Replacing(0, value, np.uint8)).step(np.zeros(1, np.float32))[0] is value
