"""Act with a network's current weights: in NumPy, on images by compiled code, else by a session.

NumPy computes convolutions too, but slower than compiled code, so only worker processes and exports do.
"""

import copy
import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.ir import Unsupported
from ddpg.policies.graph_to_numpy import UnsupportedOp, lower_to_numpy
from ddpg.policies.numpy_program import NumpyProgram
from ddpg.replay.normalizers import ObservationNormalizer

v1 = tf.compat.v1

MOST_SIZES = 4  # batch sizes for which a policy is compiled


class ActingNetwork(Protocol):
    """The part of :class:`ddpg.networks.base.Network` that acting needs."""

    graph: Any
    observation_space: Any

    @property
    def acting_variables(self) -> Sequence:
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

    def in_numpy(self) -> "NumpyPolicy":
        """Return the policy itself."""
        return self

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
    """μ(s) by one cached session call: for networks on images, and with ops that have no NumPy counterpart.

    Args:
        network, session: the network, and the session that holds its weights.
        states: a placeholder of observations.
        actions: the network's output for them.
        normaliser: as for :class:`NumpyPolicy`.
    """

    program = None  # unlike a NumpyPolicy
    variables = ()

    def __init__(
        self,
        network: ActingNetwork,
        session: tf.compat.v1.Session,
        states: tf.Tensor,
        actions: tf.Tensor,
        normaliser: ObservationNormalizer | None = None,
    ):
        self._network, self._session, self._states, self._actions = network, session, states, actions
        self._call, self.normaliser = session.make_callable(actions, feed_list=[states]), normaliser

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Do nothing: the session always has the current weights."""

    @functools.cached_property
    def lowered(self) -> NumpyPolicy | None:
        """The network in NumPy, without weights; ``None`` if it has an op without a NumPy counterpart."""
        try:
            return _numpy_policy(self._network, self._states, self._actions, self.normaliser, images=True)
        except UnsupportedOp:
            return None

    def in_numpy(self) -> NumpyPolicy | None:
        """Return the same policy in NumPy with the current weights; ``None`` as for :attr:`lowered`.

        Worker processes act with it, and parameter noise disturbs it.
        """
        if self.lowered is not None:
            self.lowered.load(self._session.run(self.lowered.variables))
        return self.lowered

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of raw float32 observations ``[B, *observation shape]``."""
        return self._call(observations if self.normaliser is None else self.normaliser(observations))


class CompiledPolicy:
    """μ(s) by machine code of this package's compiler, which holds a copy of the weights: for networks on images.

    The session would take longer for one image, and would first have to get the learner's weights. It still acts if the
    compiler does not support an op, and on further batch sizes. Only one thread may call a policy at a time.

    Args:
        network: the network.
        other: acts where nothing is compiled.
    """

    program = None

    def __init__(self, network: ActingNetwork, other: SessionPolicy):
        self._network, self._other, self.normaliser = network, other, other.normaliser
        self.variables = [variable for variable in network.acting_variables if variable.dtype.base_dtype == tf.float32]
        self._arrays: Sequence[np.ndarray] = ()
        self._compiled: dict[int, CompiledUpdate] = {}  # by batch size
        self._loaded: dict[int, Sequence[np.ndarray]] = {}
        self._supported = True

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the weights to the values of :attr:`variables`."""
        self._arrays = arrays

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return μ(s), ``[B, A]``, of raw float32 observations ``[B, *observation shape]``."""
        count = len(observations)
        if self._supported and count not in self._compiled and len(self._compiled) < MOST_SIZES:
            try:
                self._compiled[count] = self._compile(count)
            except Unsupported:
                self._supported = False
        if count not in self._compiled:
            return self._other(observations)
        compiled = self._compiled[count]
        if self._loaded.get(count) is not self._arrays:
            for value, array in zip(compiled.values, self._arrays, strict=True):
                value[...] = array
            self._loaded[count] = self._arrays
        inputs = observations if self.normaliser is None else self.normaliser(observations)
        _, (actions,) = compiled.run(1, [np.asarray(inputs)[None]])
        return actions[0]

    def in_numpy(self) -> NumpyPolicy | None:
        """Return the same policy in NumPy; see :meth:`SessionPolicy.in_numpy`."""
        lowered = self._other.lowered
        if lowered is not None:
            values = {variable.name: array for variable, array in zip(self.variables, self._arrays, strict=True)}
            lowered.load([values[variable.name] for variable in lowered.variables])
        return lowered

    def _compile(self, count: int) -> CompiledUpdate:
        with self._network.graph.as_default(), v1.name_scope("compiled_acting/"):
            states = v1.placeholder(tf.float32, [count, *self._network.observation_space.shape], name="states")
            return CompiledUpdate([], {"states": states}, self.variables, 1, [self._network(states)])


def make_policy(
    network: ActingNetwork,
    session: tf.compat.v1.Session,
    normaliser: ObservationNormalizer | None = None,
    compiles: bool = False,
) -> NumpyPolicy | CompiledPolicy | SessionPolicy:
    """Return the fastest policy for a network; after an update, ``load`` the values of its ``variables`` into it.

    Args:
        network, session, normaliser: as for :class:`SessionPolicy`.
        compiles: whether a network on images, or with ops that have no NumPy counterpart, is compiled, on a CPU.
    """
    with network.graph.as_default(), v1.name_scope("acting/"):
        states = v1.placeholder(tf.float32, [None, *network.observation_space.shape], name="states")
        actions = network(states)
    try:
        return _numpy_policy(network, states, actions, normaliser, images=False)
    except UnsupportedOp:
        policy = SessionPolicy(network, session, states, actions, normaliser)
        compiles = compiles and not tf.config.list_physical_devices("GPU")
        return CompiledPolicy(network, policy) if compiles else policy


def _numpy_policy(
    network: ActingNetwork,
    states: tf.Tensor,
    actions: tf.Tensor,
    normaliser: ObservationNormalizer | None,
    images: bool,
) -> NumpyPolicy:
    program, loaded = lower_to_numpy(actions, [states], network.acting_variables, images)
    return NumpyPolicy(program, [network.acting_variables[index] for index in loaded], normaliser)


def _gets_noise(variable: tf.Variable) -> bool:
    """Return whether a variable is trainable and not of a normalization layer, as in OpenAI Baselines' DDPG."""
    return variable.trainable and variable.name.rpartition("/")[2] not in ("gamma:0", "beta:0")
