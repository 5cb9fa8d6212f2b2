"""Compile LLVM text to machine code for this processor, which flushes denormals to zero while it runs.

A processor computes with denormals hundreds of times slower, and they accumulate, as a dead unit's moving averages
decay and the tails of a softmax are multiplied by small errors.
"""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

from ddpg.compiler import code_cache
from ddpg.compiler.codegen import ENTRY, SERIAL_ENTRY
from ddpg.compiler.codegen_gemm import RegisterFile, register_file
from ddpg.compiler.ir import Unsupported

# By LLVM's architecture: functions that read and write the floating-point control register, and the bits in it that
# flush denormal results and arguments to 0.
_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @mode() noinline nounwind {
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %short = load volatile i32, ptr %place
  %now = zext i32 %short to i64
  ret i64 %now
}

define internal void @set_mode(i64 %wanted) noinline nounwind {
  %place = alloca i32
  %short = trunc i64 %wanted to i32
  store i32 %short, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}"""
_ARM = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @mode() noinline nounwind {
  %now = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %now
}

define internal void @set_mode(i64 %wanted) noinline nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %wanted)
  ret void
}"""
_OTHER = """
define internal i64 @mode() noinline nounwind {
  ret i64 0
}

define internal void @set_mode(i64 %wanted) noinline nounwind {
  ret void
}"""
_BITS = {"x86_64": (_X86, 0x8040), "aarch64": (_ARM, 1 << 24), "arm64": (_ARM, 1 << 24)}


def denormal_mode_functions(triple: str) -> str:
    """Return the LLVM text of ``i64 flush()``, which flushes denormals and returns the earlier mode for ``set_mode``.

    On a machine unknown by ``triple``, LLVM's name for it, the mode is not changed.
    """
    text, bits = _BITS.get(triple.partition("-")[0], (_OTHER, 0))
    return f"""{text}

define internal i64 @flush() noinline nounwind {{
  %now = call i64 @mode()
  %wanted = or i64 %now, {bits}
  call void @set_mode(i64 %wanted)
  ret i64 %now
}}"""


PIPELINE = 1  # version of optimised(): code in the cache from another version is not used


class CompilerFailure(Unsupported):
    """LLVM cannot be imported, or fails: a fault, unlike a plain :class:`Unsupported`, which is a known limit."""


@contextlib.contextmanager
def _llvm_failures() -> Iterator[None]:
    """Convert every exception of LLVM to :class:`CompilerFailure`, so that the caller can fall back to XLA."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise CompilerFailure(f"LLVM failed: {type(error).__name__}: {' '.join(lines[:2])}") from error


@_llvm_failures()
def host_registers() -> RegisterFile:
    """Return the registers of this machine that this process may use.

    Raises:
        CompilerFailure: if llvmlite cannot be imported, or fails.
    """
    registers = register_file(_llvm().get_host_cpu_features().flatten())
    return registers if not registers.amx or _may_use_amx() else dataclasses.replace(registers, amx=False)


@functools.cache
def _may_use_amx() -> bool:
    """Ask Linux to let this process, and those that it starts, use AMX's tile registers; return whether it does.

    Source: Linux, Documentation/arch/x86/xstate.rst. Elsewhere the tiles are not used.
    """
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return sys.platform == "linux" and ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


@_llvm_failures()
def obstacle_to_bfloat16() -> str:
    """Return why products of bfloat16 numbers are not faster than products of float32 numbers here; "" if they are.

    An AVX512-BF16 instruction makes twice as many products as a float32 instruction. AMD's Zen 5 starts as many of
    either; Intel's cores fewer, so that products take 1.2 to 1.9 times as long in bfloat16 on Emerald Rapids, unless
    they have AMX (docs/performance/update.md). The processor's name and features decide, because measured times could
    differ in the next run and then change its results.
    """
    registers = host_registers()
    if not registers.bfloat16:
        return "this processor has no AVX512-BF16"
    name = _llvm().get_host_cpu_name()
    faster = registers.amx or name.startswith("znver")
    return "" if faster else f"products of bfloat16 numbers are not known to be faster on {name}"


def fastest_precision() -> str:
    """Return the precision that ``auto`` stands for where :func:`obstacle_to_bfloat16` names none.

    With AMX, three products of bfloat16 numbers are still faster than one of float32 numbers, and almost as precise.
    """
    return "bfloat16x3" if host_registers().amx else "bfloat16"


class CompiledModule:
    """A compiled module's entry functions, called with a count, a worker's index and addresses, without Python's lock.

    Attributes:
        run: the function that each worker calls.
        run_serial: does the work of all workers in one call; ``run`` itself if there is one worker.

    Raises:
        CompilerFailure: if LLVM rejects the text, or cannot compile it.
    """

    @_llvm_failures()
    def __init__(self, text: str, pointers: int):
        llvm = _llvm()
        target, text = _host_target(), with_denormal_mode(text)
        key = _key(text)
        kept = code_cache.read(key)
        module = optimised(text, target, llvm.get_default_triple()) if kept is None else llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(module, target)  # the code lives as long as this
        self._engine.set_object_cache(lambda _, code: code_cache.write(key, code), lambda _: kept)
        self._engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * pointers)
        self.run: Callable[..., None] = prototype(self._engine.get_function_address(ENTRY))
        serial = self._engine.get_function_address(SERIAL_ENTRY)
        self.run_serial: Callable[..., None] = prototype(serial) if serial else self.run

    @_llvm_failures()
    def short_function(self, name: str, pointers: int) -> Callable[..., None]:
        """Return a function of addresses that keeps Python's lock, so that calls of microseconds never wait for it."""
        return ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * pointers)(self._engine.get_function_address(name))


def with_denormal_mode(text: str) -> str:
    """Return a module's text with this machine's functions that set the denormal mode."""
    return f"{text}\n\n{denormal_mode_functions(_llvm().get_default_triple())}"


@_llvm_failures()
def listings(text: str) -> dict[str, str]:
    """Return a module as LLVM text, optimised LLVM text and assembly, by file name."""
    text, target = with_denormal_mode(text), _host_target()
    module = optimised(text, target, _llvm().get_default_triple())
    return {"llvm.ll": text, "optimized.ll": str(module), "assembly.s": target.emit_assembly(module)}


def _host_target() -> Any:
    llvm = _llvm()
    # For a process, addresses are known when the code is loaded. It is LLVM's default, except for Windows on x86.
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, reloc="static"
    )


@functools.lru_cache(16)
def compile_module(text: str, pointers: int) -> CompiledModule:
    """Return a compiled module; agents whose updates differ only in weights share it."""
    return CompiledModule(text, pointers)


def optimised(text: str, target: Any, triple: str) -> Any:
    """Return the module of ``text``, optimised for a target machine of llvmlite and its ``triple``."""
    llvm = _llvm()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(target.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = True
    passes = llvm.create_pass_builder(target, tuning)
    passes.getModulePassManager().run(module, passes)
    return module


def _key(text: str) -> str:
    """Return the cache key for the code of ``text``; it covers everything on which the code depends."""
    llvm = _llvm()
    machine = llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    parts = (text, str(PIPELINE), *machine, metadata.version("llvmlite"), *map(str, llvm.llvm_version_info))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _llvm() -> ModuleType:
    try:
        from llvmlite import binding
    except ImportError as error:
        raise CompilerFailure(f"llvmlite cannot be imported ({error})") from None
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding
