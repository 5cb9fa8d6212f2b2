"""Build LLVM text one instruction at a time.

LLVM's floating-point flags, and where they are safe:

- ``contract``, everywhere: a product and a sum are rounded once; NaN and infinity are preserved.
- ``reassoc``, only on the additions of a reduction over a dimension: each lane of a vector gets a partial sum. The
  order of the terms is free anyway.
- ``nsz``, nowhere. With ``reassoc`` it permits ``(x - y) + y = x`` and the like, which removes the guard
  ``scale + (norm - norm)`` of ``tf.clip_by_global_norm``; ``reassoc`` without it permits the lanes and little else.
- ``arcp``, nowhere: ``x / y`` as ``x * (1 / y)`` is 0 for y above 8.5e37, and on x86 ``1 / sqrt(0)`` becomes an
  estimate, NaN in place of infinity.
- ``nnan``, ``ninf``, ``afn``, nowhere: diverged training must stay visible.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

ELEMENTWISE = "contract"
REDUCTION = "reassoc contract"


class FunctionBuilder:
    """The instructions of one function; each result has a unique name."""

    def __init__(self) -> None:
        self.lines: list[str] = ["entry:"]
        self._count = 0

    def function(self, name: str, pointers: Sequence[str], numbers: Sequence[str] = ()) -> str:
        """Return the function of these instructions; its ``pointers`` must not overlap."""
        given = ", ".join([*(f"ptr noalias %{name}" for name in pointers), *(f"i64 %{name}" for name in numbers)])
        head = f"define internal void @{name}({given}) noinline nounwind"
        return "\n".join([f"{head} {{", *self.lines, "  ret void", "}"])

    def add(self, instruction: str) -> str:
        """Add an instruction; return its result's name."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {instruction}")
        return f"%v{self._count}"

    def do(self, instruction: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")

    @contextlib.contextmanager
    def loop(self, low: str | int, high: str | int) -> Iterator[str]:
        """Run the instructions added inside for each index from ``low`` up to, but not including, ``high``."""
        self._count += 1
        name = f"loop{self._count}"
        with self.when(f"icmp slt i64 {low}, {high}", name):
            self.do(f"br label %{name}")
            self.label(name)
            self.do(f"%{name}.i = phi i64 [{low}, %{name}.then], [%{name}.next, %{name}.latch]")
            yield f"%{name}.i"
            self.do(f"br label %{name}.latch")
            self.label(f"{name}.latch")
            self.do(f"%{name}.next = add nsw i64 %{name}.i, 1")
            self.do(f"%{name}.over = icmp sge i64 %{name}.next, {high}")
            self.do(f"br i1 %{name}.over, label %{name}.out, label %{name}")
            self.label(f"{name}.out")

    @contextlib.contextmanager
    def when(self, condition: str, name: str | None = None) -> Iterator[None]:
        """Run the instructions added inside if a comparison holds."""
        holds = self.add(condition)
        name = name or f"when{self._count}"
        self.do(f"br i1 {holds}, label %{name}.then, label %{name}.after")
        self.label(f"{name}.then")
        yield
        self.do(f"br label %{name}.after")
        self.label(f"{name}.after")

    def at(self, pointer: str, *offsets: str | int) -> str:
        """Return the address of the float at the sum of ``offsets``."""
        place = str(offsets[0])
        for offset in offsets[1:]:
            if offset not in (0, "0"):
                place = self.add(f"add nsw i64 {place}, {offset}")
        return pointer if place == "0" else self.add(f"getelementptr float, ptr {pointer}, i64 {place}")

    def times(self, index: str | int, factor: int) -> str:
        """Return an index times a number."""
        return str(index) if factor == 1 else self.add(f"mul nsw i64 {index}, {factor}")

    def load(self, pointer: str, *offsets: str | int, type_: str = "float") -> str:
        """Load the float, or another type, at the sum of ``offsets``; return its register."""
        return self.add(f"load {type_}, ptr {self.at(pointer, *offsets)}, align 4")

    def store(self, value: str, pointer: str, *offsets: str | int, type_: str = "float") -> None:
        """Store a value at the sum of ``offsets``."""
        self.do(f"store {type_} {value}, ptr {self.at(pointer, *offsets)}, align 4")

    def binary(self, operation: str, one: str, other: str) -> str:
        """Return a binary operation's result: fadd, fsub, fmul or fdiv."""
        return self.add(f"{operation} {ELEMENTWISE} float {one}, {other}")

    def accumulate(self, total: str, value: str) -> str:
        """Add ``value`` to a reduction's total; LLVM may reorder these additions into partial sums."""
        return self.add(f"fadd {REDUCTION} float {total}, {value}")

    def larger(self, one: str, other: str) -> str:
        """Return the larger of two numbers, or NaN if either is NaN."""
        return self.add(f"call float @llvm.maximum.f32(float {one}, float {other})")

    def call(self, name: str, *arguments: str) -> str:
        """Call an LLVM intrinsic on floats; return its result."""
        return self.add(f"call {ELEMENTWISE} float @llvm.{name}.f32({', '.join(f'float {a}' for a in arguments)})")

    def choose(self, comparison: str, one: str, other: str, then: str, otherwise: str) -> str:
        """Return ``then`` if the comparison holds, else ``otherwise``; with NaN, only comparisons ``u...`` hold."""
        holds = self.add(f"fcmp {comparison} float {one}, {other}")
        return self.add(f"select i1 {holds}, float {then}, float {otherwise}")


def float_literal(value: float) -> str:
    """Return a float32 in LLVM's notation: the bits of the same number as a double."""
    return f"0x{int(np.float64(np.float32(value)).view(np.uint64)):016X}"
