"""Run an update in Monte Carlo arithmetic, to estimate how far rounding can move its results.

Every float that an op computes is multiplied by 1 + ε, with a new random ε for each number, within two units in the
last place (D. S. Parker, Monte Carlo Arithmetic, 1997). Weights and minibatches are disturbed once, within four units.
This imitates sums in another order and fused multiply-adds, and it shows cancellation and magnification by an
optimiser.

Underflow is an absolute error: fl(x∘y) = (x∘y)(1 + δ) + η with |δ| ≤ 2⁻²⁴ and |η| ≤ 2⁻¹²⁶, the smallest normal number,
if subnormal results are flushed to 0 (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 2.1).
Results of a compiler that flushes and a session that does not differ by η, which a kink (ReLU, SELU) turns into another
gradient. So every number that is not exactly 0 also gets a random η. Both errors may be four times their bound.

Overflow depends on the order of a sum. If products of both signs exceed ±3.4e38, a running sum with fused multiply-adds
keeps the sign of the first (an infinity plus any finite product is that infinity), while two partial sums, as in the
lanes of a vector, add to ∞ − ∞ = NaN. So every sum, also in matrix products, is computed as two partial sums over
random halves of its terms, drawn anew in every run, and with probability one half such a pair keeps the first infinity.
The partial sums are rounded by as much as √n roundings of a running sum of n terms (Higham, section 4.2), which matters
in sums that cancel.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import TD_ERRORS, Update
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.learners.graph import placeholders
from ddpg.learners.native import _update_kinds
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1

INPUTS, COMPUTED, UNDERFLOW = 4 * 2.0**-23, 2 * 2.0**-23, 4 * 2.0**-126
SCOPE = "disturbed"
# Operations without rounding: copies, comparisons, reads and writes.
_EXACT = {
    *("Const", "Placeholder", "Identity", "IdentityN", "StopGradient", "PreventGradient", "ReadVariableOp", "NoOp"),
    *(
        "Reshape",
        "Squeeze",
        "ExpandDims",
        "Tile",
        "BroadcastTo",
        "Fill",
        "ZerosLike",
        "OnesLike",
        "Shape",
        "Neg",
        "Abs",
    ),
    *(
        "Sign",
        "Maximum",
        "Minimum",
        "Relu",
        "ReluGrad",
        "Select",
        "SelectV2",
        "Cast",
        "ConcatV2",
        "Slice",
        "StridedSlice",
    ),
    *("Pack", "Unpack", "Split", "Transpose", "Max"),
}


class Disturbed:
    """An update in two graphs and sessions of its own: one with disturbances, one in float64.

    Args:
        update: the symbolic update; its graph is extended.
        variables: all variables that it reads or writes, by name.
        batch_size: B.
        seed: of the disturbances.
    """

    def __init__(self, update: Update, variables: Mapping[str, tf.Variable], batch_size: int, seed: int):
        self._rng, self._count = np.random.default_rng(seed), update.count
        self._discrete = isinstance(update, DQNUpdate)  # whose actions are indices
        graph = update.value.graph
        with graph.as_default(), v1.name_scope(f"{SCOPE}/"):
            shape = batch_size, update.action_size
            self._made = v1.placeholder(tf.int64, [1], name="made")
            drawn = update.noise(shape, self._made)
            batch = placeholders(update, (batch_size,))
            fed = batch.named()
            if drawn is not None:
                batch = batch.replace(noise=drawn[0])
            kinds, self._which = _update_kinds(update, batch)
        self._variables = variables
        self._feeds = {name: placeholder.name for name, placeholder in fed.items()}
        self._fetches = [{name: tensor.name for name, tensor in fetches.items()} for fetches in kinds]
        self._metrics = update.metrics
        definitions = _with_noise(graph, seed), _in_float64(graph)
        self._reads = {name: variable._graph_element.name for name, variable in variables.items()}
        initials = [*variables.values(), *(network.learning_rate for network, *_ in update.learning_rates)]
        self._initial = {v.name: (v.initializer.name, v.initializer.inputs[1].name) for v in initials}
        self._sessions = []
        for definition in definitions:
            with tf.Graph().as_default() as own:
                tf.import_graph_def(definition, name="")
            self._sessions.append(v1.Session(graph=own))
        for session in self._sessions:
            for network, rate, _ in update.learning_rates:
                self._set(session, {network.learning_rate.name: np.float32(rate)})

    def close(self) -> None:
        """Close the sessions."""
        for session in self._sessions:
            session.close()

    def __call__(self, start: Mapping[str, np.ndarray], batch: Batch, updates: int) -> dict[str, np.ndarray]:
        """Return variables, metrics and TD errors after disturbed ``updates`` on minibatches ``[K, B, ...]``."""
        start = {name: value if name.endswith("steps:0") else self._nudged(value) for name, value in start.items()}
        exact = {"terminated": batch.terminated} | ({"actions": batch.actions} if self._discrete else {})
        batch = batch.map(self._nudged).replace(**exact)
        return self._run(self._sessions[0], start, batch, updates)

    def in_float64(self, start: Mapping[str, np.ndarray], batch: Batch, updates: int) -> dict[str, np.ndarray]:
        """Return the same results in float64, without disturbances."""
        return self._run(self._sessions[1], start, batch, updates)

    def _run(
        self, session: tf.compat.v1.Session, start: Mapping[str, np.ndarray], batch: Batch, updates: int
    ) -> dict[str, np.ndarray]:
        self._set(session, start)
        before = 0 if self._count is None else int(start[self._count.variable.name])
        totals, errors = dict.fromkeys(self._metrics, 0.0), []
        for update in range(updates):
            feeds = {self._feeds[name]: field[update] for name, field in batch.named().items()}
            feeds[self._made.name] = [before + update]
            found = session.run(self._fetches[self._which(before + update)], feeds)
            if TD_ERRORS in found:
                errors.append(found[TD_ERRORS][:, 0])
            totals = {name: total + found[name] / updates for name, total in totals.items()}
        if self._count is not None:
            self._set(session, {self._count.variable.name: np.int64(before + updates)})
        return session.run(self._reads) | totals | ({"TD errors": np.stack(errors)} if errors else {})

    def _set(self, session: tf.compat.v1.Session, values: Mapping[str, np.ndarray]) -> None:
        left = dict(values)
        while left:  # several variables may share one initial tensor, which can hold only one value at a time
            first = {self._initial[name][1]: name for name in reversed(left)}
            initializers = [self._initial[name][0] for name in first.values()]
            session.run(initializers, {initial: left.pop(name) for initial, name in first.items()})

    def _nudged(self, array: np.ndarray) -> np.ndarray:
        """Return disturbed floats; zeros stay zero."""
        if array.dtype != np.float32:
            return array
        random = self._rng.uniform(-1, 1, array.shape)
        return (array * (1 + INPUTS * random) + UNDERFLOW * random * (array != 0)).astype(np.float32)


def _with_noise(graph: tf.Graph, seed: int) -> tf.compat.v1.GraphDef:
    """Return the graph with random 1 + ε and η applied to every rounded result of the disturbed update."""
    given = graph.as_graph_def()
    disturbed, made = {}, []
    for operation in graph.get_operations():
        if operation.name.startswith(f"{SCOPE}/") and operation.type not in _EXACT and len(operation.outputs) == 1:
            (output,) = operation.outputs
            if output.dtype == tf.float32 and output.shape.is_fully_defined() and output.consumers():
                disturbed[operation.name] = f"{operation.name}/disturbed"
                made.append(operation)
    for node in given.node:
        if node.name.startswith(f"{SCOPE}/"):
            for index, name in enumerate(node.input):
                if name in disturbed:
                    node.input[index] = disturbed[name]
    inputs = {node.name: node.input for node in given.node}
    sources: dict[str, str] = {}  # the update's tensor for each placeholder in the noise's graph

    def stand_in(source: str, shape: tf.TensorShape) -> tf.Tensor:
        name = f"{SCOPE}/given_{len(sources)}"
        sources[name] = source
        return v1.placeholder(tf.float32, shape, name=name)

    with tf.Graph().as_default() as noise:
        v1.set_random_seed(seed % 2**31)
        one, width = tf.constant(1.0, name=f"{SCOPE}/one"), tf.constant(COMPUTED, name=f"{SCOPE}/width")
        least, most = tf.constant(1 - COMPUTED, name=f"{SCOPE}/least"), tf.constant(1 + COMPUTED, name=f"{SCOPE}/most")
        for index, operation in enumerate(made):
            name, shape = operation.name, operation.outputs[0].shape
            size = tf.constant([1, shape.num_elements()], tf.int32)
            drawn = tf.raw_ops.ParameterizedTruncatedNormal(
                shape=size, means=one, stdevs=width, minvals=least, maxvals=most, seed=seed % 2**31, seed2=index + 1
            )
            factor = tf.reshape(drawn, shape)
            summed = _in_two_halves(operation)
            if summed is None:
                exact = stand_in(name, shape)
            else:
                exact = summed(
                    *(
                        stand_in(source, tensor.shape)
                        for source, tensor in zip(inputs[name], operation.inputs, strict=True)
                        if tensor.dtype == tf.float32
                    )
                )
            underflow = (factor - one) * (UNDERFLOW / COMPUTED) * tf.square(tf.sign(exact))
            tf.add(exact * factor, underflow, name=f"{name}/disturbed")
        added = noise.as_graph_def()
    for node in added.node:
        if node.op == "Placeholder":
            continue
        copy = given.node.add()
        copy.CopyFrom(node)
        if not node.name.startswith(f"{SCOPE}/"):
            copy.name = f"{SCOPE}_noise/{node.name}"
        copy.input[:] = [
            sources.get(name) or (name if name.startswith(f"{SCOPE}/") else f"{SCOPE}_noise/{name}")
            for name in node.input
        ]
    return given


def _in_float64(graph: tf.Graph) -> tf.compat.v1.GraphDef:
    """Return the graph with float64 in place of float32, also in the branches of its conditionals."""
    given = graph.as_graph_def()
    double = {tf.float32.as_datatype_enum: tf.float64.as_datatype_enum}
    nodes = list(given.node)
    for function in given.library.function:
        nodes.extend(function.node_def)
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = double.get(argument.type, argument.type)
    for attribute in (attribute for node in nodes for attribute in node.attr.values()):
        kind = attribute.WhichOneof("value")
        if kind == "type":
            attribute.type = double.get(attribute.type, attribute.type)
        elif kind == "tensor" and attribute.tensor.dtype in double:
            attribute.tensor.CopyFrom(tf.make_tensor_proto(tf.make_ndarray(attribute.tensor).astype(np.float64)))
        elif kind == "list" and attribute.list.type:
            attribute.list.type[:] = [double.get(one, one) for one in attribute.list.type]
    return given


def _in_two_halves(operation: tf.Operation) -> Callable[..., tf.Tensor] | None:
    """Return a function of a sum's inputs that adds sums of two random halves; ``None`` for other operations."""
    kind = operation.type
    if kind == "MatMul":
        left, right = operation.get_attr("transpose_a"), operation.get_attr("transpose_b")
        axes = 0 if left else 1, 1 if right else 0
        return _halved(axes, lambda a, b: tf.matmul(a, b, left, right))
    if kind.startswith("Conv2D"):
        return _convolution_in_two_halves(operation)
    shape = operation.inputs[0].shape if kind in ("Sum", "BiasAddGrad") else ()
    if kind == "BiasAddGrad":
        reduced, keep = list(range(len(shape) - 1)), False
    elif kind == "Sum":
        reduced, keep = np.ravel(tf.get_static_value(operation.inputs[1])) % len(shape), operation.get_attr("keep_dims")
    else:
        return None
    longest = max(reduced, key=lambda axis: shape[axis], default=None)
    return None if longest is None else _halved((longest,), lambda x: tf.reduce_sum(x, reduced, keep))


