"""The base class of all networks, with variables, EMA target network, optimiser and numeric methods.

    θ′ ← τθ + (1 − τ)θ′        (Lillicrap et al. 2015, Algorithm 1)

``tf.train.ExponentialMovingAverage`` keeps one shadow per variable, created as a copy of it, and moves the
shadows with decay 1 − τ. The same function builds the target network under a custom getter that replaces each
variable by its shadow, so nothing is looked up by name or by position.
"""

import abc
import contextlib
import functools
import inspect
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import gymnasium as gym
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.training import slot_creator

from ddpg._tflearn import training_mode
from ddpg.config.algorithm_options import OUTPUT_INITS
from ddpg.errors import UsageError, brief, choose, own_code
from ddpg.gradients.td import GradientsAndVariables, dense
from ddpg.interaction import spaces
from ddpg.interaction.validation import (
    check_finite,
    is_real,
    validate_bool,
    validate_choice,
    validate_float,
    validate_numeric,
    validate_positive,
)
from ddpg.networks.created import CreatedVariables
from ddpg.networks.layers import frozen_statistics, mlp, output_layer
from ddpg.networks.observer import note_features, note_gradients, observing
from ddpg.networks.own_layers import own_layers
from ddpg.networks.projections import Projection, projected_after, unit_weights

v1 = tf.compat.v1


class Averages(tf.train.ExponentialMovingAverage):
    """TensorFlow's averages, whose shadows are made in half the time."""

    def create(self, variable: tf.Variable) -> None:
        """Make the variable's shadow with the variable's value, or its initial value if it is uninitialised.

        :meth:`apply` makes the same shadow, but traces a function for each case; here a switch runs one of two ops.
        """
        with tf.init_scope(), tf.device(variable.device):
            initialized = v1.is_variable_initialized(variable)
            pivot = tf.identity(tf.raw_ops.Switch(data=initialized, pred=initialized).output_true)
            with tf.control_dependencies([pivot]):
                now = variable.read_value()
            first = tf.raw_ops.Switch(data=variable.initial_value, pred=initialized).output_false
            value = tf.raw_ops.Merge(inputs=[first, now]).output
            value.set_shape(variable.shape)
            self._averages[variable.ref()] = slot_creator.create_slot(variable, value, self.name)


class EMATarget:
    """The EMA shadows of ``variables`` and the ops that move them.

    Args:
        variables: **all** variables of the online network, including the moving statistics of batch norm; otherwise
            the target would keep normalising with its initial statistics. Integers are read directly, not averaged.
        tau: the step τ in (0, 1] towards the online weights, else a UsageError is raised.
        name: the last part of the shadows' names.
    """

    def __init__(self, variables: list[tf.Variable], tau: float, name: str = "ExponentialMovingAverage"):
        if not (is_real(tau) and 0 < tau <= 1):
            raise UsageError(
                f"tau={brief(tau)} must be in (0, 1]: the share of the online weights in each target update"
            )
        self._online = [variable for variable in variables if variable.dtype.is_floating]
        self._average = Averages(decay=1 - tau, name=name)
        for variable in self._online:
            self._average.create(variable)
        self.variables = [self.shadow_of(variable) for variable in variables]

    def shadow_getter(self, getter: Callable, *args, **kwargs):
        """Return the shadow of the variable that ``getter`` finds: a ``custom_getter`` for ``variable_scope``."""
        return self.shadow_of(getter(*args, **kwargs))

    def shadow_of(self, variable: tf.Variable) -> tf.Variable:
        """Return a variable's shadow; the variable itself if it holds integers."""
        return self._average.average(variable) if variable.dtype.is_floating else variable

    def update(self) -> tf.Operation:
        """Return the op that moves every shadow by τ; separate, so that its place in an update is explicit."""
        return self._average.apply(self._online)

    def sync(self) -> tf.Operation:
        """Return the op that copies every variable into its shadow: a hard update."""
        return tf.group(*[self.shadow_of(variable).assign(variable.read_value()) for variable in self._online])


_BUILDING = threading.RLock()  # a graph's scopes belong to no thread, so two threads must not build ops at once


