"""Machine code from LLVM's text, with BLAS for matrix products."""

import ctypes
from collections.abc import Callable

from scipy.linalg import cython_blas

from ddpg.native.emit import ENTRY, PRODUCT
from ddpg.native.program import NoTranslation


class Compiled:
    """A module's entry as a function of addresses; it runs without Python's lock."""

    def __init__(self, text: str, pointers: int):
        try:
            from llvmlite import binding
        except ImportError as error:
            raise NoTranslation(f"llvmlite cannot be imported ({error})") from None
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        binding.add_symbol(PRODUCT, _sgemm())
        target = binding.Target.from_default_triple()
        machine = target.create_target_machine(
            cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
        )
        module = binding.parse_assembly(text)
        module.triple, module.data_layout = binding.get_default_triple(), str(machine.target_data)
        module.verify()
        tuning = binding.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = True
        passes = binding.create_pass_builder(machine, tuning)
        passes.getModulePassManager().run(module, passes)
        self.text = str(module)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * pointers)
        self.run: Callable[..., None] = prototype(self._engine.get_function_address(ENTRY))


def _sgemm() -> int:
    """Return the address of SciPy's own BLAS routine, as it gives it to Cython."""
    capsule = cython_blas.__pyx_capi__["sgemm"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, name(capsule)))
