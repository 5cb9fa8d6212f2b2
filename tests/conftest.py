"""Fixtures: a graph with its session, small spaces, golden values; and settings that make the tests faster."""

# ruff: noqa: E402 - environment variables are set before the imports that read them

import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Before NumPy reads it, as ddpg.cli.main does: a second BLAS thread that waits for its core costs more than it
# computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What XLA compiles here runs for milliseconds; optimising it takes LLVM a second, and changes only rounding.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Parallel processes share the cores.
os.environ.setdefault(
    "TF_NUM_INTRAOP_THREADS",
    str(max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))),
)

from ddpg.quiet import load_tensorflow

load_tensorflow()  # otherwise its notices would appear below pytest's last line

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings
from pictures import leave_out_pictures
from tensorflow.python.util import tf_stack

from ddpg.learners.synced_session import SyncedSession

# The tests check correctness, not speed; a busy machine may be slow.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

v1 = tf.compat.v1

# TensorFlow records each op's stack, and pytest's is deep: this would take a tenth of the tests' time.
_HERE = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _HERE


def pytest_configure(config: pytest.Config) -> None:
    """Share the cache of compiled code between this run's processes, in a temporary directory."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["DDPG_CACHE"] = cache = tempfile.mkdtemp(prefix="ddpg-cache-")
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from scanning TensorFlow again and again; graphs are large and soon garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


leave_out_pictures()

# No test cuts the power, and waiting for the disk at several writes per checkpoint would cost 5 ms each.
os.fsync = lambda descriptor: None

# A shell's background processes ignore Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For every option that DDPG and DQN share, a value that differs from the tests' and changes what is learned.
SHARED_CHANGES = {
    "activation": "tanh",
    "norm": "layer",
    "output_init": "fan_in",
    "gamma": 0.1,
    "tau": 1.0,
    "learning_rate_schedule": "linear",
    "batch_size": 9,
    "buffer_size": 25,
    "learning_starts": 30,
    "updates_per_step": 2.0,
    "updates_per_call": 3,
    "clip_delta": 0.01,
    "rescale_rewards": True,
    "n_steps": 3,
    "prioritised": "proportional",
    "priority_exponent": 2.0,
    "priority_correction": 1.0,
    "priority_correction_steps": 20,
    "normalize_observations": True,
    "normalize_rewards": True,
    "target": "online",
    "optimizer": "rmsprop",
    "jit": True,
}

# Changed in test_hindsight, test_native, test_bfloat16, test_learn_loop, test_memory_options, test_images,
# test_dropped_transitions and test_env_calls.
ELSEWHERE = (
    "random_shift",
    "hindsight",
    "dataset_share",
    "compiler",
    "precision",
    "threads",
    "overlap",
    "on_bad_transition",
    "step_timeout",
)


def module_at(path: Path) -> ModuleType:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_the_change(base, field):
    """Return the base options for a test that changes ``field``, with what the field needs to have an effect."""
    if field == "clip_delta":
        return base.replace(td_target="output_delta")
    return base.replace(prioritised="proportional") if field.startswith("priority_") else base


@pytest.fixture
def graph():
    """A fresh default graph with a seed."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(0)
        yield graph


@pytest.fixture
def session(graph):
    """A default session for the graph, of the class that agents use."""
    with SyncedSession().as_default() as session:
        yield session


@pytest.fixture
def initialize(session):
    """A function that initialises every variable created so far."""
    return lambda: session.run(v1.global_variables_initializer())


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def hangup_not_ignored():
    """Handle SIGHUP by default, here and in processes that the test starts, also if pytest runs under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def observation_space():
    return gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


@pytest.fixture
def action_space():
    """A box with bounds that differ by dimension: [-1, 3] and [0.5, 1]."""
    return gym.spaces.Box(np.array([-1.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32))


class Golden:
    """A file of values computed by TensorFlow 1.15 and tflearn 0.5."""

    def __init__(self, name: str):
        self._data = np.load(Path(__file__).parent / "golden" / f"{name}.npz")

    def __getitem__(self, key: str) -> np.ndarray:
        return self._data[key]

    def list(self, key: str) -> list[np.ndarray]:
        count = sum(name.rpartition("/")[0] == key for name in self._data)
        return [self._data[f"{key}/{index}"] for index in range(count)]


@pytest.fixture
def golden():
    return Golden


def assert_golden(actual, expected):
    """Check that arrays are equal to 1e-5 relative to the largest expected value."""
    if isinstance(expected, list):
        assert len(actual) == len(expected) > 0
        for one, other in zip(actual, expected, strict=True):
            assert_golden(one, other)
        return
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def assert_close(actual, expected, name="", **tolerances):
    """Check arrays, or all arrays of dicts, lists or tuples, by ``numpy.testing.assert_allclose``."""
    if not isinstance(expected, (dict, list, tuple)):
        np.testing.assert_allclose(actual, expected, err_msg=name, **tolerances)
        return
    assert len(actual) == len(expected)
    for key in expected if isinstance(expected, dict) else range(len(expected)):
        assert_close(actual[key], expected[key], f"{name} {key}", **tolerances)


def relative_difference(one, other) -> float:
    """Return the largest difference of two lists of arrays, relative to the largest value of the second."""
    scale = max(np.abs(array).max() for array in other)
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) / scale
