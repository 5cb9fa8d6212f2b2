"""Build a policy as one TensorFlow graph: observations in, actions in env units out, weights as constants.

The graph is built from an agent's network, or from an exported NumPy policy to export it in the other formats.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from ddpg.errors import UsageError
from ddpg.exports.policy_file import actions_of
from ddpg.interaction.actions import Actions, BoxActions, ParameterisedActions
from ddpg.policies.graph_to_numpy import lower_to_numpy
from ddpg.policies.network_policy import ActingNetwork
from ddpg.policies.numpy_program import NumpyProgram
from ddpg.quiet import no_tensorflow_warnings
from ddpg.replay.normalizers import CLIP, ObservationNormalizer

v1 = tf.compat.v1

INPUT, ACTIONS, VALUES = "observations", "actions", "values"
_FLOAT32 = np.finfo(np.float32)
_COARSEST = 1e-3  # of a half-range: the most by which float32 may round the actions of a box of float64
_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # a SavedModel holds their number in this process only
# TensorFlow's counterparts of ddpg.policies.standalone.OPERATIONS. In both, vectors are rows [1, n].
TENSORFLOW_OPERATIONS: Mapping[str, Callable[..., tf.Tensor]] = {
    "MatMul": tf.matmul,
    "BiasAdd": tf.add,
    "AddV2": tf.add,
    "Sub": tf.subtract,
    "Mul": tf.multiply,
    "RealDiv": tf.divide,
    "Maximum": tf.maximum,
    "Minimum": tf.minimum,
    "Neg": tf.negative,
    "Square": tf.square,
    "Sqrt": tf.sqrt,
    "Rsqrt": tf.math.rsqrt,
    "Tanh": tf.tanh,
    "Erf": tf.math.erf,
    "Erfc": tf.math.erfc,
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Elu": tf.nn.elu,
    "Selu": tf.nn.selu,
    "Conv2D": lambda x, filters, how: tf.nn.conv2d(x, filters, how[:2].tolist(), "SAME" if how[2] else "VALID"),
    "Reshape": tf.reshape,
    "Transpose": tf.transpose,
    "ConcatV2": lambda x, y, axis: tf.concat([x, y], int(axis)),
    "Mean": lambda x, axis: tf.reduce_mean(x, axis=np.ravel(axis).tolist(), keepdims=True),
}


class ActingPolicy(NamedTuple):
    """The parts of an agent that act: its network, the session with the weights, and the meaning of its outputs."""

    network: ActingNetwork
    session: tf.compat.v1.Session
    actions: Actions
    normaliser: ObservationNormalizer | None = None

    @classmethod
    def of(cls, agent: Any) -> "ActingPolicy":
        """Return the acting parts of an agent."""
        return cls(agent.symbolic_update.greedy_policy, agent.session, agent.actions, agent.memory.observations)

    def outputs(self, states: tf.Tensor) -> tf.Tensor:
        """Return the network's outputs for observations in env units."""
        if self.normaliser is None:
            return self.network(states)
        shape = self.network.observation_space.shape
        # As rows, which :func:`ddpg.policies.standalone.statistics` recognises.
        mean, scale = (tf.constant(array.reshape(1, -1), tf.float32) for array in self.normaliser.transformation)
        rows = states if len(shape) == 1 else tf.reshape(states, [-1, mean.shape[1]])
        scaled = tf.minimum(tf.maximum((rows - mean) * scale, -CLIP), CLIP)
        return self.network(scaled if len(shape) == 1 else tf.reshape(scaled, [-1, *shape]))


def inputs_and_outputs(acting: ActingPolicy) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a placeholder of observations ``[B, ...]`` in env units and the network's outputs for them ``[B, A]``."""
    with acting.network.graph.as_default(), v1.name_scope("export"):
        states = v1.placeholder(tf.float32, [None, *acting.network.observation_space.shape], name=INPUT)
        return states, acting.outputs(states)


def numpy_program(acting: ActingPolicy) -> NumpyProgram:
    """Return the network as a NumPy program with its weights.

    Raises:
        UnsupportedOp: if one of its ops has no NumPy counterpart.
    """
    states, outputs = inputs_and_outputs(acting)
    with acting.network.graph.as_default():
        program, loaded = lower_to_numpy(outputs, [states], acting.network.acting_variables)
    program.load(acting.session.run([acting.network.acting_variables[index] for index in loaded]))
    return program


