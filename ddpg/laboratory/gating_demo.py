"""Show the race that gradient gating prevents, and that resource variables do not have it.

A two-layer net is enough: y = tanh(x·W1)·W2 with L = ½ Σ y². Writing δ for ∂L/∂y,

    ∂L/∂W2 = hᵀ·δ                    h = tanh(x·W1)
    ∂L/∂W1 = xᵀ·((δ·W2ᵀ)(1 − h²))    reads W2

so an optimiser that moves W2 as soon as ∂L/∂W2 is computed can move it *before* ∂L/∂W1 has read it. Gating is
the optimiser's answer (``tf.compat.v1.train.Optimizer.compute_gradients``):

| gate | a gradient is released when |
|---|---|
| ``GATE_NONE`` | it is computed, as ``tf.gradients`` does by default |
| ``GATE_OP`` | all gradients of its op are computed: here δ·W2ᵀ with hᵀ·δ; the optimiser's default |
| ``GATE_GRAPH`` | all gradients of all variables are computed |

It matters only for *reference* variables (``use_resource=False``), whose reads alias the memory that the
update writes. A resource variable's read is a value, which later writes do not change. All variables of this
package are resource variables.

:func:`gradient_in_order` forces the order of the two ops, to show both outcomes; :func:`count_races` leaves the order
to the scheduler and counts the races.
"""

import numpy as np
import tensorflow as tf

from ddpg.compiler.lowering import ops_in_order

v1 = tf.compat.v1

GATES = {
    "GATE_NONE": v1.train.Optimizer.GATE_NONE,
    "GATE_OP": v1.train.Optimizer.GATE_OP,
    "GATE_GRAPH": v1.train.Optimizer.GATE_GRAPH,
}


def two_layer_loss(inputs: tf.Tensor, weights: list) -> tf.Tensor:
    """Return L = ½ Σ (tanh(x·W1)·W2)² for x ``[B, n]``, W1 ``[n, n]`` and W2 ``[n, m]``."""
    return tf.reduce_sum(tf.square(tf.tanh(inputs @ weights[0]) @ weights[1])) / 2


