"""Numbers below 1.2e-38, subnormal ones: taken and given as 0 while an update runs, as TensorFlow's kernels do.

A processor computes with them hundreds of times slower, and they gather: averages of what a dead unit once said shrink
by a factor in every update, the tails of a softmax multiply with small errors.
"""

# By LLVM's architecture: the type of the register that says how floats are computed with, how it is read and written,
# and its bits for 0 in place of subnormal results and arguments.
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


def mode_functions(triple: str) -> str:
    """Return LLVM's text of ``i64 flush()``, which returns the mode it changes, and ``set_mode(i64)`` to go back to it.

    Args:
        triple: the machine, as LLVM writes it; where it is none of those known here, nothing is changed.
    """
    text, bits = _BITS.get(triple.partition("-")[0], (_OTHER, 0))
    return f"""{text}

define internal i64 @flush() noinline nounwind {{
  %now = call i64 @mode()
  %wanted = or i64 %now, {bits}
  call void @set_mode(i64 %wanted)
  ret i64 %now
}}"""
