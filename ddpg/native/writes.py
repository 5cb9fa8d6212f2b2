"""What an op that writes variables makes of them: the optimisers' steps, as TensorFlow documents them."""

from collections.abc import Callable

import tensorflow as tf

from ddpg.native.program import NoTranslation, Value, folded
from ddpg.native.translation import Translation


def _assign(operation: str | None) -> Callable[[Translation, tf.Operation], None]:
    def write(translation: Translation, op: tf.Operation) -> None:
        handle, given = op.inputs
        value = translation.value(given)
        if operation:
            value = translation.program.map(operation, translation.stored(handle), value)
        index = translation.variable(handle)
        translation.program.write(index, translation.program.spread(value, translation.stored(handle).shape))

    return write


def _descent(translation: Translation, op: tf.Operation) -> None:
    handle, rate, gradient = op.inputs
    program = translation.program
    step = program.map("mul", translation.value(rate), translation.value(gradient))
    program.write(translation.variable(handle), program.map("sub", translation.stored(handle), step))


def _momentum(translation: Translation, op: tf.Operation) -> None:
    handle, slot, rate, gradient, momentum = op.inputs
    if op.get_attr("use_nesterov"):
        raise NoTranslation("Nesterov momentum")
    program = translation.program
    kept = program.map("mul", translation.stored(slot), translation.value(momentum))
    moved = program.map("add", kept, translation.value(gradient))
    step = program.map("mul", translation.value(rate), moved)
    after = program.map("sub", translation.stored(handle), step)
    program.write(translation.variable(slot), moved)
    program.write(translation.variable(handle), after)


def _rmsprop(translation: Translation, op: tf.Operation) -> None:
    handle, squares, moved, *hyper, gradient = op.inputs
    rate, decay, momentum, epsilon = map(translation.value, hyper)
    program, gradient = translation.program, translation.value(gradient)
    difference = program.map("sub", program.map("square", gradient), translation.stored(squares))
    scale = folded(program, "sub", program.literal(1), decay)
    mean = program.map("add", translation.stored(squares), program.map("mul", difference, scale))
    root = program.map("rsqrt", program.map("add", mean, epsilon))
    step = program.map("mul", program.map("mul", rate, gradient), root)
    step = program.map("add", program.map("mul", translation.stored(moved), momentum), step)
    after = program.map("sub", translation.stored(handle), step)
    for target, value in ((squares, mean), (moved, step), (handle, after)):
        program.write(translation.variable(target), value)


def _adam(translation: Translation, op: tf.Operation) -> None:
    handle, first, second, power1, power2, rate, beta1, beta2, epsilon, gradient = op.inputs
    if op.get_attr("use_nesterov"):
        raise NoTranslation("Adam with Nesterov momentum")
    program, one = translation.program, translation.program.literal(1)
    power1, power2, rate, beta1, beta2, epsilon, gradient = map(
        translation.value, (power1, power2, rate, beta1, beta2, epsilon, gradient)
    )
    root = program.map("sqrt", program.map("sub", one, power2))
    step = program.map("div", program.map("mul", rate, root), program.map("sub", one, power1))

    def averaged(slot: tf.Tensor, beta: Value, new: Value) -> Value:
        old = translation.stored(slot)
        return program.map(
            "add", old, program.map("mul", program.map("sub", new, old), folded(program, "sub", one, beta))
        )

    mean = averaged(first, beta1, gradient)
    square = averaged(second, beta2, program.map("square", gradient))
    down = program.map("div", program.map("mul", mean, step), program.map("add", program.map("sqrt", square), epsilon))
    after = program.map("sub", translation.stored(handle), down)
    for target, value in ((first, mean), (second, square), (handle, after)):
        program.write(translation.variable(target), value)


WRITES: dict[str, Callable[[Translation, tf.Operation], None]] = {
    "AssignVariableOp": _assign(None),
    "AssignAddVariableOp": _assign("add"),
    "AssignSubVariableOp": _assign("sub"),
    "ResourceApplyGradientDescent": _descent,
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyRMSProp": _rmsprop,
    "ResourceApplyAdam": _adam,
}
