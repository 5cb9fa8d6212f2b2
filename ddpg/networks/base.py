"""What actor and critic share: variables, their target, their optimiser, and the numeric methods."""

import abc
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg._tflearn import training_mode
from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.gradients.td import GradientsAndVariables
from ddpg.networks.created import CreatedVariables
from ddpg.networks.layers import check_output_init, mlp
from ddpg.networks.numeric import NumericRuns
from ddpg.networks.optimizers import make_optimizer
from ddpg.networks.target import Target
from ddpg.validation import unmasked

v1 = tf.compat.v1

Creating = contextlib.AbstractContextManager[None]


class Network(abc.ABC):
    """A network applied as often as needed on one set of variables, with an EMA target.

    Subclasses implement :meth:`_apply`, and say what their inputs are. Variables, EMA shadows and optimiser
    slots are all created here, in the default graph, so that one initialiser reaches them and later
    applications (inside a compiled function too) create none.
    """

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        network: Callable | None,
        optimizer: str | Callable,
        learning_rate: float,
        tau: float,
        name: str,
        max_gradient_norm: float | None = None,
        output_init: str = "small",
    ):
        self.observation_space = spaces.check_observation_space(observation_space)
        if tf.executing_eagerly():
            raise UsageError(
                f"the {name} was built in eager mode, where its gradients would have no graph to flow through; build "
                "it inside `with tf.Graph().as_default():`"
            )
        if not (np.isfinite(learning_rate) and learning_rate > 0):
            raise UsageError(f"learning_rate={learning_rate} of the {name} must be a finite number > 0")
        if max_gradient_norm is not None and not 0 < max_gradient_norm < np.inf:
            raise UsageError(
                f"max_gradient_norm={max_gradient_norm} of the {name} must be a finite number > 0, or None for any"
            )
        self.max_gradient_norm = max_gradient_norm
        self.graph = v1.get_default_graph()
        self.name = name
        self._network = network or mlp()
        self._output_init = check_output_init(output_init)
        self._run = NumericRuns(self.graph, name)
        self._variables: list[tf.Variable] = []
        self._created = CreatedVariables(name)
        with v1.variable_scope(None, default_name=name, use_resource=True) as self._scope:
            pass
        recorded = self._created.recorded(self._scope.name, self._variables.append)
        self._applying(self._record, recorded, self.placeholders(), False)
        if not self.trainable_variables:
            raise UsageError(f"the network of the {name} created no trainable variable; it could not learn")
        self._target = Target(self._variables, tau)
        with v1.variable_scope(self._scope, use_resource=True):
            self.learning_rate = v1.get_variable("learning_rate", initializer=float(learning_rate), trainable=False)
        self.optimizer = make_optimizer(optimizer, self.learning_rate)
        # Slots are made when gradients are first applied: now, so that they are in the initialiser.
        self.apply_gradients([(tf.zeros_like(variable), variable) for variable in self.trainable_variables])

    # -- symbolic -------------------------------------------------------------------------------------

    @abc.abstractmethod
    def __call__(self, *inputs: Any, **options: Any) -> tf.Tensor:
        """Return the online network's output for ``inputs``; ``training=True``: in training mode."""

    @abc.abstractmethod
    def target(self, *inputs: Any, **options: Any) -> tf.Tensor:
        """Return the target's output for ``inputs``."""

    @abc.abstractmethod
    def compute_gradients(self, *inputs: Any, **options: Any) -> GradientsAndVariables:
        """Return ``[(gradient, variable)]`` for the trainable variables."""

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables of the online network, in creation order; moving statistics too."""
        return list(self._variables)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that gradients move, in creation order."""
        return [variable for variable in self._variables if variable.trainable]

    @property
    def target_variables(self) -> list[tf.Variable]:
        """The EMA shadows, in the order of :attr:`variables`."""
        return list(self._target.variables)

    def apply_gradients(self, grads_and_vars: Sequence[tuple[tf.Tensor, tf.Variable]]) -> tf.Operation:
        """Return the op of one optimiser step down ``[(gradient, variable)]``.

        Where all gradients together are longer than ``max_gradient_norm`` they are scaled to it (Pascanu, Mikolov &
        Bengio 2013, Algorithm 1).
        """
        if self.max_gradient_norm is not None:
            gradients, variables = zip(*grads_and_vars, strict=True)
            gradients, _ = tf.clip_by_global_norm(gradients, self.max_gradient_norm)
            grads_and_vars = list(zip(gradients, variables, strict=True))
        return self.optimizer.apply_gradients(grads_and_vars)

    def target_update(self) -> tf.Operation:
        """Return the op that moves the target by τ towards the online network."""
        return self._target.update()

    def target_sync(self) -> tf.Operation:
        """Return the op that copies the online network into the target."""
        return self._target.sync()

    # -- numeric: NumPy in and out, in the default session --------------------------------------------

    def update_target_network(self) -> None:
        """Move the target by τ towards the online network."""
        self._run("target_update", self.target_update)

    def sync_target_network(self) -> None:
        """Copy the online network into the target."""
        self._run("target_sync", self.target_sync)

    def get_network_params(self) -> list[np.ndarray]:
        """Return the trainable variables' values, in creation order."""
        return self._run("get_network_params", lambda: [v.read_value() for v in self.trainable_variables])

    def set_network_params(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the trainable variables, in creation order. The target stays where it is.

        Raises:
            UsageError: another number of arrays, another shape, or NaN; nothing is set then.
        """
        variables = self.trainable_variables
        if len(arrays) != len(variables):
            raise UsageError(f"{len(arrays)} arrays given for the {len(variables)} trainable variables of {self.name}")
        given = zip(arrays, variables, strict=True)
        arrays = [unmasked(array, v.name, v.dtype.as_numpy_dtype) for array, v in given]
        for array, variable in zip(arrays, variables, strict=True):
            if array.shape != tuple(variable.shape):
                raise UsageError(f"{variable.name} has shape {tuple(variable.shape)}, the array given {array.shape}")
            spaces.check_finite(array, variable.name)

        def assign(*values: tf.Tensor) -> tf.Operation:
            return tf.group(*[v.assign(value) for v, value in zip(variables, values, strict=True)])

        self._run("set_network_params", assign, *arrays)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the optimiser's step size from the next step on."""

        def assign(value: tf.Tensor) -> tf.Operation:
            return self.learning_rate.assign(value[0])

        self._run("set_learning_rate", assign, np.asarray([learning_rate], np.float32))

    # -- for subclasses -------------------------------------------------------------------------------

    @abc.abstractmethod
    def _apply(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Build the network on ``inputs``: ``self._network``'s hidden layers and an output layer."""

    def placeholders(self) -> list[tf.Tensor]:
        """Return fresh placeholders for the inputs of :meth:`_apply`: the states, unless a subclass adds to them."""
        return [v1.placeholder(tf.float32, [None, *self.observation_space.shape], name="states")]

    def _online(self, inputs: Sequence[tf.Tensor], training: bool) -> tf.Tensor:
        return self._applying(self._known_only, self._created.again(lambda first: first), inputs, training)

    def _of_target(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        # Inference mode: a target uses the statistics it has averaged, and must not move them itself.
        return self._applying(self._target.shadow_getter, self._created.again(self._target.shadow_of), inputs, False)

    def _applying(self, getter: Callable, creating: Creating, inputs: Sequence[tf.Tensor], training: bool) -> tf.Tensor:
        by_name = functools.partial(self._created.found_by_name, getter)
        scope = v1.variable_scope(self._scope, reuse=v1.AUTO_REUSE, custom_getter=by_name)
        with scope, training_mode(training), creating:
            return self._apply(*inputs)

    def _record(self, getter: Callable, *args, **kwargs):
        variable = getter(*args, **kwargs)
        if not any(variable is known for known in self._variables):
            self._variables.append(variable)
        return variable

    def _known_only(self, getter: Callable, *args, **kwargs):
        variable = getter(*args, **kwargs)
        if not any(variable is known for known in self._variables):
            raise UsageError(
                f"applying the network of the {self.name} again created {variable.name}: it would not be trained. "
                "Build the same layers at every call (with fixed scopes, in the same order)"
            )
        return variable

    def _step_after(self, loss: tf.Tensor, gradients: GradientsAndVariables) -> tf.Tensor:
        """Apply ``gradients``; return ``loss``, taken before the step, in a form that waits for it."""
        with tf.control_dependencies([loss]):
            step = self.apply_gradients(gradients)
        with tf.control_dependencies([step]):
            return tf.identity(loss)

    def _get_gradients(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Run the subclass's ``compute_gradients`` on ``inputs``."""

        def gradients(*inputs: tf.Tensor) -> list[tf.Tensor]:
            return [gradient for gradient, _ in self.compute_gradients(*inputs)]

        return self._run("get_gradients", gradients, *inputs)

    def _observations(self, states) -> np.ndarray:
        return spaces.as_batch(self.observation_space, states, "states")[0]
