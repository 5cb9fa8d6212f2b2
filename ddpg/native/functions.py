"""Functions of one number for each place, as LLVM instructions that its loops can vectorise."""

from collections.abc import Callable

from ddpg.native.text import Lines, number

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


def _sign(lines: Lines, x: str) -> str:
    negative = lines.choose("olt", x, ZERO, number(-1), x)  # what is neither stays: 0, or not a number
    return lines.choose("ogt", x, ZERO, ONE, negative)


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
    "sign": _sign,
    "square": lambda lines, x: lines.binary("fmul", x, x),
    "sqrt": lambda lines, x: lines.call("sqrt", x),
    "rsqrt": _rsqrt,
    "exp": _exp,
    "log": lambda lines, x: lines.call("log", x),
    "tanh": _tanh,
    "greater": _comparison("ogt"),
    "greater_equal": _comparison("oge"),
    "less": _comparison("olt"),
    "less_equal": _comparison("ole"),
    "select": lambda lines, mask, one, other: lines.choose("une", mask, ZERO, one, other),
    "relu_gradient": _relu_gradient,
    "tanh_gradient": _tanh_gradient,
    "rsqrt_gradient": _rsqrt_gradient,
    "sqrt_gradient": lambda lines, y, gradient: lines.binary("fdiv", lines.binary("fmul", gradient, number(0.5)), y),
}

DECLARATIONS = "\n".join(
    [
        *(f"declare float @llvm.{name}.f32(float)" for name in ("sqrt", "fabs", "nearbyint", "log")),
        "declare float @llvm.copysign.f32(float, float)",
        "declare i32 @llvm.fptosi.sat.i32.f32(float)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ]
)
