"""Act with a network's current weights: in NumPy if its graph can be lowered to NumPy, else by a session call."""

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ddpg.policies.graph_to_numpy import UnsupportedOp, lower_to_numpy
from ddpg.policies.numpy_program import NumpyProgram
from ddpg.replay.normalizers import ObservationNormalizer

v1 = tf.compat.v1


class ActingNetwork(Protocol):
    """The part of :class:`ddpg.networks.base.Network` that acting needs."""

    graph: Any
    observation_space: Any

    @property
    def variables(self) -> Sequence:
        """The variables whose values are the weights."""

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        """Return the output for ``states``, ``[B, n]``."""


class NumpyPolicy:
    """μ(s) from a NumPy copy of the weights: it takes microseconds, where a session call takes over 100.

    Attributes:
        program: the network with its current weights.
        variables: the variables whose values :meth:`load` takes.
        normaliser: normalises observations first; ``None``: the network gets them as they are. Acting does not change
            its statistics.
    """

    def __init__(self, program: NumpyProgram, variables: Sequence, normaliser: ObservationNormalizer | None = None):
        self.program, self.variables, self.normaliser = program, list(variables), normaliser

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the weights to the values of :attr:`variables`."""
        self.program.load(arrays)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of raw float32 observations ``[B, *observation shape]``."""
        return self.program(observations if self.normaliser is None else self.normaliser(observations))

    def perturbed(self, rng: np.random.Generator, sigma: float) -> "NumpyPolicy":
        """Return a copy of the policy with N(0, σ²) added to weights and biases, but not in normalization layers."""
        program = copy.copy(self.program)
        program.load(
            [
                array + sigma * rng.standard_normal(array.shape, np.float32) if _gets_noise(variable) else array
                for variable, array in zip(self.variables, program.parameters(), strict=True)
            ]
        )
        return NumpyPolicy(program, self.variables, self.normaliser)


class SessionPolicy:
    """μ(s) by one cached session call: for networks with ops that have no NumPy counterpart."""

    program = None  # unlike a NumpyPolicy
    variables = ()

    def __init__(
        self,
        session: tf.compat.v1.Session,
        states: tf.Tensor,
        actions: tf.Tensor,
        normaliser: ObservationNormalizer | None = None,
    ):
        self._call, self.normaliser = session.make_callable(actions, feed_list=[states]), normaliser

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Do nothing: the session always has the current weights."""

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of raw float32 observations ``[B, *observation shape]``."""
        return self._call(observations if self.normaliser is None else self.normaliser(observations))


def make_policy(
    network: ActingNetwork, session: tf.compat.v1.Session, normaliser: ObservationNormalizer | None = None
) -> NumpyPolicy | SessionPolicy:
    """Return the fastest policy for a network; after an update, ``load`` the values of its ``variables`` into it."""
    with network.graph.as_default(), v1.name_scope("acting/"):
        states = v1.placeholder(tf.float32, [None, *network.observation_space.shape], name="states")
        actions = network(states)
    try:
        program, loaded = lower_to_numpy(actions, [states], network.variables)
    except UnsupportedOp:
        return SessionPolicy(session, states, actions, normaliser)
    return NumpyPolicy(program, [network.variables[index] for index in loaded], normaliser)


def _gets_noise(variable: tf.Variable) -> bool:
    """Return whether a variable is trainable and not of a normalization layer, as in OpenAI Baselines' DDPG."""
    return variable.trainable and variable.name.rpartition("/")[2] not in ("gamma:0", "beta:0")
