"""The command imports TensorFlow without Keras, which is imported on first use."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from ddpg.quiet import load_tensorflow
load_tensorflow()
print([name for name in sys.modules if name.startswith("keras")])
from tensorflow.keras import layers
import keras
import tensorflow as tf
print(layers.Dense is keras.layers.Dense is tf.keras.layers.Dense, tf.optimizers.Adam is keras.optimizers.Adam)
"""


@pytest.mark.slow
def test_keras_is_imported_on_first_use():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True True"]
