"""Fixtures: a graph with its session, small spaces, golden values."""

# ruff: noqa: E402 - what imports read is set before them

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Before NumPy reads it, as ddpg.cli.main does: a second BLAS thread that waits for its core costs more than it
# computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What XLA compiles here runs for milliseconds; optimising it takes LLVM a second, and changes rounding alone.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Processes side by side share the cores.
os.environ.setdefault(
    "TF_NUM_INTRAOP_THREADS",
    str(max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))),
)

from ddpg.quiet import load_tensorflow

load_tensorflow()  # or its notices stand below pytest's closing line

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings
from tensorflow.python.util import tf_stack

from ddpg.learners.synced_session import SyncedSession

# Correctness, not speed: a busy machine may take its time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

v1 = tf.compat.v1

# TensorFlow notes of every op where it was made, and pytest's stack is deep: a tenth of what the tests do.
_HERE = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _HERE


def pytest_configure(config: pytest.Config) -> None:
    """Let what one process has compiled be known to the others, in a directory of this run's."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["DDPG_CACHE"] = cache = tempfile.mkdtemp(prefix="ddpg-cache-")
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through TensorFlow again and again; graphs are large, and soon garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# No test cuts the power; a write that waits for the disk, several to a checkpoint, leaves a core idle for 5 ms.
os.fsync = lambda descriptor: None

# What runs in the background of a shell ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A value other than the tests' for every option that DDPG and DQN share, that changes what is learned.
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

# What test_hindsight, test_native, test_bfloat16, test_learn_loop, test_faults and test_memory_options change.
ELSEWHERE = (
    "hindsight",
    "dataset_share",
    "compiler",
    "precision",
    "threads",
    "overlap",
    "on_bad_transition",
    "step_timeout",
)


def without_the_change(base, field):
    """Return the options beside which that field's change is tried: what it needs to matter is set."""
    if field == "clip_delta":
        return base.replace(td_target="output_delta")
    return base.replace(prioritised="proportional") if field.startswith("priority_") else base


@pytest.fixture
def graph():
    """A fresh default graph, with v1 initialisers seeded."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(0)
        yield graph


@pytest.fixture
def session(graph):
    """A default session on the fresh graph, as agents have it."""
    with SyncedSession().as_default() as session:
        yield session


@pytest.fixture
def initialize(session):
    """Initialise every variable made so far."""
    return lambda: session.run(v1.global_variables_initializer())


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def observation_space():
    return gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


@pytest.fixture
def action_space():
    """Asymmetric per dimension: [-1, 3] and [0.5, 1]."""
    return gym.spaces.Box(np.array([-1.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32))


class Golden:
    """A file of values that TensorFlow 1.15 and tflearn 0.5 computed."""

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
    """Equal to 1e-5 relative to the largest value of the array."""
    if isinstance(expected, list):
        assert len(actual) == len(expected) > 0
        for one, other in zip(actual, expected, strict=True):
            assert_golden(one, other)
        return
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def relative_difference(one, other) -> float:
    """Largest difference of two lists of arrays, relative to the largest value of the second."""
    scale = max(np.abs(array).max() for array in other)
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) / scale
