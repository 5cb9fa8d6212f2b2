"""Hidden layers, as callables ``(tensor[, action]) -> tensor`` that stack tflearn layers, and their normalisations.

Batch renormalisation (Ioffe 2017, arXiv 1702.03275) is implemented as CrossQ's critics use it.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg._tflearn import tflearn
from ddpg.config.algorithm_options import ACTIVATIONS, NORMS, RENORMS, AgentConfig
from ddpg.errors import UsageError, brief, choose
from ddpg.interaction.spaces import image_axes
from ddpg.interaction.validation import is_real, validate_choice, validate_float, validate_int
from ddpg.networks.observer import note_activation
from ddpg.networks.own_layers import shape_kept
from ddpg.networks.projections import note_affine

v1 = tf.compat.v1
AUTO_REUSE = v1.AUTO_REUSE
LARGEST_SIZE = 2**20  # units of a layer: the weights between two such layers would be 4 TiB

# CrossQ's constants of batch renormalisation.
R_MAX, D_MAX, DECAY, WARM_UP, EPSILON = 3.0, 5.0, 0.99, 100_000, 1e-3
R_MIN = 1 / R_MAX
SOFT = 1.0  # an epsilon: inputs are divided by √(σ² + 1), so large scales become 1 and small ones hardly change
_FROZEN = "statistics_stay"  # a graph collection; while it is not empty, moving statistics do not change


def fan_in_uniform(fan_in: int) -> Callable:
    """U(±1/√f) for a layer of ``f`` inputs (Lillicrap et al. 2015, section 7), weights and biases alike."""
    return v1.random_uniform_initializer(-(fan_in**-0.5), fan_in**-0.5)


def output_layer(features: tf.Tensor, units: int, output_init: str = "small") -> tf.Tensor:
    """Linear layer of ``units`` outputs for features ``[B, f]``.

    ``output_init``, of weights and biases: ``"small"``: U(±3e-3), outputs start near 0 (ibid.); ``"fan_in"``: U(±1/√f).
    """
    if output_init == "fan_in":
        initializer = fan_in_uniform(int(features.shape[-1]))
    else:
        initializer = v1.random_uniform_initializer(-3e-3, 3e-3)
    return _dense(features, units, "output", initializer, initializer)


def _dense(layer: tf.Tensor, units: int, scope: str, weights_init: Callable, bias_init: Callable) -> tf.Tensor:
    return tflearn.fully_connected(
        layer, units, weights_init=weights_init, bias_init=bias_init, scope=scope, reuse=AUTO_REUSE
    )


def _sizes(values: Sequence[int], what: str) -> tuple[int, ...]:
    """Return sizes as integers; raise UsageError if they are not whole numbers from 1 to :data:`LARGEST_SIZE`."""
    listed = isinstance(values, (list, tuple, range)) or (isinstance(values, np.ndarray) and values.ndim == 1)
    if not (
        listed
        and len(values) > 0
        and all(is_real(size) and 1 <= size <= LARGEST_SIZE and size == int(size) for size in values)
    ):
        raise UsageError(f"{what}={brief(values)} must name at least one layer, each of at least 1 unit")
    return tuple(int(size) for size in values)


def mlp(
    hidden: Sequence[int] = (256, 256),
    activation: str | Callable = "relu",
    norm: str | None = None,
    action_layer: int = 0,
) -> Callable[..., tf.Tensor]:
    """Return a network of fully connected hidden layers.

    Args:
        hidden: units per layer, e.g. ``(400, 300)``.
        activation: a tflearn activation's name (its ``gelu`` is the approximation by tanh), ``"silu"``, or a callable
            on tensors, such as ``tf.nn.gelu``.
        norm: ``None``; ``"batch"``: batch normalisation of the observation and of every layer before the action
            enters (Lillicrap et al. 2015, section 3), or of every hidden layer if no action enters or it enters
            with the observation; ``"layer"``: layer normalisation of every hidden layer; ``"rms"``: the same without
            subtracting the mean; ``"renorm"``: batch renormalisation of the inputs of each layer, including the
            output layer, as in CrossQ; ``"renorm_soft"``: the same, but components of the observation and the action
            are scaled down if they are large and never up, and training mode agrees with inference mode also for
            units that are rarely active; ``"renorm_preactivation"``: the observation, and an action that enters with
            it, as in ``"renorm_soft"``, and every hidden layer before its activation.
        action_layer: the layer whose input the action joins (critics only). 0: with the observation;
            1: the paper's critic.

    Returns:
        ``(states [B, ...][, actions [B, A]]) -> features [B, hidden[-1]]``. Observations of more than
        one dimension are flattened.

    Raises:
        UsageError: if a layer has no units, the norm or the activation is unknown, or there is no layer
            ``action_layer``.
    """
    hidden = _sizes(hidden, "hidden")
    if norm is not None and not (isinstance(norm, str) and norm in NORMS):
        raise UsageError(f"norm={brief(norm)} is not one of {(None, *NORMS)}")
    action_layer = validate_int(action_layer, "action_layer", at_least=0, at_most=len(hidden) - 1)
    activate = _activation(activation)
    preactivation = norm == "renorm_preactivation"
    r_min = R_MIN if norm == "renorm" else 0.0

    def network(states: tf.Tensor, actions: tf.Tensor | None = None) -> tf.Tensor:
        layer = _flat(states)
        batch_norm_until = len(hidden) if actions is None or action_layer == 0 else action_layer
        if norm == "batch":
            layer = batch_normalization(layer, scope="input_norm")
        for index, units in enumerate(hidden):
            if actions is not None and index == action_layer:
                layer = tf.concat([layer, actions], axis=1)
            if norm in RENORMS and not (preactivation and index > 0):
                epsilon = EPSILON if norm == "renorm" or index > 0 else SOFT
                scope = "input_norm" if preactivation else f"norm_{index}"
                layer = batch_renormalization(layer, scope=scope, epsilon=epsilon, r_min=r_min)
            initializer = fan_in_uniform(int(layer.shape[1]))
            layer = _dense(layer, units, f"hidden_{index}", initializer, initializer)
            if norm in _AFTER_LAYERS and (norm != "batch" or index < batch_norm_until):
                layer = _AFTER_LAYERS[norm](layer, scope=f"norm_{index}")
            elif preactivation:
                layer = batch_renormalization(layer, scope=f"norm_{index}", r_min=r_min)
            layer = activate(layer)
        if norm in RENORMS and not preactivation:
            layer = batch_renormalization(layer, scope="norm", r_min=r_min)
        return layer

    return network


EXPANSION = 4  # of the hidden layer in a residual block: SimBa's


def residual(
    hidden: Sequence[int] = (256, 256),
    activation: str | Callable = "relu",
    norm: str | None = None,
    action_layer: int = 0,
) -> Callable[..., tf.Tensor]:
    """Return a network of pre-normalised residual blocks (SimBa: Lee et al. 2024, arXiv 2410.09754, section 4).

        x ← W·[s, a] + b;  x ← x + W₂·relu(W₁·LN(x) + b₁) + b₂ for each block;  features = LN(x)

    The path from input to output through the sums is linear, which favours simple functions. W₁ has four times as many
    units as x. Weights are initialised as in SimBa: orthogonal, but with He's method in the blocks; biases are 0.

    Args:
        hidden: the width of x, repeated for each block: ``(256, 256)`` is one block.
        activation: as for :func:`mlp`, and so is the returned network.
        norm: must be ``None``: the blocks have layer normalisation already.
        action_layer: must be 0: the action enters with the observation.

    Raises:
        UsageError: if ``hidden`` has fewer than two numbers, or different ones, or if a norm, an action layer or an
            unknown activation is given.
    """
    width, *blocks = _sizes(hidden, "hidden")
    if not blocks or any(units != width for units in blocks):
        raise UsageError(
            f"hidden={tuple(hidden)} does not describe residual blocks: give their width, and it again for every "
            "block, such as (256, 256) for one"
        )
    if norm is not None or action_layer != 0:
        raise UsageError(
            f"block='residual' with norm={norm!r} and action_layer={action_layer}: its blocks have layer normalisation "
            "of their own and take the action with the observation; leave norm at none and action_layer at 0"
        )
    activate = _activation(activation)
    he, zeros = v1.variance_scaling_initializer(scale=2.0), v1.zeros_initializer()

    def network(states: tf.Tensor, actions: tf.Tensor | None = None) -> tf.Tensor:
        layer = _flat(states)
        if actions is not None:
            layer = tf.concat([layer, actions], axis=1)
        layer = _dense(layer, width, "embedding", v1.orthogonal_initializer(), zeros)
        for index in range(len(blocks)):
            inner = layer_normalization(layer, scope=f"norm_{index}")
            inner = activate(_dense(inner, EXPANSION * width, f"expansion_{index}", he, zeros))
            layer = layer + _dense(inner, width, f"projection_{index}", he, zeros)
        return layer_normalization(layer, scope="norm")

    return network


BLOCKS: dict[str, Callable[..., Callable[..., tf.Tensor]]] = {"plain": mlp, "residual": residual}


PADDINGS = "same", "valid"


@dataclasses.dataclass(frozen=True)
class ConvolutionalLayers:
    """The layers that :func:`conv` returns, in two parts: ``(states[, actions]) -> head(encoder(states)[, actions])``.

    Attributes:
        encoder: the convolutions, ``states [B, ...] -> [B, height, width, channels]``.
        head: the dense layers, ``([B, ...][, actions [B, A]]) -> features [B, f]``.
    """

    encoder: Callable[[tf.Tensor], tf.Tensor]
    head: Callable[..., tf.Tensor]

    def __call__(self, states: tf.Tensor, actions: tf.Tensor | None = None) -> tf.Tensor:
        """Return the features, ``[B, f]``; an action joins the flattened output of the convolutions."""
        return self.head(self.encoder(states), actions)


def conv(
    filters: Sequence[tuple[int, int, int]] = ((16, 3, 2), (32, 3, 2)),
    dense: Sequence[int] = (128,),
    activation: str | Callable = "relu",
    norm: str | None = None,
    scale: float = 1 / 255,
    block: str = "plain",
    padding: str = "same",
) -> ConvolutionalLayers:
    """Return a network of tflearn ``conv_2d`` layers followed by fully connected ones, for images.

    Args:
        filters: ``(channels, kernel size, stride)`` of each convolution.
        dense: units of the fully connected layers after the convolutions.
        activation: as for :func:`mlp`.
        norm: as for :func:`mlp`, for the fully connected layers; ``"batch"`` also normalises the convolutions (per
            channel), as do ``"layer"`` and ``"rms"`` (over the whole image).
        scale: factor for observations; 1/255 for bytes.
        block: kind of the fully connected layers, ``"plain"`` or ``"residual"``.
        padding: ``"same"``: zeros around images, so that a stride of 1 keeps their size; ``"valid"``: none, as in DQN's
            paper.

    Returns:
        ``(states [B, height, width[, channels]][, actions [B, A]]) -> features [B, dense[-1]]``; an action
        joins the flattened image features. Frames stacked along the first axis, ``[B, 4, 84, 84]`` or
        ``[B, 4, height, width, 3]``, and leading channels are moved to the last axis as channels.

    Raises:
        UsageError: if there is no convolution, a size or stride is below 1, the padding is unknown, or observations are
            not images.
    """
    listed = isinstance(filters, (list, tuple)) and len(filters) > 0
    if not listed or not all(isinstance(layer, (list, tuple)) and len(layer) == 3 for layer in filters):
        raise UsageError(
            f"filters={brief(filters)} must list (channels, kernel size, stride) of each convolution, all >= 1"
        )
    convolutions = [_sizes(layer, "filters") for layer in filters]
    validate_float(scale, "scale")
    validate_choice(padding, "padding", PADDINGS)
    activate = _activation(activation)
    head = choose("block", block, BLOCKS, "another", is_own=lambda value: False)(dense, activation, norm)

    def encoder(states: tf.Tensor) -> tf.Tensor:
        layer = scale * _images(states)
        for index, (channels, size, stride) in enumerate(convolutions):
            initializer = fan_in_uniform(size * size * int(layer.shape[-1]))
            layer = tflearn.conv_2d(
                layer,
                channels,
                size,
                strides=stride,
                padding=padding,
                weights_init=initializer,
                bias_init=initializer,
                scope=f"conv_{index}",
                reuse=AUTO_REUSE,
            )
            if norm in _AFTER_LAYERS:
                layer = _AFTER_LAYERS[norm](layer, scope=f"conv_norm_{index}")
            layer = activate(layer)
        return layer

    return ConvolutionalLayers(encoder, head)


def hidden_layers(
    config: AgentConfig, space: gym.spaces.Box, hidden: Sequence[int], norm: str | None, action_layer: int = 0
) -> Callable[..., tf.Tensor]:
    """Return the hidden layers that an agent's options describe, of the kind that its option ``network`` names.

    Images are multiplied by 1/255 if their numbers are from 0 to 255: those of dtype uint8 whatever their bounds,
    others if their upper bound is 255, and none that the agent normalises. ``space`` is that of observations; the other
    arguments are as for :func:`mlp`.
    """
    if config.network == "mlp":
        return BLOCKS[config.block](hidden, config.activation, norm, action_layer)
    of_bytes = not config.normalize_observations and (space.dtype == np.uint8 or space.high.max() == 255)
    return conv(
        dense=hidden, activation=config.activation, norm=norm, scale=1 / 255 if of_bytes else 1.0, block=config.block
    )


def _images(states: tf.Tensor) -> tf.Tensor:
    """Return images ``[B, height, width, channels]``; raise UsageError if they are not images, or stacks of them."""
    rank, shape = states.shape.rank, states.shape
    if rank == 3:
        return states[..., None]
    if rank == 4:
        return states if image_axes(shape.as_list()[1:]) == (0, 1) else tf.transpose(states, [0, 2, 3, 1])
    if rank == 5:  # stacked frames [B, frames, height, width, channels]
        return tf.reshape(tf.transpose(states, [0, 2, 3, 1, 4]), [-1, shape[2], shape[3], shape[1] * shape[4]])
    raise UsageError(
        f"conv layers need images [height, width] or [height, width, channels], or stacked frames of them, got "
        f"observations of shape {shape[1:]}; use mlp for vectors"
    )


def _flat(states: tf.Tensor) -> tf.Tensor:
    return tf.reshape(states, [-1, states.shape[1:].num_elements()]) if states.shape.rank != 2 else states


def _activation(activation: str | Callable) -> Callable:
    # tflearn has no silu.
    names = {name: getattr(tflearn.activations, name, None) or getattr(tf.nn, name) for name in ACTIVATIONS}
    chosen = choose("activation", activation, names, "a callable tensor -> tensor")
    if not isinstance(activation, str):
        chosen = shape_kept("activation", chosen)
    return lambda tensor: note_activation(chosen(tensor))


def batch_normalization(incoming: tf.Tensor, scope: str) -> tf.Tensor:
    """Normalise ``[B, ..., n]`` over all but the last axis (Ioffe & Szegedy 2015), with tflearn's layer."""
    outputs = tflearn.batch_normalization(incoming, scope=scope, reuse=AUTO_REUSE)
    note_affine(outputs.gamma, outputs.beta)
    return outputs


def layer_normalization(incoming: tf.Tensor, scope: str, epsilon: float = 1e-5) -> tf.Tensor:
    """Normalise each sample of ``[B, ..., n]`` over all its features (Ba, Kiros & Hinton 2016, eq. 4).

    tflearn has no such layer. Unlike batch normalisation it has no training mode and no moving statistics.
    """
    with v1.variable_scope(scope, reuse=AUTO_REUSE):
        size = [int(incoming.shape[-1])]
        gain = v1.get_variable("gamma", size, initializer=v1.ones_initializer())
        bias = v1.get_variable("beta", size, initializer=v1.zeros_initializer())
        note_affine(gain, bias)
        axes = list(range(1, incoming.shape.rank))
        centred = incoming - tf.reduce_mean(incoming, axis=axes, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=axes, keepdims=True)
        return centred * tf.math.rsqrt(variance + epsilon) * gain + bias


def rms_normalization(incoming: tf.Tensor, scope: str, epsilon: float = 1e-5) -> tf.Tensor:
    """Divide each sample of ``[B, ..., n]`` by its root mean square (Zhang & Sennrich 2019, arXiv 1910.07467, eq. 4).

        x / √(mean(x²) + ε) · g

    The mean is over all features of the sample. Unlike in layer normalisation, the mean is not subtracted and no offset
    is added, so x keeps its sign. g is learned, one per channel.
    """
    with v1.variable_scope(scope, reuse=AUTO_REUSE):
        size = [int(incoming.shape[-1])]
        gain = v1.get_variable("gamma", size, initializer=v1.ones_initializer())
        note_affine(gain)
        axes = list(range(1, incoming.shape.rank))
        mean_square = tf.reduce_mean(tf.square(incoming), axis=axes, keepdims=True)
        return incoming * tf.math.rsqrt(mean_square + epsilon) * gain


# Normalisations of a layer's output, by the option's name; batch renormalisation has places of its own.
_AFTER_LAYERS: dict[str | None, Callable[..., tf.Tensor]] = {
    "batch": batch_normalization,
    "layer": layer_normalization,
    "rms": rms_normalization,
}


@contextlib.contextmanager
def frozen_statistics() -> Iterator[None]:
    """Build layers that normalise by the batch's statistics in training mode, but do not move the averages."""
    collection = v1.get_default_graph().get_collection_ref(_FROZEN)
    collection.append(True)
    try:
        yield
    finally:
        collection.pop()


def batch_renormalization(
    incoming: tf.Tensor, scope: str, warm_up: int = WARM_UP, epsilon: float = EPSILON, r_min: float = R_MIN
) -> tf.Tensor:
    """Normalise ``[B, n]`` over the batch in training mode, by moving averages in inference mode.

        x̂ = (x − μ_B)/σ_B · r + d,   r = clip(σ_B/σ, r_min, 3),   d = clip((μ_B − μ)/σ, ±5)

    Returns γ·x̂ + β; in inference mode γ·(x − μ)/σ + β. r and d carry no gradient. They make both modes agree as long as
    the batch's statistics are near the averages μ and σ. During the first ``warm_up`` training steps, while the
    averages settle, r = 1 and d = 0, which is batch normalisation. For a unit that is rarely but strongly active, σ_B
    is much smaller than σ in nearly every batch; with ``r_min`` = 0 the modes agree for such a unit too.

    Unlike tflearn's layer, this one has a fixed mode when it is built, so that in inference mode it is an affine map
    that a NumPy program can compute.
    """
    with v1.variable_scope(scope, reuse=v1.AUTO_REUSE):
        size = [int(incoming.shape[-1])]
        zeros, ones = v1.zeros_initializer(), v1.ones_initializer()
        gain, bias = v1.get_variable("gamma", size, initializer=ones), v1.get_variable("beta", size, initializer=zeros)
        mean = v1.get_variable("moving_mean", size, initializer=zeros, trainable=False)
        variance = v1.get_variable("moving_variance", size, initializer=ones, trainable=False)
        steps = v1.get_variable("steps", [], initializer=zeros, trainable=False)
        note_affine(gain, bias)
    if not tf.get_static_value(tflearn.get_training_mode()):
        scale = gain * tf.math.rsqrt(tf.reshape(variance, [1, *size]) + epsilon)
        return (incoming - mean) * scale + bias
    batch_mean, batch_variance = tf.nn.moments(incoming, axes=[0])
    deviation, batch_deviation = tf.sqrt(variance + epsilon), tf.sqrt(batch_variance + epsilon)
    settled = tf.cast(steps >= warm_up, tf.float32)
    r = tf.clip_by_value(batch_deviation / deviation, r_min, R_MAX)
    d = tf.clip_by_value((batch_mean - mean) / deviation, -D_MAX, D_MAX)
    r, d = tf.stop_gradient(1 + settled * (r - 1)), tf.stop_gradient(settled * d)
    # γ·x̂ + β, with all per-column factors combined first, to compute and store less.
    scale, shift = gain * r / batch_deviation, gain * d + bias
    moved = []
    if not v1.get_default_graph().get_collection(_FROZEN):
        with tf.control_dependencies([r, d]):  # these read the averages before they move
            moved = [
                mean.assign_sub((1 - DECAY) * (mean - batch_mean), read_value=False),
                variance.assign_sub((1 - DECAY) * (variance - batch_variance), read_value=False),
                steps.assign_add(1.0, read_value=False),
            ]
    with tf.control_dependencies(moved):
        return (incoming - batch_mean) * scale + shift
