"""NumPy programs are safe to call and load from several threads, and their activations do not overflow."""

import math
import sys
import threading
import warnings

import numpy as np
import pytest
from refusals import refuses

from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS


def chain(length):
    """Return a program that adds w to x ``length`` times."""
    steps = [ProgramStep("AddV2", (0 if number == 0 else number + 1, 1), number + 2) for number in range(length)]
    program = NumpyProgram(steps, length + 2, {}, [1], [0], length + 1)
    program.load([np.zeros(1, np.float32)])
    return program


@pytest.fixture
def frequent_switches():
    """Make Python switch threads after almost every instruction."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_in_threads(*bodies):
    """Run all functions at the same time; return their results in order."""
    results = [None] * len(bodies)
    barrier = threading.Barrier(len(bodies))

    def run(index):
        barrier.wait()
        results[index] = bodies[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.usefixtures("frequent_switches")
def test_threads_get_their_own_results():
    program = chain(20)

    def caller(number):
        observation = np.full((1, 1), number, np.float32)
        return lambda: {float(program(observation)[0, 0]) for _ in range(300)}

    assert run_in_threads(*map(caller, range(8))) == [{float(number)} for number in range(8)]


def test_a_call_uses_the_weights_of_a_single_load():
    """The program is x + v - w, and each load sets v = w. A call happens while v is new and w is old."""
    program = NumpyProgram([ProgramStep("AddV2", (0, 1), 3), ProgramStep("Sub", (3, 2), 4)], 5, {}, [1, 2], [0], 4)
    program.load([np.zeros(1), np.zeros(1)])
    found = []

    class Calling(np.ndarray):
        @property
        def ndim(self):
            found.append(float(program(np.zeros((1, 1)))[0, 0]))
            return 1

    program.load([np.ones(1), np.ones(1).view(Calling)])
    assert found
    assert set(found) == {0.0}
    assert program(np.full((1, 1), 5.0)) == 5


def test_a_failed_load_changes_nothing():
    program = NumpyProgram([ProgramStep("AddV2", (0, 1), 3), ProgramStep("AddV2", (3, 2), 4)], 5, {}, [1, 2], [0], 4)
    program.load([np.ones(1), np.ones(1)])
    with refuses(ValueError, "shorter"):
        program.load([np.zeros(1)])
    assert program(np.zeros((1, 1))) == 2


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


EXPECTED = {
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "Elu": elu,
    "Selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * elu(x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "Erf": np.vectorize(math.erf, [np.float64]),
    "Erfc": np.vectorize(math.erfc, [np.float64]),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_never_overflow(name, dtype):
    x = np.concatenate([np.linspace(-1000, 1000, 4001), np.linspace(-20, 20, 401), [1e-6, -1e-6, -3e38, 3e38]])
    x = x.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = OPERATIONS[name](x)
    assert found.dtype == dtype
    tiny = np.finfo(dtype).smallest_normal  # below it, digits are lost
    rtol = 1e-6 if dtype == np.float32 else 1e-7  # selu's constants are float32
    np.testing.assert_allclose(found, EXPECTED[name](x.astype(np.float64)), rtol=rtol, atol=tiny)