def by_hand(inputs: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
    """Return [∂L/∂W1, ∂L/∂W2] of :func:`two_layer_loss` in float64, by the formulas above."""
    x, w1, w2 = (np.asarray(array, np.float64) for array in (inputs, *weights))
    h = np.tanh(x @ w1)
    delta = h @ w2
    return [x.T @ ((delta @ w2.T) * (1 - h**2)), h.T @ delta]


def after_update(inputs: np.ndarray, weights: list[np.ndarray], learning_rate: float) -> np.ndarray:
    """Return the wrong ∂L/∂W1, in float64, that results if W2 moves before δ·W2ᵀ reads it; δ uses the old W2."""
    x, w1, w2 = (np.asarray(array, np.float64) for array in (inputs, *weights))
    h = np.tanh(x @ w1)
    delta = h @ w2
    moved = w2 - learning_rate * h.T @ delta
    return x.T @ ((delta @ moved.T) * (1 - h**2))


def steps(loss: tf.Tensor, variables: list, learning_rate: float, gate: str) -> dict[str, tf.Operation]:
    """Return one gradient-descent step, written in three ways.

    Args:
        loss: a scalar.
        variables: the variables to move.
        learning_rate: of plain gradient descent.
        gate: a key of :data:`GATES`, for the two ways that take gates.

    Returns:
        By name: ``gradients`` is ``tf.gradients``, ungated, and ``apply_gradients``; ``compute_gradients`` is that
        method and ``apply_gradients``; ``minimize`` does both in one call.
    """
    optimizer = v1.train.GradientDescentOptimizer(learning_rate)
    pairs = optimizer.compute_gradients(loss, variables, gate_gradients=GATES[gate])
    ungated = zip(tf.gradients(loss, variables), variables, strict=True)
    return {
        "gradients": optimizer.apply_gradients(ungated),
        "compute_gradients": optimizer.apply_gradients(pairs),
        "minimize": optimizer.minimize(loss, var_list=variables, gate_gradients=GATES[gate]),
    }


def gradient_in_order(
    way: str,
    gate: str,
    use_resource: bool,
    first: str,
    inputs: np.ndarray,
    start: list[np.ndarray],
    learning_rate: float = 1.0,
) -> np.ndarray:
    """Return the change of W1 if one of two ops is made to wait for the other.

    The two are δ·W2ᵀ, the op of ∂L/∂W1 that reads W2, and the op that updates W2. One control edge is added to the
    step's graph as it was built: the scheduler could also choose this order itself, unless the step's own edges
    forbid it. Graph rewriting is off, so that exactly these ops run.

    Args:
        way: a key of :func:`steps`.
        gate: a key of :data:`GATES`.
        use_resource: resource variables, or reference variables.
        first: ``"read"`` or ``"update"``, the op for which the other one waits.
        inputs: x, ``[B, n]``.
        start: W1 ``[n, n]`` and W2 ``[n, m]`` before the step.
        learning_rate: of the step.

    Returns:
        (W1 before − W1 after) / learning rate, ``[n, n]``.

    Raises:
        ValueError: if the order contradicts the step's own edges, so that the graph would have a cycle.
    """
    with tf.Graph().as_default() as built:
        variables = _variables(start, use_resource)
        initialize = v1.global_variables_initializer()
        step = steps(two_layer_loss(tf.constant(inputs), variables), variables, learning_rate, gate)[way]
        value = variables[0].value()
        ordered = {"read": _reader_of(variables[1], step), "update": _update_of(variables[1], step)}
    waiting = ordered.pop("update" if first == "read" else "read")
    definition = built.as_graph_def()
    node = next(node for node in definition.node if node.name == waiting.name)
    node.input.append(f"^{ordered[first].name}")
    with tf.Graph().as_default() as graph, v1.Session(config=_unrewritten()) as session:
        tf.import_graph_def(definition, name="")
        session.run(graph.get_operation_by_name(initialize.name))
        session.run(graph.get_operation_by_name(step.name))
        return (start[0] - session.run(graph.get_tensor_by_name(value.name))) / learning_rate


def _variables(start, use_resource):
    return [
        v1.get_variable(f"W{index + 1}", initializer=array, use_resource=use_resource)
        for index, array in enumerate(start)
    ]


def _unrewritten():
    """Return a session configuration with four threads, so that ops can overtake each other, and no graph rewriting."""
    options = v1.ConfigProto(inter_op_parallelism_threads=4, intra_op_parallelism_threads=1)
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    return options


def _reader_of(variable, step):
    """Return the step's one op that multiplies by the variable's transpose."""
    handle = variable.op
    (reader,) = (
        op
        for op in ops_in_order([step])
        if op.type == "MatMul" and op.get_attr("transpose_b") and handle in [t.op for t in op.inputs[1].op.inputs]
    )
    return reader


def _update_of(variable, step):
    """Return the step's one op that moves the variable."""
    (update,) = (
        op for op in ops_in_order([step]) if op.type.endswith("ApplyGradientDescent") and op.inputs[0].op is variable.op
    )
    return update


def count_races(way: str, gate: str, use_resource: bool, tries: int = 50, size: int = 600) -> int:
    """Count the steps that moved W1 by anything but ∂L/∂W1 at the weights before the step.

    Every try starts from the same weights. All run in one session with four threads and without graph rewriting, so
    the scheduler decides whether an update overtakes a reader.

    Args:
        way, gate, use_resource: as for :func:`gradient_in_order`.
        tries: number of steps.
        size: rows and columns of W1 and W2; large matrices leave more time for a race.

    Returns:
        The number of steps that were wrong by more than 1e-3 of the gradient's largest value.
    """
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(8, size)).astype(np.float32)
    start = [(rng.normal(size=(size, size)) / size**0.5).astype(np.float32) for _ in range(2)]
    expected = by_hand(inputs, start)[0]
    wrong = 0
    with tf.Graph().as_default(), v1.Session(config=_unrewritten()) as session:
        variables = _variables(start, use_resource)
        step = steps(two_layer_loss(tf.constant(inputs), variables), variables, 1.0, gate)[way]
        initialize = v1.global_variables_initializer()
        for _ in range(tries):
            session.run(initialize)
            session.run(step)
            moved = start[0] - session.run(variables[0])
            wrong += bool(np.abs(moved - expected).max() > 1e-3 * np.abs(expected).max())
    return wrong