def _convolution_in_two_halves(operation: tf.Operation) -> Callable[..., tf.Tensor] | None:
    """Return the same for a convolution, of whose channels half are seen, or for one of its gradients."""
    kind, inputs, sizes = operation.type, operation.inputs, operation.outputs[0].shape.as_list()
    how = {"strides": operation.get_attr("strides"), "padding": operation.get_attr("padding").decode()}
    if kind == "Conv2D":
        axes, summed = (3, 2), lambda x, f: tf.raw_ops.Conv2D(input=x, filter=f, **how)
        length = inputs[0].shape[3]
    elif kind == "Conv2DBackpropFilter":  # a sum over images
        axes, length = (0, 0), inputs[0].shape[0]
        op = tf.raw_ops.Conv2DBackpropFilter
        summed = lambda x, g: op(input=x, filter_sizes=sizes, out_backprop=g, **how)  # noqa: E731
    else:  # and over filters
        axes, length = (3, 3), inputs[1].shape[3]
        op = tf.raw_ops.Conv2DBackpropInput
        summed = lambda f, g: op(input_sizes=sizes, filter=f, out_backprop=g, **how)  # noqa: E731
    return _halved(axes, summed) if length > 1 else None


def _halved(axes: Sequence[int], summed: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return ``summed`` of half the entries along ``axes`` of its arguments, plus ``summed`` of the other half."""

    def function(*arguments: tf.Tensor) -> tf.Tensor:
        length = arguments[0].shape[axes[0]]
        width = COMPUTED * max(1.0, length**0.5 / 2)
        order = tf.random.shuffle(tf.range(length))
        parts = []
        for half in (order[: length // 2], order[length // 2 :]):
            part = summed(
                *(tf.gather(argument, half, axis=axis) for argument, axis in zip(arguments, axes, strict=True))
            )
            parts.append(part * (1 + tf.random.uniform(part.shape, -width, width)))
        first, total = parts[0], parts[0] + parts[1]
        fused = tf.logical_and(tf.math.is_inf(first), tf.random.uniform(first.shape) < 0.5)
        return tf.where(tf.logical_and(fused, tf.math.is_nan(total)), first, total)

    return function
