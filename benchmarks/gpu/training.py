"""Measure training with TensorFlow in an environment, on the GPU and on the processor of one machine.

    python -m benchmarks.gpu.training --json benchmarks/results/gpu_training.json     # on a machine with a GPU

The GPU is measured with and without deterministic operations, which the ``ddpg`` command uses. Each measurement has its
own process; that of the processor hides the GPU. HalfCheetah-v5 is stepped in the process, and steps count after the
first updates, which include compilation. Then both devices make one update and 32 updates from the same weights and
minibatches, and the weights of the actor and of the first critic are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.gpu.cases import UPDATES, Case

CASES = (
    Case("plus", (256, 256), 96),
    Case(None, (256, 256), 256),
    Case(None, (1024, 1024), 1024),
)
DEVICES = "gpu", "processor"  # devices whose weights are compared
DETERMINISTIC = "deterministic"  # the GPU with deterministic operations
RANDOM_STEPS = 1_100  # before the first update, and at least as many as the largest minibatch


def main() -> None:
    """Measure every case on both devices; write the results file after each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement of training")
    parser.add_argument("--only", nargs=3, metavar=("DEVICE", "CASE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        device, index, folder = options.only
        if device == DETERMINISTIC:
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        (Path(folder) / f"{device}.json").write_text(json.dumps(measured(CASES[int(index)], options.seconds)))
        if device in DEVICES:
            np.savez(Path(folder) / f"{device}.npz", **updated(CASES[int(index)]))
        return
    document: dict[str, Any] = {"cases": {}}
    for index, case in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            for device in (DETERMINISTIC, *DEVICES):
                hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "processor" else {}
                arguments = ["--json", options.json, "--seconds", options.seconds, "--only", device, index, folder]
                command = [sys.executable, "-m", "benchmarks.gpu.training", *map(str, arguments)]
                subprocess.run(command, env=os.environ | hidden, check=True)
            row = {path.stem: json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))}
            document["machine"] = row["gpu"]["machine"]
            for measurement in row.values():
                del measurement["machine"]
            found, expected = (np.load(Path(folder) / f"{device}.npz") for device in DEVICES)
            for updates in (1, UPDATES):
                names = [name for name in expected if name.startswith(f"{updates}/")]
                row[f"after_{updates}"] = max(float(np.max(np.abs(found[name] - expected[name]))) for name in names)
        document["cases"][case.name] = row
        print(case.name, json.dumps(row), flush=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measured(case: Case, seconds: float) -> dict[str, Any]:
    """Train for ``seconds`` after the first updates; return the rates, the learner's class and the machine."""
    import gymnasium as gym
    import tensorflow as tf

    from benchmarks.speed.results import machine
    from ddpg import DDPG, DDPGConfig
    from ddpg.config.presets import Preset

    sizes = {"hidden": case.hidden, "batch_size": case.batch, "updates_per_call": UPDATES}
    options = Preset(0, recipe=case.recipe).options | sizes | {"learning_starts": RANDOM_STEPS}
    start = time.perf_counter()
    agent = DDPG(gym.make("HalfCheetah-v5"), DDPGConfig(**options), seed=0)
    # After two calls, updates with the actor's step and without it have both been compiled.
    agent.learn(RANDOM_STEPS + 2 * UPDATES)
    first_updates = time.perf_counter() - start

    steps, updates, begin = agent.num_timesteps, agent.updater.num_updates, time.perf_counter()
    agent.learn(1_000_000, callbacks=lambda agent: time.perf_counter() - begin < seconds)
    passed = time.perf_counter() - begin
    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    row = {
        "steps_per_second": (agent.num_timesteps - steps) / passed,
        "updates_per_second": (agent.updater.num_updates - updates) / passed,
        "first_updates_seconds": first_updates,
        "learner": type(agent.updater.learner).__name__,
        "machine": machine() | {"device": gpus[0].get("device_name") if gpus else None, "tensorflow": tf.__version__},
    }
    agent.close()
    return row


def updated(case: Case) -> dict[str, np.ndarray]:
    """Return the weights of the actor and of the first critic after one update and after 32 updates."""
    from benchmarks.gpu.export import agent_of
    from ddpg.replay.minibatch import Batch

    found = {}
    for updates in (1, UPDATES):
        agent = agent_of(case, compiler="xla")
        batch = Batch(*(field[:updates] for field in case.minibatches()))
        agent.updater.learner.update(agent.session, batch, updates)
        for variable in agent.actor.variables + agent.critic.variables:
            found[f"{updates}/{variable.name}"] = agent.session.run(variable)
        agent.close()
    return found


if __name__ == "__main__":
    main()