def policy_function(acting: ActingPolicy) -> tf.types.experimental.PolymorphicFunction:
    """Return ``observations [B, ...] -> {"actions": ...}`` as an eager function without variables.

    | action space | ``actions`` | |
    |---|---|---|
    | ``Box`` | float32 ``[B, *shape]`` | inside the bounds |
    | parameterised | float32 ``[B, A]`` | n scores in [-1, 1], all parameters in env units; the largest score chooses |
    | ``Discrete`` | int64 ``[B]``, from ``start`` | also ``values``: float32 ``[B, n]``, one for each action |

    Raises:
        UsageError: if the network calls Python code, which would run in this process only.
    """
    states, raw = inputs_and_outputs(acting)
    with acting.network.graph.as_default(), v1.name_scope("export"):
        outputs = _translated(acting.actions, raw)
    with no_tensorflow_warnings():
        frozen = convert_to_constants.convert_variables_to_constants_from_session_graph(
            acting.session,
            _inline_taken_branch(acting.network.graph.as_graph_def()),
            [tensor.op.name for tensor in outputs.values()],
        )
    # Custom gradients look up the agent's graph; an exported policy needs no gradient. The library holds the functions
    # of updates too, once XLA has compiled some.
    for nodes in (frozen.node, *(function.node_def for function in frozen.library.function)):
        for node in nodes:
            node.attr.pop("_gradient_op_type", None)
            if node.op in _PYTHON_OPS:
                raise UsageError(
                    f"no format can hold this network: its op {node.op} calls Python code, which is in no exported "
                    "file; write it with TensorFlow's operations instead of numpy_function or py_function"
                )
    names = list(outputs)

    def imported(observations: tf.Tensor) -> list[tf.Tensor]:
        return tf.import_graph_def(frozen, {states.name: observations}, [outputs[name].name for name in names], name="")

    signature = tf.TensorSpec([None, *states.shape[1:]], tf.float32, name=INPUT)
    with tf.init_scope():
        pruned = v1.wrap_function(imported, [signature])

        @tf.function(input_signature=[signature])
        def policy(observations):
            return dict(zip(names, pruned(observations), strict=True))

        return policy


def boxes_of(space: Any) -> Sequence[gym.spaces.Box]:
    """Return the boxes of an action space: of parameterised actions one for each choice, of a ``Discrete`` none."""
    if isinstance(space, gym.spaces.Box):
        return [space]
    if isinstance(space, gym.spaces.Discrete):
        return []
    boxes: Sequence[Any] = space.spaces if isinstance(space, gym.spaces.OneOf) else space.spaces[1].spaces
    return boxes