class NumericMethods:
    """Runs the numeric methods of one network, in any thread; the ops of each are built at its first call."""

    def __init__(self, graph: tf.Graph, owner: str):
        self._graph, self._owner = graph, owner
        self._built: dict[str, tuple[list[tf.Tensor], Any]] = {}

    def __call__(self, name: str, function: Callable, *arrays: np.ndarray) -> Any:
        """Run ``function(*placeholders)`` on ``arrays``; its ops are built at the first call of ``name``.

        Raises:
            UsageError: if there is no default session, or it runs another graph.
        """
        session = v1.get_default_session()
        if session is None:
            raise UsageError(
                f"no default session for the numeric methods of the {self._owner}; call them inside "
                "`with tf.compat.v1.Session().as_default():`, after global_variables_initializer(); those of an agent "
                "inside `with agent.session.as_default():`"
            )
        if session.graph is not self._graph:
            raise UsageError(
                f"the default session runs another graph than the one the {self._owner} was built in; an agent's "
                "networks need `with agent.session.as_default():`"
            )
        with _BUILDING:
            if name not in self._built:
                self._built[name] = self._build(name, function, arrays)
            inputs, fetches = self._built[name]
        return session.run(fetches, dict(zip(inputs, arrays, strict=True)))

    def _build(self, name: str, function: Callable, arrays: Sequence[np.ndarray]) -> tuple[list[tf.Tensor], Any]:
        scope = v1.name_scope(f"{self._owner}_numeric/{name}/")
        # Without the caller's control dependencies: later calls would have to feed what this one waits for.
        with self._graph.as_default(), tf.control_dependencies(None), scope:
            # The first axis has no fixed length, because calls can have batches of different lengths.
            shapes = [[None, *array.shape[1:]] if array.ndim else [] for array in arrays]
            inputs = [v1.placeholder(array.dtype, shape) for array, shape in zip(arrays, shapes, strict=True)]
            return inputs, function(*inputs)


train = tf.compat.v1.train

OPTIMIZERS: dict[str, Callable] = {
    "adam": train.AdamOptimizer,
    "rmsprop": train.RMSPropOptimizer,
    "sgd": train.GradientDescentOptimizer,
    "momentum": partial(train.MomentumOptimizer, momentum=0.9),
}


class AdamW(tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, Algorithm 2): θ ← θ − α·(m̂ / (√v̂ + ε) + λθ).

    Weights of layers decay; biases and gains of norms, the variables of rank 1, do not.
    """

    def __init__(self, learning_rate: tf.Variable, weight_decay: float, **options: Any):
        super().__init__(learning_rate, **options)
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        if var.shape.rank < 2:
            return super()._resource_apply_dense(grad, var)
        with tf.control_dependencies([grad]):  # compute the gradient at the weights before the decay
            decay = self._lr_t * self._weight_decay * var.read_value()
            decayed = var.assign_sub(decay, read_value=False)
        with tf.control_dependencies([decayed]):
            return super()._resource_apply_dense(grad, var)


def optimizer_of(config: Any) -> str | Callable:
    """Return the optimiser that an agent's options describe: ``optimizer``, or Adam with Adam's own options."""
    if config.weight_decay:
        return partial(AdamW, weight_decay=config.weight_decay, beta1=config.adam_beta1)
    return config.optimizer if config.adam_beta1 == 0.9 else partial(train.AdamOptimizer, beta1=config.adam_beta1)


def make_optimizer(optimizer: str | Callable, learning_rate: tf.Variable) -> tf.compat.v1.train.Optimizer:
    """Return an optimiser, given by name or as a class of TensorFlow's; raise UsageError for anything else."""
    own = "a tf.compat.v1.train.Optimizer class"
    chosen = choose("optimizer", optimizer, OPTIMIZERS, own)
    if not (inspect.isclass(chosen) and not issubclass(chosen, train.Optimizer)):
        with own_code(f"optimizer={brief(optimizer)}, which should be {own}, on the learning rate", chosen):
            made = chosen(learning_rate)
        if isinstance(made, train.Optimizer):
            return made
    raise UsageError(f"optimizer={brief(optimizer)} makes no tf.compat.v1.train.Optimizer; give such a class")


_SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./-]{0,199}")
Creating = contextlib.AbstractContextManager[None]
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _new_scope(name: str) -> tf.compat.v1.VariableScope:
    """Return a variable scope under the current one that has no variables yet.

    TensorFlow counts names anew when a scope is entered again, and so would hand out one that is taken.
    """
    while True:
        with v1.variable_scope(None, default_name=name, use_resource=True) as scope:
            scope.set_partitioner(None)  # layers and optimisers need whole variables
        if not any(variable.name.startswith(f"{scope.name}/") for variable in v1.global_variables()):
            return scope


def hooked(method: _Method) -> _Method:
    """Run a symbolic method through ``network.hook``, if there is one, so that the laboratory can record its tensors.

    The hook gets the method's name, a call, and its arguments; it returns the call's result, or a replacement.
    """

    @functools.wraps(method)
    def call(self: "Network", *arguments: Any, **options: Any) -> Any:
        if self.hook is None:
            return method(self, *arguments, **options)
        return self.hook(method.__name__, functools.partial(method, self, **options), *arguments)

    return cast(_Method, call)


