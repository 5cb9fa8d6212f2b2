"""Act with a network's current weights: in NumPy if its graph can be lowered to NumPy, else by a session call."""

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ddpg.interaction.actions import BoxActions
from ddpg.policies.graph_to_numpy import UnsupportedOp, lower_to_numpy
from ddpg.policies.native_policy import NativePolicy
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
    """

    def __init__(self, program: NumpyProgram, variables: Sequence):
        self.program, self.variables = program, list(variables)

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the weights to the values of :attr:`variables`."""
        self.program.load(arrays)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of float32 observations ``[B, *observation shape]``."""
        return self.program(observations)

    def perturbed(self, rng: np.random.Generator, sigma: float) -> "NumpyPolicy":
        """Return a copy of the policy with N(0, σ²) added to weights and biases, but not in normalization layers."""
        program = copy.copy(self.program)
        program.load(
            [
                array + sigma * rng.standard_normal(array.shape, np.float32) if _gets_noise(variable) else array
                for variable, array in zip(self.variables, program.parameters(), strict=True)
            ]
        )
        return NumpyPolicy(program, self.variables)


class SessionPolicy:
    """μ(s) by one cached session call: for networks with ops that have no NumPy counterpart."""

    variables = ()

    def __init__(self, session: tf.compat.v1.Session, states: tf.Tensor, actions: tf.Tensor):
        self._call = session.make_callable(actions, feed_list=[states])

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Do nothing: the session always has the current weights."""

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of float32 observations ``[B, *observation shape]``."""
        return self._call(observations)


class NormalisedPolicy:
    """A policy that normalises observations first.

    Attributes:
        normaliser: the running statistics; acting does not change them.
        inner: the policy of normalised observations.
    """

    def __init__(self, inner: NumpyPolicy | SessionPolicy, normaliser: ObservationNormalizer):
        self.inner, self.normaliser = inner, normaliser
        self.variables, self.load = inner.variables, inner.load

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of raw float32 observations ``[B, *observation shape]``."""
        return self.inner(self.normaliser(observations))

    def perturbed(self, rng: np.random.Generator, sigma: float) -> "NormalisedPolicy":
        """See :meth:`NumpyPolicy.perturbed`."""
        assert isinstance(self.inner, NumpyPolicy)
        return NormalisedPolicy(self.inner.perturbed(rng, sigma), self.normaliser)


def program_of(policy: NumpyPolicy | SessionPolicy | NormalisedPolicy) -> NumpyProgram | None:
    """Return the NumPy program of a policy, without the normaliser; ``None`` if the policy runs in a session."""
    inner = policy.inner if isinstance(policy, NormalisedPolicy) else policy
    return inner.program if isinstance(inner, NumpyPolicy) else None


def make_native_policy(
    policy: NumpyPolicy | SessionPolicy | NormalisedPolicy, shape: tuple[int, ...], box: BoxActions | None
) -> NativePolicy | None:
    """Return ``policy`` compiled for one observation of ``shape``; ``None`` if the policy runs in a session.

    Raises:
        Unsupported: if the compiler does not support an operation of the network, or fails.
    """
    program = program_of(policy)
    normaliser = policy.normaliser if isinstance(policy, NormalisedPolicy) else None
    return None if program is None else NativePolicy(program, shape, normaliser, box)


def make_policy(
    network: ActingNetwork, session: tf.compat.v1.Session, normaliser: ObservationNormalizer | None = None
) -> NumpyPolicy | SessionPolicy | NormalisedPolicy:
    """Return the fastest policy for a network; after an update, ``load`` the values of its ``variables`` into it."""
    with network.graph.as_default(), v1.name_scope("acting/"):
        states = v1.placeholder(tf.float32, [None, *network.observation_space.shape], name="states")
        actions = network(states)
    policy: NumpyPolicy | SessionPolicy
    try:
        program, loaded = lower_to_numpy(actions, [states], network.variables)
        policy = NumpyPolicy(program, [network.variables[index] for index in loaded])
    except UnsupportedOp:
        policy = SessionPolicy(session, states, actions)
    return policy if normaliser is None else NormalisedPolicy(policy, normaliser)


def _gets_noise(variable: tf.Variable) -> bool:
    """Return whether a variable is trainable and not of a normalization layer, as in OpenAI Baselines' DDPG."""
    return variable.trainable and variable.name.rpartition("/")[2] not in ("gamma:0", "beta:0")
