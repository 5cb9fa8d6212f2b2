"""Write a policy's function as SavedModel, TFLite or ONNX, and run the written file for comparison."""

import contextlib
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, import_optional
from ddpg.exports.export_dir import ABOUT
from ddpg.exports.policy_graph import INPUT
from ddpg.exports.tensorflow_files import os_errors
from ddpg.quiet import quiet_tensorflow

Outputs = dict[str, np.ndarray]
Runner = Callable[[np.ndarray], Outputs]

_OPSET = 17


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise a ``UsageError`` about the network for any exception, since a format's libraries have classes of their own.

    Args:
        what: who cannot do what, such as ``"ONNX cannot hold"``.
    """
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{what} this network ({reason}); use savedmodel") from None


def write_savedmodel(path: Path, function: Any, about: Mapping[str, Any]) -> None:
    """Write a SavedModel directory with the one signature ``serving_default``.

    Raises:
        OSError: if it cannot be written.
    """
    module = tf.Module()
    module.policy = function
    with os_errors(path):
        tf.saved_model.save(module, str(path), signatures=function)
    (path / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def run_savedmodel(path: Path) -> Runner:
    """Return the signature of a SavedModel as a function of NumPy arrays."""
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return lambda observations: {
        name: value.numpy() for name, value in signature(**{INPUT: tf.constant(observations)}).items()
    }


@quiet_tensorflow()  # the converter of TensorFlow 2.18 warns of its own options
def write_tflite(path: Path, function: Any, about: Mapping[str, Any]) -> None:
    """Write a TFLite file; the metadata is in a zip archive appended to it, as are TFLite's associated files.

    Raises:
        UsageError: if TFLite lacks an op of the network.
        OSError: if the file cannot be written.
    """
    module = tf.Module()
    module.policy = function
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    with _refused("TFLite cannot hold"):
        model = converter.convert()
    path.write_bytes(model)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(ABOUT, json.dumps(about))


def run_tflite(path: Path) -> Runner:
    """Return the signature of a TFLite file as a function of NumPy arrays.

    Raises:
        UsageError: if the interpreter cannot run the network; so does the function.
    """
    model = path.read_bytes()
    with warnings.catch_warnings(), _refused("TFLite cannot run"):
        warnings.simplefilter("ignore", UserWarning)  # TFLite announces that another package will replace it
        runner = tf.lite.Interpreter(model_content=model).get_signature_runner()

    @quiet_tensorflow()  # TFLite logs its backend at the first call
    def run(observations: np.ndarray) -> Outputs:
        with _refused("TFLite cannot run"):
            outputs: Outputs = runner(**{INPUT: observations})
        return outputs

    return run


def write_onnx(path: Path, function: Any, about: Mapping[str, Any]) -> None:
    """Write an ONNX file with the export's metadata among its own; the first axis of each array is named ``batch``.

    Raises:
        UsageError: if tf2onnx or onnxruntime is not installed, tf2onnx does not translate an op of the network, or ONNX
            has it for other types only.
    """
    packages = ("onnx", "tf2onnx", "onnxruntime")  # the last one is for run_onnx, which checks the written file
    onnx, tf2onnx, _ = (import_optional(name, "format='onnx'", "install the extra 'export'") for name in packages)
    signature = function.input_signature
    with _refused("tf2onnx cannot translate"):
        handlers: dict[str, tuple[Callable, list]] = {"Erfc": (_erfc_to_onnx, [])}
        model, _ = tf2onnx.convert.from_function(function, signature, opset=_OPSET, custom_op_handlers=handlers)
    if lacking := sorted({node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type, node.domain)}):
        raise UsageError(f"ONNX cannot hold this network: tf2onnx does not translate {lacking[0]}; use savedmodel")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"  # tf2onnx gives each a number
    model.producer_name = "ddpg-paths"
    onnx.helper.set_model_props(model, {ABOUT: json.dumps(about)})
    with _refused("ONNX cannot hold"):
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def _erfc_to_onnx(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Replace the op Erfc, which GELU reads and ONNX lacks, by 1 − Erf."""
    kept = {"dtypes": node.output_dtypes, "shapes": node.output_shapes}
    erf = graph.make_node("Erf", [node.input[0]], **kept)
    one = graph.make_const(f"{name}/one", np.float32(1))
    graph.remove_node(name)
    graph.make_node("Sub", [one.output[0], erf.output[0]], name=name, outputs=node.output, **kept)


def run_onnx(path: Path) -> Runner:
    """Return the model of an ONNX file as a function of NumPy arrays.

    Raises:
        UsageError: if onnxruntime cannot run the network; so does the function.
    """
    import onnxruntime

    model = path.read_bytes()
    with _refused("onnxruntime cannot run"):
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(observations: np.ndarray) -> Outputs:
        with _refused("onnxruntime cannot run"):
            return dict(zip(names, session.run(names, {INPUT: observations}), strict=True))

    return run
