"""tflearn 0.5 on current TensorFlow, without its global side effects.

A plain ``import tflearn`` fails on TensorFlow >= 2.16 (two names it expects are gone), switches
eager execution off for the whole process, creates a variable in the default graph and prints to
stdout. Here the import runs inside a throw-away graph, with the missing names supplied and the switch
a no-op; everything patched is restored before the module is handed out. SciPy's image filters take most
of the import time and serve image augmentation alone, so they are imported on first use. One patch stays:
tflearn's layers get a ``cond`` that builds only the branch taken where the condition is constant. Import
tflearn only from here.
"""

import contextlib
import importlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import tensorflow as tf
from PIL import Image
from tensorflow.python.util import nest

_TRAINING_MODE = "is_training"  # the graph collection in which tflearn keeps its mode


@contextlib.contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of one of TensorFlow's public modules for a while.

    These modules cache attributes once read and setting does not refresh the cache: only deleting does.
    """
    original = getattr(module, name)
    delattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        delattr(module, name)
        setattr(module, name, original)


@contextlib.contextmanager
def _postponed(name: str) -> Iterator[None]:
    """Skip the import of a submodule inside the block; packages that load lazily import it on first use."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


def _import_tflearn() -> ModuleType:
    if "tflearn" in sys.modules:
        return sys.modules["tflearn"]
    # The module that `import tensorflow.compat.v1` finds need not be the attribute `tf.compat.v1`.
    v1 = importlib.import_module("tensorflow.compat.v1")
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.Graph().as_default())
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_replaced(v1, "disable_v2_behavior", lambda: None))
        stack.enter_context(_postponed("scipy.ndimage"))
        stack.enter_context(mock.patch.object(nest, "is_sequence", nest.is_nested, create=True))
        stack.enter_context(mock.patch.object(Image, "ANTIALIAS", Image.Resampling.LANCZOS, create=True))
        tflearn = importlib.import_module("tflearn")
    for layers in (tflearn.layers.core, tflearn.layers.normalization):
        layers.tf = _TensorFlow()
    return tflearn


class _TensorFlow:
    """TensorFlow for tflearn's layers, which test in the graph whether they are training: see :func:`training_mode`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tf.compat.v1, name)

    @staticmethod
    def cond(pred: tf.Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        """Return ``tf.compat.v1.cond``, or only the branch taken if the condition is constant."""
        answer = tf.get_static_value(pred)
        return tf.compat.v1.cond(pred, true_fn, false_fn) if answer is None else (true_fn if answer else false_fn)()


tflearn = _import_tflearn()


@contextlib.contextmanager
def training_mode(training: bool) -> Iterator[None]:
    """Fix the mode of the tflearn layers built inside: batch statistics, or moving ones.

    tflearn reads the mode from a graph-wide variable, which every network of the graph shares. A
    constant per application lets one update hold an online network in training mode and its target
    in inference mode, and leaves the other mode's ops out of the graph.
    """
    collection = tf.compat.v1.get_default_graph().get_collection_ref(_TRAINING_MODE)
    before = list(collection)
    collection[:] = [tf.constant(training, name="training_mode")]
    try:
        yield
    finally:
        collection[:] = before
