"""Build the TensorFlow graph of an exported NumPy program, so that it can be exported to the other formats, too."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.exports.policy_graph import ActingPolicy
from ddpg.interaction.actions import DiscreteActions, make_actions
from ddpg.policies.numpy_program import NumpyProgram

v1 = tf.compat.v1

# What NumPy computes by ddpg.policies.standalone.OPERATIONS. Vectors are rows [1, n] here as there.
OPERATIONS: Mapping[str, Callable[..., tf.Tensor]] = {
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
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Elu": tf.nn.elu,
    "Selu": tf.nn.selu,
    "Reshape": tf.reshape,
    "ConcatV2": lambda x, y, axis: tf.concat([x, y], int(axis)),
    "Mean": lambda x, axis: tf.reduce_mean(x, axis=np.ravel(axis).tolist(), keepdims=True),
}


class ProgramNetwork:
    """A :class:`~ddpg.policies.network_policy.ActingNetwork` that computes what a NumPy program does.

    Args:
        program: the network with its weights, which become variables.
        observation_space: of its observations ``[B, *shape]``.

    Attributes:
        graph: a graph of its own.
        observation_space: as given.
        variables: the program's arrays of floats.
    """

    def __init__(self, program: NumpyProgram, observation_space: gym.spaces.Box):
        self.graph, self.observation_space, self._program = tf.Graph(), observation_space, program
        self._constants = {register: array for register, array in program.arrays().items() if array.dtype.kind != "f"}
        with self.graph.as_default():
            self._variables = {
                register: v1.get_variable(f"register_{register}", initializer=array, use_resource=True)
                for register, array in program.arrays().items()
                if array.dtype.kind == "f"
            }
            self._states = v1.placeholder(tf.float32, [None, *observation_space.shape])
            self._outputs = self(self._states)

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """The variables whose values are the weights."""
        return [*self._variables.values()]

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        """Return the output for ``states``, ``[B, n]``."""
        registers: dict[int, Any] = {**self._constants, self._program.sources[0]: states}
        registers |= {register: variable.read_value() for register, variable in self._variables.items()}
        for step in self._program.steps:
            registers[step.output] = OPERATIONS[step.operation](*(registers[place] for place in step.inputs))
        return registers[self._program.result]

    def predict(self, states: np.ndarray) -> np.ndarray:
        """Return the output in the default session, ``[B, n]``."""
        return v1.get_default_session().run(self._outputs, {self._states: states})


@contextlib.contextmanager
def acting(program: NumpyProgram, observation_space: gym.spaces.Box, action_space: gym.Space) -> Iterator[ActingPolicy]:
    """Yield the parts that act, in a session of their own, as :func:`ddpg.exports.export.export` takes them."""
    network = ProgramNetwork(program, observation_space)
    actions = (
        DiscreteActions(action_space) if isinstance(action_space, gym.spaces.Discrete) else make_actions(action_space)
    )
    with contextlib.closing(v1.Session(graph=network.graph)) as session:
        session.run([variable.initializer for variable in network.variables])
        yield ActingPolicy(network, session, actions)
