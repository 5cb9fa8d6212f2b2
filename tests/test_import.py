"""Importing has no side effects, tested in fresh interpreters; and a folder is not mistaken for a package."""

import ast
import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refuses

import ddpg
from ddpg import UsageError
from ddpg.errors import import_optional
from ddpg.exports.formats import write_onnx
from ddpg.runs.trackers import TRACKERS, as_tracker
from ddpg.runs.video import VideoWriter, WindowViewer
from ddpg.studies.trials import check_installed
from ddpg.workers.worker_options import import_ray


def run(code: str) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_import_prints_nothing_and_is_lazy():
    there = "{'DDPG', '__version__'} <= set(dir(ddpg)) and ddpg.__version__[0].isdigit()"
    done = run(f"import ddpg, sys; assert 'tensorflow' not in sys.modules; assert {there}")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_keras_is_imported_on_first_use():
    done = run(
        """
import sys
from ddpg.quiet import load_tensorflow
load_tensorflow()
print([name for name in sys.modules if name.startswith("keras")])
from tensorflow.keras import layers
import keras
import tensorflow as tf
print(layers.Dense is keras.layers.Dense is tf.keras.layers.Dense, tf.optimizers.Adam is keras.optimizers.Adam)
"""
    )
    assert done.stdout.split("\n")[:2] == ["[]", "True True"]


@pytest.mark.slow
def test_importing_everything_does_not_change_tensorflow_and_eager_code_works_beside_an_agent():
    """In one process, because importing TensorFlow takes longest."""
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
images.add_random_blur(3.0)  # each image with probability 1/2
assert np.allclose(images.apply(np.ones((64, 5, 5))), 1) and sys.modules["scipy.ndimage"].gaussian_filter
v1.disable_v2_behavior()
assert not tf.executing_eagerly()
"""
    )
    assert done.stdout == ""


@pytest.mark.slow
def test_a_run_starts_without_importing_matplotlib():
    """Matplotlib is imported at the end of a run, or before if cells are forked; scipy.stats is never imported."""
    run(
        "from ddpg.quiet import load_tensorflow; load_tensorflow(); import sys, ddpg.runs.training;"
        "assert not {'matplotlib', 'scipy.stats'} & {*sys.modules}"
    )


def test_type_checkers_see_the_lazily_imported_names():
    names = [
        (alias.asname, node.module)
        for node in ast.walk(ast.parse(Path(ddpg.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(names) == sorted(ddpg._HOME.items())


OPTIONAL = {
    "ray": lambda path: import_ray(),
    "minari": lambda path: ddpg.load_dataset("minari:a"),
    "optuna": lambda path: check_installed(),
    "envpool": lambda path: ddpg.EnvPoolVector("Pendulum-v1", 2),
    "imageio_ffmpeg": lambda path: VideoWriter(path / "a.mp4", 30.0),
    "pygame": lambda path: WindowViewer("title", 30.0),
    "onnx": lambda path: write_onnx(path / "a.onnx", None, {}),
    **{name: lambda path, name=name: as_tracker(name) for name in TRACKERS},
}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_folder_is_not_taken_for_an_optional_package(name, monkeypatch, tmp_path):
    """If a package is not installed, Python imports a folder of its name instead, such as one of W&B's results."""
    (tmp_path / name).mkdir()
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / name)]
    monkeypatch.setitem(sys.modules, name, importlib.util.module_from_spec(spec))
    with refuses(UsageError, f"'{name}' install"):
        OPTIONAL[name](tmp_path)
    assert name not in sys.modules


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
@pytest.mark.slow
def test_a_folder_named_like_a_missing_package_does_not_start_a_study(tmp_path):
    (tmp_path / "ray").mkdir()
    study = 'environments = ["Pendulum-v1"]\nseeds = [0]\ntotal_timesteps = 100\n[configurations]\nplain = {}\n'
    (tmp_path / "study.toml").write_text(study)
    words = [sys.executable, "-m", "ddpg", "study", "study.toml", "--engine", "ray"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "install" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"ray", "study.toml"}


def test_a_package_whose_import_fails_is_a_one_line_error(monkeypatch, tmp_path):
    (tmp_path / "broken_tracker.py").write_text("from os import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with refuses(UsageError, "it 'broken_tracker' nothing_of_that_name advice"):
        import_optional("broken_tracker", "it", "advice")
