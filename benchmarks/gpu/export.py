"""Export the programs that TensorFlow passes to XLA, so that a machine without TensorFlow can run them.

    python -m benchmarks.gpu.export FOLDER

Needs JAX in addition to TensorFlow, to translate programs into StableHLO. For each case the folder gets the program
``NAME.mlir``, and ``NAME.json`` with its arguments, the outputs that replace arguments, and TensorFlow's results.
``weights.npz`` has the initial values of all variables.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.cases import CASES, UPDATES, Case

if TYPE_CHECKING:
    from ddpg import DDPG


def main() -> None:
    """Export every case in its own process, since XLA reads the folder for programs when it is imported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        export(CASES[options.only], options.folder)
        return
    for index, case in enumerate(CASES):
        print(case.name, flush=True)
        flags = (
            f"--xla_dump_to={options.folder / case.name} --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=.*updates.*"
        )
        command = [sys.executable, "-m", "benchmarks.gpu.export", str(options.folder), "--only", str(index)]
        subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}, check=True)


def export(case: Case, folder: Path) -> None:
    """Export one case, with the results of one update by TensorFlow."""
    from ddpg.replay.minibatch import Batch

    agent = agent_of(case, compiler="xla")
    learner = agent.updater.learner
    graph = agent.session.graph
    (call,) = (
        op for op in graph.get_operations() if op.type.endswith("PartitionedCall") and op.name.startswith("learner")
    )
    with graph.as_default():
        variables = {variable.handle.name: variable for variable in graph.get_collection("variables")}
        found = [variables[tensor.name] for tensor in call.inputs if tensor.name in variables]
        first = agent.session.run([variable.read_value() for variable in found])
    assert [tensor.dtype.name for tensor in call.inputs].count("resource") == len(found)
    result = learner.update(agent.session, Batch(*case.minibatches()), 1)

    dumped = next((folder / case.name).glob("*before_optimizations.hlo.pb"))
    text, places = simplified(stable_hlo(dumped.read_bytes()))
    (folder / f"{case.name}.mlir").write_text(text, encoding="utf-8")
    arguments = [argument(array) for array in first]
    description = {"places": places, "arguments": arguments, "one_update": list(result.metrics.values())}
    description |= {"case": dataclasses.asdict(case), "parameters": sum(array.size for array in first)}
    (folder / f"{case.name}.json").write_text(json.dumps(description), encoding="utf-8")

    weights = folder / "weights.npz"
    arrays = dict(np.load(weights)) if weights.exists() else {}
    arrays |= {one["array"]: array for one, array in zip(arguments, first, strict=True) if one["array"]}
    np.savez_compressed(weights, **arrays)


def agent_of(case: Case, **options: Any) -> "DDPG":
    """Return an agent whose updates have a case's sizes."""
    from gymnasium import spaces

    from ddpg import DDPG, DDPGConfig
    from ddpg.config.presets import Preset

    pair = spaces.Box(-np.inf, np.inf, (case.observations,)), spaces.Box(-1, 1, (case.actions,))
    sizes = {"hidden": case.hidden, "batch_size": case.batch, "updates_per_call": UPDATES, "buffer_size": 10_000}
    return DDPG(pair, DDPGConfig(**Preset(0, recipe=case.recipe).options | sizes | options), seed=0)


def argument(array: np.ndarray) -> dict:
    """Describe an argument: its name in ``weights.npz`` (empty if it is all zeros), shape and type."""
    name = hashlib.sha256(array.tobytes()).hexdigest()[:16] if array.any() else ""
    return {"array": name, "shape": list(array.shape), "dtype": array.dtype.name}


def stable_hlo(dumped: bytes) -> str:
    """Return the StableHLO text of a dumped ``HloProto``."""
    from jax._src.lib import xla_client

    # The proto's first field is the module: a tag byte, its length as a varint (7 bits per byte), and its bytes.
    end = 1
    while dumped[end] & 128:
        end += 1
    length = sum((byte & 127) << 7 * place for place, byte in enumerate(dumped[1 : end + 1]))
    computation = xla_client.XlaComputation(dumped[end + 1 : end + 1 + length])
    return xla_client._xla.mlir.xla_computation_to_mlir_module(computation)


def simplified(text: str) -> tuple[str, dict[str, int]]:
    """Remove source locations and attach to each argument the output that replaces it; return these pairs, too."""
    # JAX's newer versions cannot read the copies that this version writes.
    copied = r"mhlo\.copy (%\w+)(?: \{[^}]*\})? : (tensor<[^>]*>)"
    text = re.sub(copied, r"stablehlo.reshape \1 : (\2) -> \2", text)
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r" loc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)", "", text)
    header, rest = text[: text.index("func.func")], text[text.index("func.func") :]
    outputs = [int(one) for one in re.findall(r"output_index = array<i64: (\d+)>", header)]
    numbers = [int(one) for one in re.findall(r"parameter_number = (\d+)", header)]
    before, name, main = rest.partition("func.func @main")
    if not name:
        before, name, main = rest.partition("func.func public @main")
    signature, line, body = main.partition("\n")
    for output, number in zip(outputs, numbers, strict=True):
        written = rf"%arg{number}: tensor<[^>]*>"
        signature, times = re.subn(written, rf"\g<0> {{tf.aliasing_output = {output} : i32}}", signature, count=1)
        assert times == 1, number
    return f"module @updates {{\n  {before}{name}{signature}{line}{body}", dict(
        zip(map(str, outputs), numbers, strict=True)
    )


if __name__ == "__main__":
    main()
