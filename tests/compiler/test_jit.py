"""Machine code for the target that the process runs on."""

import pytest
from llvmlite import binding as llvm

from ddpg.compiler import jit

TEXT = """
@numbers = internal global [4 x float] zeroinitializer

define ptr @place() {
  ret ptr @numbers
}"""


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "x86_64-pc-windows-msvc-elf"])
def test_code_on_windows_refers_to_data_as_it_does_on_linux(triple, monkeypatch):
    """By its address; llvmlite adds ``-elf`` to the name of Windows."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    monkeypatch.setattr(llvm.Target, "from_default_triple", lambda: llvm.Target.from_triple(triple))
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "x86-64")
    monkeypatch.setattr(llvm, "get_host_cpu_features", llvm.FeatureMap)
    target = jit._host_target()
    assembly = target.emit_assembly(jit.optimised(TEXT, target, triple.removesuffix("-elf")))
    assert "movabsq\t$numbers" in assembly
    assert "GLOBAL_OFFSET_TABLE" not in assembly