def rounding_of_actions(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return how much float32 may round an action between two float64 bounds, in half-ranges.

    A narrow box far from 0 contains few float32 numbers, so an action cannot be more exact than this.
    """
    return 2 * _FLOAT32.eps * np.maximum(np.abs(low), np.abs(high)) / ((high - low) / 2)


def float32_scaling(low: np.ndarray, high: np.ndarray) -> dict[str, np.ndarray]:
    """Return how outputs become actions in env units, ``middle + half_range · output`` within ``low`` and ``high``.

    The numbers are float32, for float64 bounds ``[A]``. Bounds are rounded inwards, so that no float32 action lies
    outside them.
    """
    scaling = {"half_range": (high - low) / 2, "middle": (high + low) / 2, "low": low, "high": high}
    found = {name: array.astype(np.float32) for name, array in scaling.items()}
    found["low"] = np.where(found["low"] < low, np.nextafter(found["low"], np.float32(np.inf)), found["low"])
    found["high"] = np.where(found["high"] > high, np.nextafter(found["high"], np.float32(-np.inf)), found["high"])
    return found


def check_float32(kind: str, space: gym.Space) -> None:
    """Refuse an action space whose actions float32 cannot compute.

    Args:
        kind: the format of the export, for the message.
        space: the action space.

    Raises:
        UsageError: if a bound or a half-range is beyond float32, or if a box is of float64 and float32 may round its
            actions by more than a thousandth of the half-range.
    """
    for box in boxes_of(space):
        low, high = (bound.reshape(-1).astype(np.float64) for bound in (box.low, box.high))
        outside = (np.maximum(np.abs(low), np.abs(high)) > _FLOAT32.max) | ((high - low) / 2 < _FLOAT32.tiny)
        rounding = rounding_of_actions(low, high)
        coarse = (rounding > _COARSEST) & (box.dtype.itemsize > _FLOAT32.dtype.itemsize)
        for index in np.flatnonzero(outside | coarse)[:1]:
            why = f"which may round it by {rounding[index]:.2g} half-ranges"
            if outside[index]:
                why = "whose range these bounds or their distance exceed"
            raise UsageError(
                f"format={kind!r} computes actions in float32, {why}: an action from {low[index]!s} to "
                f"{high[index]!s}; use format='numpy', or other bounds"
            )


def _translated(actions: Actions, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Map outputs to env units as :meth:`Actions.to_env` does, except for the choice among parameterised actions."""
    if not isinstance(actions, (BoxActions, ParameterisedActions)):
        return {ACTIONS: tf.argmax(outputs, axis=1) + actions.start, VALUES: tf.identity(outputs)}
    scaling = float32_scaling(*actions.bounds)
    scaled = outputs * scaling["half_range"] + scaling["middle"]
    bounded = tf.maximum(tf.minimum(scaled, scaling["high"]), scaling["low"])
    if isinstance(actions.space, gym.spaces.Box) and len(actions.space.shape) != 1:
        bounded = tf.reshape(bounded, [-1, *actions.space.shape])
    return {ACTIONS: bounded}


def _inline_taken_branch(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Replace conditionals on constants by the variables that the taken branch reads.

    Batch normalisation makes them: the other branch updates its moving statistics, which a graph of constants cannot.
    """
    nodes = {node.name: node for node in graph.node}
    bodies = {body.signature.name: body for body in graph.library.function}
    instead: dict[str, str] = {}
    for node in [node for node in graph.node if node.op in ("If", "StatelessIf")]:
        condition = nodes[node.input[0].partition(":")[0]]
        if condition.op != "Const":
            continue
        taken = "then_branch" if tf.make_ndarray(condition.attr["value"].tensor) else "else_branch"
        for index, position in enumerate(_read_arguments(bodies[node.attr[taken].func.name])):
            if position is None:
                continue
            read = graph.node.add(name=f"{node.name}/read_{index}", op="ReadVariableOp")
            read.input.append(node.input[1 + position])
            read.attr["dtype"].CopyFrom(tf.compat.v1.AttrValue(type=node.attr["Tout"].list.type[index]))
            instead[f"{node.name}:{index}" if index else node.name] = read.name
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = instead.get(name, name)
    return graph


def _read_arguments(body: Any) -> list[int | None]:
    """Return, per output of a function, the index of the argument variable that it reads, or None if it does more."""
    arguments = [argument.name for argument in body.signature.input_arg]
    reads = {f"{node.name}:value:0": node.input[0] for node in body.node_def if node.op == "ReadVariableOp"}
    identities = {f"{node.name}:output:0": node.input[0] for node in body.node_def if node.op == "Identity"}
    found: list[int | None] = []
    for output in body.signature.output_arg:
        source = body.ret[output.name]
        while source in identities:
            source = identities[source]
        found.append(arguments.index(reads[source]) if reads.get(source) in arguments else None)
    return found


class ProgramNetwork:
    """A :class:`~ddpg.policies.network_policy.ActingNetwork` that runs a NumPy program in TensorFlow.

    Args:
        program: the network with its weights, which become variables.
        observation_space: of its observations ``[B, *shape]``.

    Attributes:
        graph: the network's own graph.
        observation_space: as given.
        acting_variables: the program's arrays of floats.
    """

    def __init__(self, program: NumpyProgram, observation_space: gym.spaces.Box):
        self.graph, self.observation_space, self._program = tf.Graph(), observation_space, program
        self._constants = {register: array for register, array in program.arrays().items() if array.dtype.kind != "f"}
        with self.graph.as_default():
            self._weights = {
                register: v1.get_variable(f"register_{register}", initializer=array, use_resource=True)
                for register, array in program.arrays().items()
                if array.dtype.kind == "f"
            }
            self._states = v1.placeholder(tf.float32, [None, *observation_space.shape])
            self._outputs = self(self._states)
        self.acting_variables = [*self._weights.values()]

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        """Return the output for ``states``, ``[B, n]``."""
        registers: dict[int, Any] = {**self._constants, self._program.sources[0]: states}
        registers |= {register: variable.read_value() for register, variable in self._weights.items()}
        for step in self._program.steps:
            registers[step.output] = TENSORFLOW_OPERATIONS[step.operation](*(registers[place] for place in step.inputs))
        return registers[self._program.result]

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Return the output in the default session, ``[B, n]``."""
        return v1.get_default_session().run(self._outputs, {self._states: states})


@contextlib.contextmanager
def acting_policy(
    program: NumpyProgram, observation_space: gym.spaces.Box, action_space: gym.Space
) -> Iterator[ActingPolicy]:
    """Yield a NumPy program as an :class:`ActingPolicy`, in its own session, for :func:`ddpg.exports.export.export`."""
    network = ProgramNetwork(program, observation_space)
    with contextlib.closing(v1.Session(graph=network.graph)) as session:
        session.run([variable.initializer for variable in network.acting_variables])
        yield ActingPolicy(network, session, actions_of(action_space))
