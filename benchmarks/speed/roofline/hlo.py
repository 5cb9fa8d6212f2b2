"""Count the kernels of an update that XLA compiles, in the loop body of the HLO text that XLA dumps."""

import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# These instructions only name existing memory; no code runs for them.
_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "iota"}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+)[^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (?:\([^)]*\)|\S+) ([\w-]+)\(", re.MULTILINE)
_BODY = re.compile(r" while\(.*\bbody=%?([\w.-]+)")


def kernels_of_xla(name: str) -> dict[str, int]:
    """Return how many instructions of each kind the loop body of a task's update has.

    Another process compiles the update, since XLA reads ``XLA_FLAGS`` only at its start.
    """
    with tempfile.TemporaryDirectory(prefix="xla-") as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.roofline.hlo", name],
            env=os.environ | {"XLA_FLAGS": flags},
            check=True,
            capture_output=True,
        )
        texts = [path.read_text() for path in Path(folder).glob("*after_optimizations.txt")]
    return max(map(kernels, texts), key=lambda counted: sum(counted.values()), default={})


def kernels(text: str) -> dict[str, int]:
    """Return how many executed instructions of each kind the largest loop body has; ``{}`` without a loop."""
    bodies = dict(_COMPUTATION.findall(text))
    loops = [_count_body(bodies[body]) for body in _BODY.findall(text) if body in bodies]
    return max(loops, key=lambda counted: sum(counted.values()), default={})


def _count_body(body: str) -> dict[str, int]:
    found = collections.Counter(kind for kind in _INSTRUCTION.findall(body) if kind not in _FREE)
    return dict(found.most_common())


if __name__ == "__main__":
    from benchmarks.speed.roofline.measure import Subject
    from benchmarks.speed.tasks import TASKS

    Subject(TASKS[sys.argv[1]], "whole", compiler="xla").run()
