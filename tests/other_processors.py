"""Kernels for other processors: older x86 in this process, and AArch64 in an emulator, if it is installed.

``DDPG_TEST_PROCESSOR=NAME`` runs the compiler's tests on one of them (tests/compiler/conftest.py).
"""

import ctypes
import math
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import c_compilers
import numpy as np
from llvmlite import binding as llvm

from ddpg.compiler import compiled_update, jit
from ddpg.compiler.codegen import ENTRY, SERIAL_ENTRY
from ddpg.compiler.codegen_gemm import RegisterFile
from ddpg.policies import native_policy

VARIABLE = "DDPG_TEST_PROCESSOR"


class Processor(NamedTuple):
    """A processor's LLVM names and registers; ``triple`` is empty if its code runs on this processor."""

    cpu: str
    registers: RegisterFile
    triple: str = ""


PROCESSORS = {
    "x86 with SSE2": Processor("x86-64", RegisterFile(4, 6)),
    "x86 with AVX2": Processor("x86-64-v3", RegisterFile(8, 6)),
    "AArch64": Processor("neoverse-n1", RegisterFile(4, 6), "aarch64-unknown-linux-gnu"),
}
(_CROSS,) = [compiler for compiler in c_compilers.KNOWN if compiler.name == "AArch64"]
used: list[str] = []  # the text of each kernel compiled for another processor


def at_hand() -> list[str]:
    """Return the names of those whose kernels can run here."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    known = llvm.get_host_cpu_features() if x86 else {}
    can = {"x86 with SSE2": x86, "x86 with AVX2": known.get("avx2", False), "AArch64": c_compilers.works(_CROSS)}
    return [name for name in PROCESSORS if can[name]]


def become(name: str) -> None:
    """From now on, compile and run for that processor in this process."""
    processor = PROCESSORS[name]
    os.environ["DDPG_CACHE"] = "off"  # its keys contain this processor's name
    for module in (compiled_update, native_policy):
        module.host_registers = lambda: processor.registers
    if processor.triple:
        compiled_update.compile_module = lambda text, pointers: EmulatedModule(text, pointers, processor)
        compiled_update.CompiledUpdate._run = _run_emulated
        return
    compiled = compiled_update.compile_module

    def counted(text: str, pointers: int):
        used.append(text)
        return compiled(text, pointers)

    jit._host_target = lambda: llvm.Target.from_default_triple().create_target_machine(cpu=processor.cpu, opt=3)
    compiled_update.compile_module = counted


def _run_emulated(update, serial: bool, count: int, addresses) -> None:
    """Replace :meth:`CompiledUpdate._run`, which passes addresses, because the emulator has its own memory."""
    fields = [count * size for _, size in update._fields]
    kept = [count * math.prod(shape) for shape in update._kept]
    sizes = [count, update._block.size, *fields, update._sums.size, *kept]
    pointers = [ctypes.cast(address, ctypes.POINTER(ctypes.c_float)) for address in addresses]
    arrays = [np.ctypeslib.as_array(pointer, (size,)) for pointer, size in zip(pointers, sizes, strict=True)]
    update._compiled.run(count, arrays)


class EmulatedModule:
    """A module in an emulated program, which reads its memory from a file and writes it to another."""

    def __init__(self, text: str, pointers: int, processor: Processor):
        used.append(text)
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(processor.triple).create_target_machine(cpu=processor.cpu, opt=3, reloc="pic")
        text = f"{text}\n\n{jit.denormal_mode_functions(processor.triple)}"
        code = target.emit_object(jit.optimised(text, target, processor.triple))
        entry = SERIAL_ENTRY if f"@{SERIAL_ENTRY}(" in text else ENTRY
        self._keep = tempfile.TemporaryDirectory()
        self._folder = Path(self._keep.name)
        (self._folder / "kernel.o").write_bytes(code)
        (self._folder / "main.c").write_text(_PROGRAM.format(entry=entry, pointers=pointers, **_arguments(pointers)))
        self._program = c_compilers.build(_CROSS, self._folder, ["main.c", "kernel.o"])

    def run(self, count: int, arrays: list[np.ndarray]) -> None:
        """Run ``count`` updates on the arrays' memory."""
        given, found = self._folder / "given", self._folder / "found"
        numbers = np.array([count, *(array.size for array in arrays)], np.int64)
        given.write_bytes(b"".join(array.tobytes() for array in (numbers, *arrays)))
        subprocess.run([*_CROSS.emulator, str(self._program), str(given), str(found)], check=True, timeout=300)
        memory, start = np.fromfile(found, np.float32), 0
        for array in arrays:
            array[...] = memory[start : start + array.size]
            start += array.size


def _arguments(pointers: int) -> dict[str, str]:
    return {
        "types": ", ".join(["float *"] * pointers),
        "arrays": ", ".join(f"arrays[{index}]" for index in range(pointers)),
    }


_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
void {entry}(long long, long long, {types});
int main(int argc, char **argv) {{
    long long numbers[1 + {pointers}];
    float *arrays[{pointers}];
    FILE *file = fopen(argv[1], "rb");
    if (fread(numbers, sizeof numbers, 1, file) != 1) return 1;
    for (int i = 0; i < {pointers}; i++) {{
        size_t size = numbers[i + 1];
        arrays[i] = aligned_alloc(64, (4 * size / 64 + 1) * 64);
        if (fread(arrays[i], 4, size, file) != size) return 2;
    }}
    {entry}(numbers[0], 0, {arrays});
    file = fopen(argv[2], "wb");
    for (int i = 0; i < {pointers}; i++) fwrite(arrays[i], 4, numbers[i + 1], file);
    return fclose(file);
}}
"""
