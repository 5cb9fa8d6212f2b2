"""Machine code from LLVM's text."""

import contextlib
import ctypes
import functools
import hashlib
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

from ddpg.native import code_cache
from ddpg.native.emit import ALONE, ENTRY
from ddpg.native.product import Registers, registers
from ddpg.native.program import NoTranslation
from ddpg.native.subnormal import mode_functions

PIPELINE = 1  # counts the ways in which optimised has worked: code of another one is not taken from the cache


class CompilerFailure(NoTranslation):
    """LLVM is not there, or refuses what it was given: no limit of ours, as a missing translation is."""


@contextlib.contextmanager
def _llvm_failures() -> Iterator[None]:
    """Let whatever LLVM raises be a :class:`CompilerFailure`: updates are compiled by XLA then."""
    try:
        yield
    except NoTranslation:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise CompilerFailure(f"LLVM failed: {type(error).__name__}: {' '.join(lines[:2])}") from error


@_llvm_failures()
def machine() -> Registers:
    """Return what this machine's registers hold.

    Raises:
        CompilerFailure: llvmlite cannot be imported, or fails.
    """
    return registers(_llvm().get_host_cpu_features().flatten())


class Compiled:
    """A module's entries as functions of a count, a worker's number and addresses; they run without Python's lock.

    Attributes:
        run: what each worker calls.
        run_alone: does the same in one call; ``run`` itself where there is one worker.

    Raises:
        CompilerFailure: LLVM refuses the text, or cannot make code of it.
    """

    @_llvm_failures()
    def __init__(self, text: str, pointers: int):
        llvm = _llvm()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        text = f"{text}\n\n{mode_functions(llvm.get_default_triple())}"
        key = _key(text)
        kept = code_cache.read(key)
        module = optimised(text, target, llvm.get_default_triple()) if kept is None else llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(module, target)  # the code lives as long as this
        self._engine.set_object_cache(lambda _, code: code_cache.write(key, code), lambda _: kept)
        self._engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * pointers)
        self.run: Callable[..., None] = prototype(self._engine.get_function_address(ENTRY))
        alone = self._engine.get_function_address(ALONE)
        self.run_alone: Callable[..., None] = prototype(alone) if alone else self.run


@functools.lru_cache(8)
def compiled(text: str, pointers: int) -> Compiled:
    """Return a module, compiled; agents that differ in their numbers alone share it."""
    return Compiled(text, pointers)


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
    """Return a name for the code of ``text``: whatever else decides on it is part of the name."""
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
