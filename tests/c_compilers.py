"""The C compilers on PATH, and the emulators for programs of cross compilers."""

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ddpg.exports import policy_graph
from ddpg.exports.c_network import lower_to_c
from ddpg.exports.c_policy import read_arrays, scaled_actions
from ddpg.exports.policy_graph import ActingPolicy
from ddpg.interaction.actions import BoxActions, ParameterisedActions

STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
BOARD = Path(__file__).parent / "exports" / "cortex_m"
CORTEX = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "--specs=rdimon.specs"]


class Compiler(NamedTuple):
    """A compiler's command, and the command that runs its programs."""

    name: str
    command: tuple[str, ...]
    sources: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()


QEMU_BOARD = (
    "qemu-system-arm -M mps2-an386 -nographic -monitor none -serial none -semihosting-config enable=on,target=native"
)
KNOWN = [
    Compiler("gcc", ("gcc", "-O2")),
    Compiler("gcc -O3 -march=native", ("gcc", "-O3", "-march=native")),
    Compiler("gcc -m32", ("gcc", "-m32", "-O1")),
    Compiler("clang", ("clang", "-O2")),
    Compiler("tcc", ("tcc",)),
    Compiler("gcc as C++", ("g++", "-O1", "-x", "c++", "-std=c++11")),
    Compiler("AArch64", ("aarch64-linux-gnu-gcc", "-O2", "-static"), (), ("qemu-aarch64-static",)),
    Compiler(
        "Cortex-M4",
        ("arm-none-eabi-gcc", "-O2", *CORTEX, "-T", str(BOARD / "board.ld")),
        (str(BOARD / "start.c"),),
        (*QEMU_BOARD.split(), "-kernel"),
    ),
]


@functools.cache
def works(compiler: Compiler, options: Sequence[str] = ()) -> bool:
    """Return whether an empty program can be compiled and run."""
    if not all(shutil.which(command[0]) for command in (compiler.command, compiler.emulator) if command):
        return False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.c").write_text("#include <math.h>\n#include <stdio.h>\nint main(void) { return 0; }\n")
        try:
            return run(build(compiler, Path(folder), ["a.c"], options), compiler).returncode == 0
        except subprocess.CalledProcessError:
            return False


def compilers() -> list[Compiler]:
    """Return the compilers that work here; on some machines none does."""
    return [compiler for compiler in KNOWN if works(compiler)]


def build(compiler: Compiler, folder: Path, sources: Sequence[str], options: Sequence[str] = ()) -> Path:
    """Compile sources in a folder into a program there."""
    program = folder / f"program-{abs(hash((compiler, *options)))}"
    command = [*compiler.command, *options, *sources, *compiler.sources, "-o", str(program), "-lm"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
    return program


def run(program: Path, compiler: Compiler, **kwargs) -> subprocess.CompletedProcess:
    """Run a program on its processor."""
    return subprocess.run([*compiler.emulator, str(program)], capture_output=True, text=True, timeout=300, **kwargs)


def strict(compiler: Compiler) -> list[str]:
    """Return the options that make warnings errors; compilers of C++ do not take C's standard."""
    return [option for option in STRICT if "std" not in option or "c++" not in " ".join(compiler.command)]


def warnings_of(compiler: Compiler, folder: Path) -> str:
    """Return the compiler's warnings about the policy, compiled with and without its self-test."""
    output = ""
    for define in ([], ["-DPOLICY_MAIN"]):
        command = [*compiler.command, *strict(compiler), *define, "-c", "policy.c", "-o", "policy.o"]
        output += subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300).stderr
    return output


DRIVER = """\
#include <stdio.h>
#include <string.h>
#include "policy.h"

static const float observations[{count}][POLICY_OBSERVATION_SIZE] = {{
{rows}
}};

static void show(const float *numbers, int count)
{{
    int j;
    for (j = 0; j < count; j++) {{
        unsigned int bits;
        memcpy(&bits, &numbers[j], sizeof bits);
        printf("%08x ", bits);
    }}
}}

int main(void)
{{
    int k;
    for (k = 0; k < {count}; k++) {{
        float outputs[POLICY_OUTPUT_SIZE];
        {declared}
        if (policy_act(observations[k], {arguments}))
            return 1;
        policy_outputs(observations[k], outputs);
        show(outputs, POLICY_OUTPUT_SIZE);
        {shown}
        printf("\\n");
    }}
    return 0;
}}
"""


class Acted(NamedTuple):
    """The results of a policy in C for B observations: float32, exact to the bit."""

    outputs: np.ndarray  # of the network [B, n]
    choices: np.ndarray  # discrete actions [B], or 0
    numbers: np.ndarray  # actions or parameters in env units [B, m]


def acted(folder: Path, compiler: Compiler, actions, observations: np.ndarray, options: Sequence[str] = ()) -> Acted:
    """Compile ``policy.c`` together with observations, and run it."""
    boxes = isinstance(actions, (BoxActions, ParameterisedActions))
    numbers = actions.size - actions.scores if boxes else 0
    has_choice = not isinstance(actions, BoxActions)
    declared = [*(["int choice;"] if has_choice else []), *([f"float action[{numbers}];"] if numbers else [])]
    arguments = [*(["&choice"] if has_choice else []), *(["action"] if numbers else [])]
    shown = [*(['printf("%d ", choice);'] if has_choice else []), *([f"show(action, {numbers});"] if numbers else [])]
    text = DRIVER.format(
        count=len(observations),
        rows=",\n".join(
            "{" + ", ".join(f"{number!s}f" for number in row) + "}"
            for row in np.asarray(observations, np.float32).reshape(len(observations), -1)
        ),
        declared=" ".join(declared),
        arguments=", ".join(arguments),
        shown=" ".join(shown),
    )
    (folder / "driver.c").write_text(text)
    done = run(build(compiler, folder, ["driver.c", "policy.c"], options), compiler)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    width = len(lines[0]) - numbers - has_choice

    def floats(begin: int, count: int) -> np.ndarray:
        bits = [[int(word, 16) for word in line[begin : begin + count]] for line in lines]
        return np.array(bits, np.uint32).reshape(len(lines), count).view(np.float32)

    choices = np.array([int(line[width]) for line in lines] if has_choice else [0] * len(lines))
    return Acted(floats(0, width), choices, floats(width + has_choice, numbers))


def read_and_acted(folder: Path, agent, observations: np.ndarray, quantize: str | None = None) -> Acted:
    """Evaluate the loops of the agent's policy in NumPy with the constants in the written ``policy.c``."""
    program = policy_graph.numpy_program(ActingPolicy.of(agent))
    lowered = lower_to_c(program, agent.observation_space.shape, quantize)
    constants = read_arrays((folder / "policy.c").read_text())
    outputs = lowered.outputs(observations, {**lowered.arrays, **constants})
    if isinstance(agent.actions, BoxActions):
        return Acted(outputs, np.zeros(len(outputs), int), scaled_actions(agent.actions, outputs, constants))
    if isinstance(agent.actions, ParameterisedActions):
        found = scaled_actions(agent.actions, outputs, constants)
        choices = found[:, : agent.actions.scores].argmax(axis=1) + getattr(agent.action_space[0], "start", 0)
        return Acted(outputs, choices, found[:, agent.actions.scores :])
    return Acted(outputs, outputs.argmax(axis=1) + agent.action_space.start, np.zeros((len(outputs), 0)))
