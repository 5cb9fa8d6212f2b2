"""The arithmetic of TensorFlow's optimizers in the IR: from variables before a step to the same variables after it.

Each function takes the nodes of its op's variables, the one that is trained first and then its slots, and those of the
op's other inputs in TensorFlow's order. It returns a node for each variable, in the same order.
"""

from ddpg.compiler.ir import Node, Program, fold_elementwise


def gradient_descent(program: Program, variable: Node, rate: Node, gradient: Node) -> tuple[Node]:
    """Return the variable minus the rate times the gradient."""
    step = program.elementwise("mul", rate, gradient)
    return (program.elementwise("sub", variable, step),)


def momentum(
    program: Program, variable: Node, slot: Node, rate: Node, gradient: Node, kept_share: Node
) -> tuple[Node, Node]:
    """Return the variable and the decaying sum of gradients (Polyak 1964)."""
    kept = program.elementwise("mul", slot, kept_share)
    moved = program.elementwise("add", kept, gradient)
    step = program.elementwise("mul", rate, moved)
    return program.elementwise("sub", variable, step), moved


def rmsprop(
    program: Program,
    variable: Node,
    squares: Node,
    moved: Node,
    rate: Node,
    decay: Node,
    kept_share: Node,
    epsilon: Node,
    gradient: Node,
) -> tuple[Node, Node, Node]:
    """Return the variable, the mean of squared gradients and the decaying sum of steps (Tieleman and Hinton 2012)."""
    difference = program.elementwise("sub", program.elementwise("square", gradient), squares)
    scale = fold_elementwise(program, "sub", program.literal(1), decay)
    mean = program.elementwise("add", squares, program.elementwise("mul", difference, scale))
    root = program.elementwise("rsqrt", program.elementwise("add", mean, epsilon))
    step = program.elementwise("mul", program.elementwise("mul", rate, gradient), root)
    step = program.elementwise("add", program.elementwise("mul", moved, kept_share), step)
    return program.elementwise("sub", variable, step), mean, step


def adam(
    program: Program,
    variable: Node,
    first: Node,
    second: Node,
    power1: Node,
    power2: Node,
    rate: Node,
    beta1: Node,
    beta2: Node,
    epsilon: Node,
    gradient: Node,
) -> tuple[Node, Node, Node]:
    """Return the variable and both moments (Kingma and Ba 2015, section 2's last form, as TensorFlow computes it)."""
    one = program.literal(1)
    root = program.elementwise("sqrt", program.elementwise("sub", one, power2))
    step = program.elementwise("div", program.elementwise("mul", rate, root), program.elementwise("sub", one, power1))

    def averaged(old: Node, beta: Node, new: Node) -> Node:
        difference = program.elementwise("sub", new, old)
        share = fold_elementwise(program, "sub", one, beta)
        return program.elementwise("add", old, program.elementwise("mul", difference, share))

    mean = averaged(first, beta1, gradient)
    square = averaged(second, beta2, program.elementwise("square", gradient))
    scaled = program.elementwise("mul", mean, step)
    deviation = program.elementwise("add", program.elementwise("sqrt", square), epsilon)
    return program.elementwise("sub", variable, program.elementwise("div", scaled, deviation)), mean, square