class Network(abc.ABC):
    """A network applied as often as needed on one set of variables, with an EMA target.

    Subclasses implement :meth:`_apply` and define their inputs. Variables, EMA shadows and optimiser slots are
    all created here, in the default graph, so that one initialiser covers them and later applications, even in
    a compiled function, create none.

    Attributes:
        hook: a function through which :func:`hooked` methods run; ``None``: they run directly.
        scope: the name of the network's variable scope, unique in its graph.
        target_average: the averages that are the target network's variables.
    """

    hook: Callable[..., Any] | None = None

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
        weight_projection: bool = False,
        affine_projection: bool = False,
    ):
        self.observation_space = spaces.check_observation_space(observation_space)
        learning_rate = validate_positive(learning_rate, "learning_rate")
        if not (isinstance(name, str) and _SCOPE.fullmatch(name)):
            raise UsageError(f"name={brief(name)} must be the name of a variable scope: letters, digits and _.-/")
        if tf.executing_eagerly():
            raise UsageError(
                f"the {name} was built in eager mode, where its gradients would have no graph to flow through; build "
                "it inside `with tf.Graph().as_default():`"
            )
        if network is not None and not callable(network):
            raise UsageError(
                f"network={brief(network)} of the {name} must be a callable on tensors, such as ddpg.mlp()"
            )
        self.max_gradient_norm = validate_positive(max_gradient_norm, "max_gradient_norm", or_none=True)
        self.graph = v1.get_default_graph()
        self.name = name
        self._network = own_layers("network", network) or mlp()
        self._output_init = validate_choice(output_init, "output_init", OUTPUT_INITS)
        weight_projection = validate_bool(weight_projection, "weight_projection")
        affine_projection = validate_bool(affine_projection, "affine_projection")
        self._run = NumericMethods(self.graph, name)
        self._variables: list[tf.Variable] = []
        self._hidden_variables: list[tf.Variable] | None = None
        self._created = CreatedVariables(name)
        self._scope = _new_scope(name)
        self.scope = str(self._scope.name)
        recorded = self._created.recorded(self.scope, self._variables.append)
        with observing() as built:
            self._applying(self._record, recorded, self._first_inputs(), False)
        if not self.trainable_variables:
            raise UsageError(f"the network of the {name} created no trainable variable; it could not learn")
        if affine_projection and not built.norms:
            raise UsageError(
                f"affine_projection: the {name} has no normalisation layer with a trained gain; give it one, such as "
                "ddpg.mlp(norm='layer'), or leave affine_projection off"
            )
        self._projections: list[Projection] = unit_weights(self._hidden_variables or ()) if weight_projection else []
        self._projections += built.norms if affine_projection else []
        self.target_average = EMATarget(self._variables, tau)
        with v1.variable_scope(self._scope, use_resource=True):
            self.learning_rate = v1.get_variable("learning_rate", initializer=float(learning_rate), trainable=False)
        self.optimizer = make_optimizer(optimizer, self.learning_rate)
        # The first application of gradients makes the slots; making them here puts them in the initialiser.
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
        return [variable for variable in self._variables if variable.trainable and variable.dtype.is_floating]

    @property
    def target_variables(self) -> list[tf.Variable]:
        """The EMA shadows, in the order of :attr:`variables`; a variable of integers stands for itself."""
        return list(self.target_average.variables)

    def apply_gradients(self, grads_and_vars: Sequence[tuple[tf.Tensor, tf.Variable]]) -> tf.Operation:
        """Return the op of one optimiser step down ``[(gradient, variable)]``.

        If the norm of all gradients together exceeds ``max_gradient_norm``, they are scaled down to it (Pascanu,
        Mikolov & Bengio 2013, Algorithm 1). After the step, ``weight_projection`` projects the hidden layers' weights,
        and ``affine_projection`` the gains and offsets of their norms.
        """
        self._check_graph()
        # Sparse gradients, of tf.gather, would be left out of weight decay and of most compiled updates.
        grads_and_vars = [(dense(gradient), variable) for gradient, variable in grads_and_vars]
        note_gradients(self.scope, [gradient for gradient, _ in grads_and_vars])
        if self.max_gradient_norm is not None:
            gradients, variables = zip(*grads_and_vars, strict=True)
            gradients, _ = tf.clip_by_global_norm(gradients, self.max_gradient_norm)
            grads_and_vars = list(zip(gradients, variables, strict=True))
        step = self.optimizer.apply_gradients(grads_and_vars)
        return projected_after(step, self._projections) if self._projections else step

    @property
    def acting_variables(self) -> list[tf.Variable]:
        """The variables that the network's output depends on."""
        return self.variables

    def with_averages(
        self, average: EMATarget, inputs: Sequence[tf.Tensor], training: bool = False, part: Callable | None = None
    ) -> tf.Tensor:
        """Return the network's output for ``inputs``, with each variable replaced by its average.

        In inference mode batch norms normalise with the averaged statistics, in training mode with the batch's. Neither
        moves the averaged statistics. With ``part``, a function on tensors that builds some of the layers, only these
        are applied.
        """
        with frozen_statistics():
            creating = self._created.again(average.shadow_of)
            return self._applying(average.shadow_getter, creating, inputs, training, part)

    def target_update(self) -> tf.Operation:
        """Return the op that moves the target by τ towards the online network."""
        self._check_graph()
        return self.target_average.update()

    def target_sync(self) -> tf.Operation:
        """Return the op that copies the online network into the target."""
        self._check_graph()
        return self.target_average.sync()

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
        """Set the trainable variables, in creation order. The target network does not change.

        Raises:
            UsageError: if the number of arrays or a shape is wrong, or a number is NaN. Then no variable is set.
        """
        variables = self.trainable_variables
        if not isinstance(arrays, (list, tuple)):
            raise UsageError(f"arrays={brief(arrays)} must be a list of arrays, one for each trainable variable")
        if len(arrays) != len(variables):
            raise UsageError(f"{len(arrays)} arrays given for the {len(variables)} trainable variables of {self.name}")
        given = zip(arrays, variables, strict=True)
        arrays = [validate_numeric(array, v.name) for array, v in given]
        for array, variable in zip(arrays, variables, strict=True):
            if array.shape != tuple(variable.shape):
                raise UsageError(f"{variable.name} has shape {tuple(variable.shape)}, the array given {array.shape}")
            check_finite(array, variable.name)
        arrays = [array.astype(v.dtype.as_numpy_dtype) for array, v in zip(arrays, variables, strict=True)]

        def assign(*values: tf.Tensor) -> tf.Operation:
            return tf.group(*[v.assign(value) for v, value in zip(variables, values, strict=True)])

        self._run("set_network_params", assign, *arrays)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the optimiser's learning rate from the next step on.

        Raises:
            UsageError: if it is not a finite number ≥ 0.
        """
        rate = validate_float(learning_rate, "learning_rate", at_least=0)

        def assign(value: tf.Tensor) -> tf.Operation:
            return self.learning_rate.assign(value[0])

        self._run("set_learning_rate", assign, np.asarray([rate], np.float32))

    # -- for subclasses -------------------------------------------------------------------------------

    @abc.abstractmethod
    def _apply(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Build the network on ``inputs``: ``self._network``'s hidden layers and an output layer."""

    def _output(self, features: tf.Tensor, units: int) -> tf.Tensor:
        """Return the output layer of ``features``; variables that exist before it belong to the hidden layers."""
        if self._hidden_variables is None:
            self._hidden_variables = list(self._variables)
        note_features(features)
        return output_layer(features, units, self._output_init)

    def placeholders(self) -> list[tf.Tensor]:
        """Return fresh placeholders for the inputs of :meth:`_apply`: the states, unless a subclass adds to them."""
        return [v1.placeholder(tf.float32, [None, *self.observation_space.shape], name="states")]

    def _first_inputs(self) -> list[tf.Tensor]:
        """Return inputs of :meth:`_apply`, on which the network is built for the first time."""
        return self.placeholders()

    def _online(self, inputs: Sequence[tf.Tensor], training: bool, part: Callable | None = None) -> tf.Tensor:
        return self._applying(self._known_only, self._created.again(lambda first: first), inputs, training, part)

    def _of_target(self, inputs: Sequence[tf.Tensor], training: bool = False) -> tf.Tensor:
        return self.with_averages(self.target_average, inputs, training)

    def _applying(
        self,
        getter: Callable,
        creating: Creating,
        inputs: Sequence[tf.Tensor],
        training: bool,
        part: Callable | None = None,
    ) -> tf.Tensor:
        self._check_graph()
        by_name = functools.partial(self._created.found_by_name, getter)
        scope = v1.variable_scope(self._scope, reuse=v1.AUTO_REUSE, custom_getter=by_name)
        with scope, training_mode(training), creating:
            return (part or self._apply)(*inputs)

    def _check_graph(self) -> None:
        """Refuse to build ops in eager mode or outside the network's graph, where its variables are not."""
        graph = v1.get_default_graph()
        while isinstance(graph, FuncGraph):  # of a tf.function, or the body of a loop
            graph = graph.outer_graph
        if tf.executing_eagerly() or graph is not self.graph:
            raise UsageError(
                f"ops of the {self.name} are built outside the graph that has its variables; build them inside "
                "`with network.graph.as_default():`, for an agent's `with agent.graph.as_default():`"
            )

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
        """Apply ``gradients``; return ``loss``, which is computed before the step and ready only after it."""
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
