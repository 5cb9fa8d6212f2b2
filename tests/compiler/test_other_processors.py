"""The compiler's tests with kernels for older x86 processors, and for AArch64 if its emulator is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import other_processors
import pytest

ROOT = Path(__file__).parents[2]
ROOM = Path("tests", "compiler")
TESTS = [
    ROOM / f"test_{name}.py"
    for name in ("compiled_update", "codegen_elementwise", "convolution", "flags", "interpreter", "denormals")
]
ACTING = Path("tests", "policies", "test_native_policy.py")
KERNELS = 70  # expected at least; fewer would mean that the tests ran on this processor


@pytest.mark.slow
@pytest.mark.parametrize("name", other_processors.at_hand())
def test_kernels_for_another_processor_pass_the_compilers_tests(name):
    tests = [*TESTS, ACTING] if name == "x86 with SSE2" else TESTS  # compiled policies call functions of this process
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *map(str, tests)]
    environment = {**os.environ, other_processors.VARIABLE: name, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    (made,) = re.findall(rf"kernels made for {name}: (\d+)", done.stdout)
    assert int(made) >= KERNELS


def test_on_x86_some_other_processor_is_available():
    """On x86 the oldest of them always is; elsewhere there may be none."""
    assert other_processors.llvm.get_default_triple().split("-")[0] != "x86_64" or other_processors.at_hand()
