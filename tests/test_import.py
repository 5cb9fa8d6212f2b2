"""Importing has no side effects: each check runs in a fresh interpreter."""

import ast
import subprocess
import sys
from pathlib import Path

import ddpg


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_import_prints_nothing_and_is_lazy():
    there = "{'DDPG', '__version__'} <= set(dir(ddpg)) and ddpg.__version__[0].isdigit()"
    done = run(f"import ddpg, sys; assert 'tensorflow' not in sys.modules; assert {there}")
    assert (done.stdout, done.stderr) == ("", "")


def test_everything_imported_leaves_tensorflow_as_it_was_and_eager_code_works_beside_an_agent():
    """In one process: what takes longest is importing TensorFlow."""
    done = run(
        """
import tensorflow as tf
from tensorflow.python.util import nest
from PIL import Image
v1 = tf.compat.v1
import sys
import ddpg
state = lambda: (
    tf.executing_eagerly(), v1.resource_variables_enabled(), v1.control_flow_v2_enabled(),
    hasattr(nest, "is_sequence"), hasattr(Image, "ANTIALIAS"), v1.disable_v2_behavior,
)
before = state()
ddpg.DDPG
assert "tflearn" in sys.modules and "scipy.ndimage" not in sys.modules
for name in ddpg.__all__:
    getattr(ddpg, name)
assert state() == before, (before, state())
assert tf.executing_eagerly()
assert v1.get_default_graph().get_operations() == []

import gymnasium as gym, numpy as np
from ddpg import DDPG, DDPGConfig
w = tf.Variable(3.0)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
env = gym.make("Pendulum-v1")
agent = DDPG(env, DDPGConfig(hidden=(8,), batch_size=8, learning_starts=10, updates_per_call=4, jit=False), seed=0)
agent.learn(40)
with tf.GradientTape() as tape:
    loss = w * w
assert float(tape.gradient(loss, w)) == 6.0
model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
assert tf.executing_eagerly() and v1.get_default_graph().get_operations() == []

import tflearn
assert tflearn.fully_connected
images = tflearn.ImageAugmentation()
images.add_random_blur(3.0)
assert np.allclose(images.apply(np.ones((4, 5, 5))), 1) and sys.modules["scipy.ndimage"].gaussian_filter
v1.disable_v2_behavior()
assert not tf.executing_eagerly()
"""
    )
    assert done.stdout == ""


def test_workers_parts_need_no_tensorflow():
    rooms = {
        "replay": ("buffer", "sampling"),
        "interaction": ("env_runner", "spaces"),
        "policies": ("noise", "numpy_program"),
    }
    modules = ", ".join(f"ddpg.{room}.{name}" for room, names in rooms.items() for name in names)
    run(f"import {modules}, ddpg.config.algorithm_options, ddpg_envs, sys; assert 'tensorflow' not in sys.modules")


def test_a_run_starts_without_what_draws_its_curve():
    """Matplotlib comes at its end, and before it where cells are forked; scipy.stats not at all."""
    run(
        "from ddpg.quiet import load_tensorflow; load_tensorflow(); import sys, ddpg.runs.training;"
        "assert not {'matplotlib', 'scipy.stats'} & {*sys.modules}"
    )


def test_type_checkers_see_the_names_that_are_imported_when_first_used():
    names = [
        (alias.asname, node.module)
        for node in ast.walk(ast.parse(Path(ddpg.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(names) == sorted(ddpg._HOME.items())
