"""Functions of one number for each place, as LLVM instructions that its loops can vectorise."""

from collections.abc import Callable

import numpy as np

# Sums may be taken in any order, and products contracted; what is not a number stays what it is.
FLAGS = "reassoc nsz arcp contract"


class Lines:
    """Instructions of one function, each with a name of its own."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

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

    def binary(self, operation: str, one: str, other: str) -> str:
        """Return a binary operation's result: fadd, fsub, fmul or fdiv."""
        return self.add(f"{operation} {FLAGS} float {one}, {other}")

    def call(self, name: str, *arguments: str) -> str:
        """Return what an intrinsic of floats makes of ``arguments``."""
        return self.add(f"call {FLAGS} float @llvm.{name}.f32({', '.join(f'float {a}' for a in arguments)})")

    def choose(self, comparison: str, one: str, other: str, then: str, otherwise: str) -> str:
        """Return ``then`` where the comparison holds, else ``otherwise``; with NaN only u... comparisons hold."""
        holds = self.add(f"fcmp {comparison} float {one}, {other}")
        return self.add(f"select i1 {holds}, float {then}, float {otherwise}")


def number(value: float) -> str:
    """Return a float32 as LLVM writes it: its double's bits."""
    return f"0x{int(np.float64(np.float32(value)).view(np.uint64)):016X}"


ZERO, ONE, TWO = number(0), number(1), number(2)


def _binary(operation: str) -> Callable[..., str]:
    return lambda lines, one, other: lines.binary(operation, one, other)


def _comparison(comparison: str) -> Callable[..., str]:
    return lambda lines, one, other: lines.choose(comparison, one, other, ONE, ZERO)


def _rsqrt(lines: Lines, x: str) -> str:
    return lines.binary("fdiv", ONE, lines.call("sqrt", x))


def _polynomial(lines: Lines, x: str, coefficients: tuple[float, ...]) -> str:
    """Return the polynomial of ``coefficients``, the highest power's first."""
    total = number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = lines.binary("fadd", lines.binary("fmul", total, x), number(coefficient))
    return total


# Minimax polynomials of the Cephes library (S. L. Moshier): e^r for |r| <= ln(2)/2, and tanh for |x| < 0.625.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_LN2 = (0.693359375, -2.12194440e-4)  # in two parts: the first times a small integer is exact


def _exp(lines: Lines, x: str) -> str:
    x = lines.choose("olt", x, number(-87.3), number(-87.3), x)
    x = lines.choose("ogt", x, number(88.3), number(88.3), x)
    power = lines.call("nearbyint", lines.binary("fmul", x, number(1.44269504088896341)))
    # Plain operations: reassociated, the two parts of ln 2 would be added up first.
    rest = x
    for part in _LN2:
        product = lines.add(f"fmul float {power}, {number(part)}")
        rest = lines.add(f"fsub float {rest}, {product}")
    square = lines.binary("fmul", rest, rest)
    tail = lines.binary("fmul", _polynomial(lines, rest, _EXP), square)
    mantissa = lines.binary("fadd", lines.binary("fadd", tail, rest), ONE)
    exponent = lines.add(f"call i32 @llvm.fptosi.sat.i32.f32(float {power})")
    bits = lines.add(f"shl i32 {lines.add(f'add i32 {exponent}, 127')}, 23")
    return lines.binary("fmul", mantissa, lines.add(f"bitcast i32 {bits} to float"))


def _tanh(lines: Lines, x: str) -> str:
    size = lines.call("fabs", x)
    square = lines.binary("fmul", x, x)
    small = lines.binary("fmul", lines.binary("fmul", _polynomial(lines, square, _TANH), square), size)
    small = lines.binary("fadd", small, size)
    grown = lines.binary("fadd", _exp(lines, lines.binary("fadd", size, size)), ONE)
    large = lines.binary("fsub", ONE, lines.binary("fdiv", TWO, grown))
    return lines.call("copysign", lines.choose("olt", size, number(0.625), small, large), x)


def _relu_gradient(lines: Lines, gradient: str, feature: str) -> str:
    return lines.choose("ogt", feature, ZERO, gradient, ZERO)


def _tanh_gradient(lines: Lines, y: str, gradient: str) -> str:
    return lines.binary("fmul", gradient, lines.binary("fsub", ONE, lines.binary("fmul", y, y)))


def _rsqrt_gradient(lines: Lines, y: str, gradient: str) -> str:
    cube = lines.binary("fmul", lines.binary("fmul", y, y), y)
    return lines.binary("fmul", lines.binary("fmul", cube, gradient), number(-0.5))


FUNCTIONS: dict[str, Callable[..., str]] = {
    "same": lambda lines, x: x,
    "add": _binary("fadd"),
    "sub": _binary("fsub"),
    "mul": _binary("fmul"),
    "div": _binary("fdiv"),
    # The first of two is kept where the comparison with NaN does not hold: what is clipped stays NaN.
    "max": lambda lines, one, other: lines.choose("olt", one, other, other, one),
    "min": lambda lines, one, other: lines.choose("ogt", one, other, other, one),
    "relu": lambda lines, x: lines.choose("olt", x, ZERO, ZERO, x),
    "neg": lambda lines, x: lines.add(f"fneg float {x}"),
    "abs": lambda lines, x: lines.call("fabs", x),
    "square": lambda lines, x: lines.binary("fmul", x, x),
    "sqrt": lambda lines, x: lines.call("sqrt", x),
    "rsqrt": _rsqrt,
    "exp": _exp,
    "tanh": _tanh,
    "greater": _comparison("ogt"),
    "greater_equal": _comparison("oge"),
    "less": _comparison("olt"),
    "less_equal": _comparison("ole"),
    "select": lambda lines, mask, one, other: lines.choose("une", mask, ZERO, one, other),
    "relu_gradient": _relu_gradient,
    "tanh_gradient": _tanh_gradient,
    "rsqrt_gradient": _rsqrt_gradient,
}

DECLARATIONS = "\n".join(
    [
        *(f"declare float @llvm.{name}.f32(float)" for name in ("sqrt", "fabs", "nearbyint")),
        "declare float @llvm.copysign.f32(float, float)",
        "declare i32 @llvm.fptosi.sat.i32.f32(float)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ]
)
