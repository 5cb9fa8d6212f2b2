"""Write the LLVM functions of fused loops, which read, compute and write one element at a time, and of concatenations.

Elementwise functions, including tanh and exp, are written as instructions that LLVM's loop vectorizer can handle.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from ddpg.compiler.ir import ALL, COLUMNS, MOVED, REDUCED, ROWS, Node, Shape, Stmt, Write
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal
from ddpg.compiler.memory_plan import ALIGNMENT, MemoryPlan
from ddpg.compiler.schedule import FusedLoop, sources

SELU = (1.0507009873554805, 1.6732632423543772)  # scale and α (Klambauer et al. 2017, arXiv 1706.02515)
ZERO, ONE, TWO = float_literal(0), float_literal(1), float_literal(2)
_INITIAL = {"reduce_sum": ZERO, "reduce_max": float_literal(-math.inf)}


def _binary(operation: str) -> Callable[..., str]:
    return lambda lines, one, other: lines.binary(operation, one, other)


def _comparison(comparison: str) -> Callable[..., str]:
    return lambda lines, one, other: lines.choose(comparison, one, other, ONE, ZERO)


def _rsqrt(lines: FunctionBuilder, x: str) -> str:
    return lines.binary("fdiv", ONE, lines.call("sqrt", x))


def _polynomial(lines: FunctionBuilder, x: str, coefficients: tuple[float, ...]) -> str:
    """Return a polynomial in ``x``; the coefficient of the highest power comes first."""
    total = float_literal(coefficients[0])
    for coefficient in coefficients[1:]:
        total = lines.binary("fadd", lines.binary("fmul", total, x), float_literal(coefficient))
    return total


# Minimax polynomials of the Cephes library (S. L. Moshier): e^r for |r| <= ln(2)/2, tanh for |x| < 0.625, and
# log(1 + x) for 1 + x from √½ to √2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_SHIFT = float_literal(1.5 * 2**23)
_LN2 = (0.693359375, -2.12194440e-4)  # in two parts: the first times a small integer is exact


def _powers(lines: FunctionBuilder, x: str) -> tuple[str, str]:
    """Return 2ⁿ and e^r − 1, where x = n·ln 2 + r with |r| ≤ ln(2)/2; below −87.7, 2ⁿ is 0."""
    x = lines.choose("olt", x, float_literal(-88), float_literal(-88), x)
    x = lines.choose("ogt", x, float_literal(88.3), float_literal(88.3), x)
    # 1.5·2²³ + y keeps the integer nearest to y, in its lowest bits. LLVM converts numbers to integers, if they may be
    # NaN, one at a time.
    shifted = lines.add(f"fadd float {lines.binary('fmul', x, float_literal(1.44269504088896341))}, {_SHIFT}")
    power = lines.add(f"fsub float {shifted}, {_SHIFT}")
    # Cody and Waite's reduction: n times the first part of ln 2 is exact, so that x − n·ln 2 is accurate to rounding.
    rest = x
    for part in _LN2:
        product = lines.add(f"fmul float {power}, {float_literal(part)}")
        rest = lines.add(f"fsub float {rest}, {product}")
    square = lines.binary("fmul", rest, rest)
    tail = lines.binary("fmul", _polynomial(lines, rest, _EXP), square)
    exponent = lines.add(f"add i32 {lines.add(f'bitcast float {shifted} to i32')}, 127")
    bits = lines.add(f"shl i32 {exponent}, 23")
    return lines.add(f"bitcast i32 {bits} to float"), lines.binary("fadd", tail, rest)


def _exp(lines: FunctionBuilder, x: str) -> str:
    power, rest = _powers(lines, x)
    return lines.binary("fmul", lines.binary("fadd", rest, ONE), power)


def _exp_to_infinity(lines: FunctionBuilder, x: str) -> str:
    """Return eˣ, infinity above 88.72; :func:`_exp` stays at e^88.3 there, enough for its other callers."""
    above = lines.choose("ogt", x, float_literal(88), ONE, ZERO)
    power = _exp(lines, lines.add(f"fsub float {x}, {above}"))
    return lines.binary("fmul", power, lines.choose("ogt", x, float_literal(88), float_literal(math.e), ONE))


def _exp_less_one(lines: FunctionBuilder, x: str) -> str:
    """Return eˣ − 1, accurate to rounding even where it is small."""
    power, rest = _powers(lines, x)
    # (2ⁿ − 1) + 2ⁿ·(e^r − 1), not 2ⁿ·e^r − 1, in which a small result would be lost next to 2ⁿ.
    whole = lines.add(f"fsub float {power}, {ONE}")
    return lines.add(f"fadd float {lines.add(f'fmul float {power}, {rest}')}, {whole}")


def _log_of_one_and(lines: FunctionBuilder, t: str) -> str:
    """Return log(1 + t) for t from 0 to 1, accurate to rounding even where it is small."""
    half = lines.add(f"fmul float {lines.add(f'fsub float {t}, {ONE}')}, {float_literal(0.5)}")  # (1 + t)/2 − 1
    x = lines.choose("ogt", t, float_literal(2**0.5 - 1), half, t)
    power = lines.choose("ogt", t, float_literal(2**0.5 - 1), ONE, ZERO)
    square = lines.binary("fmul", x, x)
    tail = lines.binary("fmul", lines.binary("fmul", _polynomial(lines, x, _LOG), square), x)
    tail = lines.binary("fadd", tail, lines.binary("fmul", power, float_literal(_LN2[1])))
    tail = lines.binary("fsub", tail, lines.binary("fmul", square, float_literal(0.5)))
    whole = lines.add(f"fadd float {x}, {tail}")
    return lines.add(f"fadd float {whole}, {lines.add(f'fmul float {power}, {float_literal(_LN2[0])}')}")


def _tanh(lines: FunctionBuilder, x: str) -> str:
    size = lines.call("fabs", x)
    square = lines.binary("fmul", x, x)
    small = lines.binary("fmul", lines.binary("fmul", _polynomial(lines, square, _TANH), square), size)
    small = lines.binary("fadd", small, size)
    grown = lines.binary("fadd", _exp(lines, lines.binary("fadd", size, size)), ONE)
    large = lines.binary("fsub", ONE, lines.binary("fdiv", TWO, grown))
    return lines.call("copysign", lines.choose("olt", size, float_literal(0.625), small, large), x)


# Fitted by least squares, reweighted until the largest error was smallest. erf(x) for |x| ≤ 3.92, above which it is 1
# in float32, is x times a ratio of polynomials in x² (relative error 2e-8). erfc(x) for x ≥ 0 is t·e^(p(t) − x²) with
# t = 1/(1 + x/2), the form of W. H. Press et al., Numerical Recipes, section 6.2 (relative error 5e-8).
_ERF = (2.0500882205e-6, 2.8487981387e-4, 3.7655311132e-3, 5.2748451316e-2, 1.9040460957e-1, 1.1283791462)
_ERFC = (
    *(1.436685539e-1, -6.741552410e-1, 1.141604654, -6.770390060e-1, -9.525085103e-2),
    *(8.637374066e-3, 3.233015085e-2, 3.870593334e-1, 9.985914379e-1, -1.265446360),
)
_ERF_BELOW = (3.8091573535e-5, 1.1625129391e-3, 1.4969044076e-2, 1.1410832079e-1, 5.0207443305e-1, 1.0)


def _erf(lines: FunctionBuilder, x: str) -> str:
    size = lines.call("fabs", x)
    size = lines.choose("ogt", size, float_literal(3.92), float_literal(3.92), size)
    square = lines.binary("fmul", size, size)
    above = lines.binary("fmul", size, _polynomial(lines, square, _ERF))
    found = lines.binary("fdiv", above, _polynomial(lines, square, _ERF_BELOW))
    return lines.call("copysign", lines.choose("ogt", found, ONE, ONE, found), x)


def _erfc(lines: FunctionBuilder, x: str) -> str:
    size = lines.call("fabs", x)
    t = lines.binary("fdiv", ONE, lines.binary("fadd", ONE, lines.binary("fmul", size, float_literal(0.5))))
    exponent = lines.binary("fsub", _polynomial(lines, t, _ERFC), lines.binary("fmul", size, size))
    tail = lines.binary("fmul", t, _exp(lines, exponent))
    return lines.choose("olt", x, ZERO, lines.binary("fsub", TWO, tail), tail)


def _sign(lines: FunctionBuilder, x: str) -> str:
    negative = lines.choose("olt", x, ZERO, float_literal(-1), x)  # 0 and NaN do not change
    return lines.choose("ogt", x, ZERO, ONE, negative)


def _relu_gradient(lines: FunctionBuilder, gradient: str, feature: str) -> str:
    return lines.choose("ogt", feature, ZERO, gradient, ZERO)


def _tanh_gradient(lines: FunctionBuilder, y: str, gradient: str) -> str:
    return lines.binary("fmul", gradient, lines.binary("fsub", ONE, lines.binary("fmul", y, y)))


def _elu(scale: float, alpha: float) -> Callable[..., str]:
    """Return the function scale·x for x ≥ 0, and scale·α·(eˣ − 1) below."""

    def function(lines: FunctionBuilder, x: str) -> str:
        below = lines.binary("fmul", _exp_less_one(lines, x), float_literal(scale * alpha))
        return lines.choose("olt", x, ZERO, below, lines.binary("fmul", x, float_literal(scale)))

    return function


def _elu_gradient(scale: float, alpha: float) -> Callable[..., str]:
    def function(lines: FunctionBuilder, gradient: str, y: str) -> str:
        below = lines.binary("fadd", y, float_literal(scale * alpha))
        return lines.binary("fmul", gradient, lines.choose("olt", y, ZERO, below, float_literal(scale)))

    return function


def _sigmoid(lines: FunctionBuilder, x: str) -> str:
    return lines.binary("fdiv", ONE, lines.binary("fadd", _exp(lines, lines.add(f"fneg float {x}")), ONE))


def _sigmoid_gradient(lines: FunctionBuilder, y: str, gradient: str) -> str:
    return lines.binary("fmul", gradient, lines.binary("fmul", y, lines.binary("fsub", ONE, y)))


def _softplus(lines: FunctionBuilder, x: str) -> str:
    power = _exp(lines, lines.add(f"fneg float {lines.call('fabs', x)}"))
    return lines.binary("fadd", lines.choose("olt", x, ZERO, ZERO, x), _log_of_one_and(lines, power))


def _softplus_gradient(lines: FunctionBuilder, gradient: str, x: str) -> str:
    return lines.binary("fmul", gradient, _sigmoid(lines, x))


def _softsign(lines: FunctionBuilder, x: str) -> str:
    return lines.binary("fdiv", x, lines.binary("fadd", ONE, lines.call("fabs", x)))


def _softsign_gradient(lines: FunctionBuilder, gradient: str, x: str) -> str:
    size = lines.binary("fadd", ONE, lines.call("fabs", x))
    return lines.binary("fdiv", gradient, lines.binary("fmul", size, size))


def _rsqrt_gradient(lines: FunctionBuilder, y: str, gradient: str) -> str:
    # In TensorFlow's order: y³ by itself would underflow for y below 1e-13.
    product = lines.binary("fmul", lines.binary("fmul", gradient, y), lines.binary("fmul", y, y))
    return lines.binary("fmul", product, float_literal(-0.5))


def _extreme(comparison: str) -> Callable[..., str]:
    """Return a function of two numbers: the second if ``comparison`` holds, else the first; NaN if either is NaN."""

    def function(lines: FunctionBuilder, one: str, other: str) -> str:
        if not one.startswith("%"):  # a literal, which is not NaN
            return lines.choose(f"u{comparison}", one, other, other, one)
        larger = lines.choose(f"o{comparison}", one, other, other, one)
        return lines.choose("uno", other, other, other, larger) if other.startswith("%") else larger

    return function


FUNCTIONS: dict[str, Callable[..., str]] = {
    "copy": lambda lines, x: x,
    "add": _binary("fadd"),
    "sub": _binary("fsub"),
    "mul": _binary("fmul"),
    "div": _binary("fdiv"),
    "max": _extreme("lt"),
    "min": _extreme("gt"),
    "relu": lambda lines, x: lines.choose("olt", x, ZERO, ZERO, x),
    "neg": lambda lines, x: lines.add(f"fneg float {x}"),
    "abs": lambda lines, x: lines.call("fabs", x),
    "sign": _sign,
    "square": lambda lines, x: lines.binary("fmul", x, x),
    "sqrt": lambda lines, x: lines.call("sqrt", x),
    "rsqrt": _rsqrt,
    "exp": _exp_to_infinity,
    "exp_nonpositive": _exp,  # for a softmax, whose exponents are at most 0: no overflow to handle
    "log": lambda lines, x: lines.call("log", x),
    "tanh": _tanh,
    "erf": _erf,
    "erfc": _erfc,
    "elu": _elu(1.0, 1.0),
    "selu": _elu(*SELU),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "softsign": _softsign,
    "greater": _comparison("ogt"),
    "equal": _comparison("oeq"),
    "greater_equal": _comparison("oge"),
    "less": _comparison("olt"),
    "less_equal": _comparison("ole"),
    "select": lambda lines, mask, one, other: lines.choose("une", mask, ZERO, one, other),
    "relu_gradient": _relu_gradient,
    "tanh_gradient": _tanh_gradient,
    "elu_gradient": _elu_gradient(1.0, 1.0),
    "selu_gradient": _elu_gradient(*SELU),
    "sigmoid_gradient": _sigmoid_gradient,
    "softplus_gradient": _softplus_gradient,
    "softsign_gradient": _softsign_gradient,
    "rsqrt_gradient": _rsqrt_gradient,
    "sqrt_gradient": lambda lines, y, gradient: lines.binary(
        "fdiv", lines.binary("fmul", gradient, float_literal(0.5)), y
    ),
}

DECLARATIONS = "\n".join(
    [
        *(f"declare float @llvm.{name}.f32(float)" for name in ("sqrt", "fabs", "log")),
        *(f"declare float @llvm.{name}.f32(float, float)" for name in ("copysign", "maximum")),
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ]
)


def buffer_name(base: Node) -> str:
    """Return a name for the buffer that holds a value; all versions of a variable share one."""
    if base.kind == "var_read":
        return f"variable {base.detail[0]}"
    return f"input {base.detail}" if base.kind == "input" else f"value {id(base)}"


class ElementwiseFunction:
    """A fused loop as ``NAME(float* buffer..., low, high)``, which computes the rows, or elements, from low to high.

    A loop in which every element is read and written at the same position is flat: one index runs over all elements.
    Shards of a loop are ranges of its rows; of a flat loop over one row, ranges of its elements.

    Attributes:
        name: the function's name.
        parameters: the buffers that it accesses, in order: a value stored in each, by the buffer's name.
        length: number of rows, or of elements of the one row, to split into shards.
        multiple: the size of shards is a multiple of this.
        unit: the step of ``low`` and ``high`` for each row or element of ``length``.
        totals: sums over several rows; each shard needs memory for its partial sums.
        text: the function as LLVM text.
    """

    def __init__(self, name: str, loop: FusedLoop, plan: MemoryPlan):
        self.name = name
        self.parameters: dict[str, Node] = {}
        self._plan = plan
        self._registers: dict[int, str] = {}
        self._written: dict[tuple[int, int], str] = {}
        self._own_columns: dict[str, int] = {}  # columns of buffers whose rows only the same row of the loop accesses
        self._whole: set[str] = set()  # buffers in which a shard can access any row
        self._stored: set[str] = set()
        self._flat = _is_flat(loop, plan)
        self._shape = rows, self._columns = loop.space
        self._by_elements = self._flat and rows == 1
        self.length, self.multiple = (self._columns, ALIGNMENT) if self._by_elements else (rows, 1)
        self.unit = self._columns if self._flat and not self._by_elements else 1
        self._sums = [member for member in loop.members if isinstance(member, Node) and member.kind in REDUCED]
        self.totals = [total for total in self._sums if total.detail != COLUMNS]
        self._lines = lines = FunctionBuilder()
        for index, total in enumerate(self._sums):
            if total.detail == ROWS:
                zeroed = f"ptr {self._pointer(total)}, i8 0, i64 {4 * total.size}, i1 false"
                lines.do(f"call void @llvm.memset.p0.i64({zeroed})")
            else:
                lines.do(f"%sum{index} = alloca float")
                lines.store(ZERO, f"%sum{index}", 0)
        self._body(loop)
        for index, total in enumerate(self._sums):
            if total.detail == ALL:
                lines.store(lines.load(f"%sum{index}", 0), self._pointer(total), 0)
        pointers = [f"p{index}" for index in range(len(self.parameters))]
        self.text = lines.function(name, pointers, ("low", "high"))

    def accesses(self, low: int, high: int) -> Iterator[tuple[str, int, int, bool]]:
        """Yield buffer, first float, end and whether it is written, for each range that a shard accesses."""
        for buffer, value in self.parameters.items():
            if buffer in self._whole:
                yield buffer, 0, value.base.size, buffer in self._stored
            else:
                columns = self._own_columns[buffer]
                yield buffer, low * columns, high * columns, buffer in self._stored

    def _body(self, loop: FusedLoop) -> None:
        lines = self._lines
        with lines.loop("%low", "%high") as self._i:
            if self._flat:
                self._j, self._element = "0", self._i
                self._members(loop.members)
                return
            row = lines.times(self._i, self._columns)
            by_row = [(index, total) for index, total in enumerate(self._sums) if total.detail == COLUMNS]
            for index, total in by_row:
                lines.store(_INITIAL[total.kind], f"%sum{index}", 0)
            with lines.loop(0, self._columns) as self._j:
                self._element = lines.add(f"add nsw i64 {row}, {self._j}")
                self._members(loop.members)
            for index, total in by_row:
                lines.store(lines.load(f"%sum{index}", 0), self._pointer(total), self._i)

    def _members(self, members: Sequence[Stmt]) -> None:
        for member in members:
            if isinstance(member, Write):
                value = self._read(member.value)
                self._written[member.variable, member.version + 1] = value
                buffer = f"variable {member.variable}"
                self._lines.store(value, self._parameter(buffer, member.value), self._element)
                self._record_access(buffer, self._shape, stored=True)
            elif member.kind in REDUCED:
                self._reduce(member)
            else:
                self._compute(member)

    def _reduce(self, member: Node) -> None:
        lines, value = self._lines, self._read(member.inputs[0])
        self._record_access(buffer_name(member), member.shape, stored=True)
        if member.detail == ROWS:
            total = lines.at(self._pointer(member), self._j)
        else:
            total = f"%sum{next(index for index, other in enumerate(self._sums) if other is member)}"
        so_far = lines.load(total, 0)
        add = lines.larger if member.kind == "reduce_max" else lines.accumulate
        lines.store(add(so_far, value), total, 0)

    def _compute(self, member: Node) -> None:
        if member.kind in MOVED:
            value = self._slice(member) if member.kind == "slice" else self._pad(member)
        else:
            value = FUNCTIONS[member.detail](self._lines, *map(self._read, member.inputs))
        self._registers[id(member)] = value
        if id(member) in self._plan.values:
            self._lines.store(value, self._pointer(member), self._element)
            self._record_access(buffer_name(member), self._shape, stored=True)

    def _slice(self, member: Node) -> str:
        (source,), (row, column) = member.inputs, member.detail
        lines = self._lines
        start = lines.times(lines.add(f"add i64 {self._i}, {row}"), source.shape[1])
        self._record_access(buffer_name(source.base), (0, 0))
        return lines.load(self._pointer(source), start, column, self._j)

    def _pad(self, member: Node) -> str:
        (source,), lines = member.inputs, self._lines
        rows, columns = source.shape
        row = lines.add(f"call i64 @llvm.smin.i64(i64 {self._i}, i64 {rows - 1})")  # rows beyond must not be read
        self._record_access(buffer_name(source.base), (0, 0))
        value = lines.load(self._pointer(source), lines.times(row, columns), self._j)
        there = lines.add(f"icmp slt i64 {self._i}, {rows}")
        return lines.add(f"select i1 {there}, float {value}, float {ZERO}")

    def _read(self, value: Node) -> str:
        if value.kind == "literal":
            return float_literal(value.detail)
        if value.kind == "var_read" and value.detail in self._written:
            return self._written[value.detail]
        if value.kind == "elementwise" and id(value) not in self._registers and id(value) not in self._plan.values:
            self._registers[id(value)] = FUNCTIONS[value.detail](self._lines, *map(self._read, value.inputs))
        if id(value) not in self._registers:
            self._registers[id(value)] = self._lines.load(self._pointer(value), self._position(value.shape))
            self._record_access(buffer_name(value.base), value.shape)
        return self._registers[id(value)]

    def _record_access(self, buffer: str, shape: Shape, stored: bool = False) -> None:
        """Record an access; a matrix with the loop's rows, or elements, is split into shards like the loop."""
        columns = 1 if self._by_elements else shape[1]
        own = shape == self._shape if self._by_elements else shape[0] == self._shape[0]
        if not own or self._own_columns.setdefault(buffer, columns) != columns:
            self._whole.add(buffer)
        if stored:
            self._stored.add(buffer)

    def _position(self, shape: Shape) -> str:
        if shape == (1, 1):
            return "0"
        if shape == self._shape:
            return self._element
        return self._j if shape[0] == 1 else self._i

    def _pointer(self, value: Node) -> str:
        return self._parameter(buffer_name(value.base), value)

    def _parameter(self, buffer: str, value: Node) -> str:
        self.parameters.setdefault(buffer, value)
        return f"%p{list(self.parameters).index(buffer)}"


def concat_function(name: str, kernel: Node) -> str:
    """Return the function ``(input..., out, low, high)`` that copies rows of matrices side by side."""
    lines, before = FunctionBuilder(), 0
    for index, part in enumerate(kernel.inputs):
        _, columns = part.shape
        with lines.loop("%low", "%high") as row, lines.loop(0, columns) as column:
            value = lines.load(f"%p{index}", lines.times(row, columns), column)
            lines.store(value, "%out", lines.times(row, kernel.shape[1]), before, column)
        before += columns
    return lines.function(name, [*(f"p{index}" for index in range(len(kernel.inputs))), "out"], ("low", "high"))


def _is_flat(loop: FusedLoop, plan: MemoryPlan) -> bool:
    """Return whether each element depends only on the same element of its inputs, and on scalars."""
    for member in loop.members:
        if isinstance(member, Node) and (member.kind in MOVED or (member.kind in REDUCED and member.detail != ALL)):
            return False
        if any(source.shape not in (loop.space, (1, 1)) for source in sources(member, plan.values)):
            return False
    return True
