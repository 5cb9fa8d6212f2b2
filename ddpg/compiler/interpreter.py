"""Run the IR with NumPy, one statement at a time: the reference for tests of compiled code.

It shares no code with the scheduler, the memory plan or the code generators, so if it disagrees with compiled code, the
fault is in one of these. If both disagree with a TensorFlow session in the same way, the fault is in the lowering.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ddpg.compiler.ir import COLUMNS, CONVOLUTIONS, ROWS, Convolution, Node, Program, Write

SELU = np.float32(1.0507009873554805), np.float32(1.6732632423543772)  # scale, alpha
_ONE, _HALF = np.float32(1), np.float32(0.5)


def _elu(x: np.ndarray, scale: np.float32 = _ONE, alpha: np.float32 = _ONE) -> np.ndarray:
    return np.where(x < 0, scale * alpha * np.expm1(np.minimum(x, 0)), scale * x)


def _elu_gradient(g: np.ndarray, y: np.ndarray, scale: np.float32 = _ONE, alpha: np.float32 = _ONE) -> np.ndarray:
    return g * np.where(y < 0, y + scale * alpha, scale)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _ONE / (_ONE + np.exp(-x))


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "copy": np.array,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: _ONE / np.sqrt(x),
    "exp": np.exp,
    "exp_nonpositive": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, [np.float32]),
    "erfc": np.vectorize(math.erfc, [np.float32]),
    "relu": lambda x: np.where(x < 0, 0, x),  # keeps NaN
    "elu": _elu,
    "selu": lambda x: _elu(x, *SELU),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "softsign": lambda x: x / (_ONE + np.abs(x)),
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "select": lambda mask, one, other: np.asarray(np.where(mask != 0, one, other)),
    "relu_gradient": lambda g, x: np.where(x > 0, g, 0),
    "tanh_gradient": lambda y, g: g * (_ONE - y * y),
    "elu_gradient": _elu_gradient,
    "selu_gradient": lambda g, y: _elu_gradient(g, y, *SELU),
    "sigmoid_gradient": lambda y, g: g * (y * (_ONE - y)),
    "softplus_gradient": lambda g, x: g * _sigmoid(x),
    "softsign_gradient": lambda g, x: g / np.square(_ONE + np.abs(x)),
    "rsqrt_gradient": lambda y, g: -_HALF * ((g * y) * (y * y)),
    "sqrt_gradient": lambda y, g: g * _HALF / y,
}


def interpret(
    program: Program, outputs: Sequence[Node], fields: Mapping[str, np.ndarray], variables: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Run a program once; return the ``outputs`` as float32 matrices.

    Args:
        program, outputs: the program, and the nodes whose values are returned.
        fields: one minibatch, by the names of the program's inputs.
        variables: the variables' values, by index; updated in place.
    """
    values: dict[int, np.ndarray] = {}
    versions = {(index, 0): np.array(value, np.float32) for index, value in enumerate(variables)}

    def value_of(node: Node) -> np.ndarray:
        if id(node) not in values:
            values[id(node)] = _leaf(node, fields, versions) if not node.inputs else compute(node)
        return values[id(node)]

    def compute(node: Node) -> np.ndarray:
        given = [value_of(source) for source in node.inputs]
        result = np.asarray(product(node, given) if node.kind == "matmul" else _computed(node, given), np.float32)
        return np.array(np.broadcast_to(result, node.shape))

    def product(node: Node, given: list[np.ndarray]) -> np.ndarray:
        if program.precision == "float32":
            return _computed(node, given)
        rounded = [rounded_to_bfloat16(matrix) for matrix in given]
        if program.precision == "bfloat16":
            return _computed(node, rounded)
        (one, other), rests = rounded, [rounded_to_bfloat16(a - b) for a, b in zip(given, rounded, strict=True)]
        return _computed(node, [one, rests[1]]) + _computed(node, [rests[0], other]) + _computed(node, rounded)

    with np.errstate(all="ignore"):
        for stmt in program.stmts:
            if isinstance(stmt, Write):
                versions[stmt.variable, stmt.version + 1] = np.array(value_of(stmt.value))
            else:
                value_of(stmt)
        results = [value_of(output) for output in outputs]
    for index, version in program.versions.items():
        variables[index][...] = versions[index, version].reshape(variables[index].shape)
    return results


def rounded_to_bfloat16(matrix: np.ndarray) -> np.ndarray:
    """Round to the nearest bfloat16 numbers, ties to even: as float32, their lower 16 bits are 0."""
    bits = np.asarray(matrix, np.float32).view(np.uint32)
    odd = bits >> np.uint32(16) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(matrix), np.float32(np.nan), rounded)


def _leaf(node: Node, fields: Mapping[str, np.ndarray], versions: Mapping[tuple[int, int], np.ndarray]) -> np.ndarray:
    if node.kind == "input":
        found = fields[node.detail]
    elif node.kind == "var_read":
        found = versions[node.detail]
    else:
        found = np.float32(node.detail) if node.kind == "literal" else node.detail.array
    return np.asarray(found, np.float32).reshape(node.shape)


def _computed(node: Node, given: Sequence[np.ndarray]) -> np.ndarray:
    kind, detail = node.kind, node.detail
    if kind == "elementwise":
        return FUNCTIONS[detail](*given)
    if kind in ("reduce_sum", "reduce_max"):
        axis = {ROWS: 0, COLUMNS: 1}.get(detail)
        return (np.sum if kind == "reduce_sum" else np.max)(given[0], axis=axis, keepdims=True)
    if kind == "matmul":
        return np.matmul(
            *(matrix.T if transposed else matrix for matrix, transposed in zip(given, detail, strict=True))
        )
    if kind == "concat":
        return np.concatenate(given, axis=1)
    if kind == "slice":
        row, column = detail
        return given[0][row : row + node.shape[0], column : column + node.shape[1]]
    if kind == "pad":
        return np.concatenate([given[0], np.zeros((node.shape[0] - len(given[0]), node.shape[1]), np.float32)])
    if kind == "transpose":
        sizes, order = detail
        return given[0].reshape(sizes).transpose(order).reshape(node.shape)
    if kind in CONVOLUTIONS:
        return _convolved(kind, detail, *given).reshape(node.shape)
    assert kind == "reshape", kind
    return given[0].ravel()[: node.size].reshape(node.shape)


def _convolved(kind: str, sizes: Convolution, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compute a convolution, or a gradient, as a sum over the positions in a filter."""
    (count, height, width, channels), (tall, wide, _, number) = sizes.images, sizes.filters
    (top, left), outputs = sizes.before, (count, *sizes.outputs, number)
    images = np.zeros((count, *sizes.padded, channels), np.float32)
    inside = images[:, top : top + height, left : left + width]
    if kind != "image_gradient":
        inside[...] = one.reshape(inside.shape)
    filters = np.zeros(sizes.filters, np.float32)
    if kind != "filter_gradient":
        filters[...] = (one if kind == "image_gradient" else other).reshape(filters.shape)
    result = np.zeros(outputs, np.float32) if kind == "convolution" else other.reshape(outputs)
    for row, column in np.ndindex(tall, wide):
        seen = images[:, row :: sizes.strides[0], column :: sizes.strides[1]]
        seen = seen[:, : sizes.outputs[0], : sizes.outputs[1]]
        if kind == "convolution":
            result += seen @ filters[row, column]
        elif kind == "filter_gradient":
            filters[row, column] = np.tensordot(seen, result, ([0, 1, 2], [0, 1, 2]))
        else:
            seen += result @ filters[row, column].T
    return {"convolution": result, "filter_gradient": filters, "image_gradient": inside}[kind]
