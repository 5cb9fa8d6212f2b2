"""The minimum cost of an update: operations of matrix products and bytes of passes, from sizes and options alone.

For a network with layers of n₀ → n₁ → … → n_L units and B rows, the forward pass costs F = 2B·Σ nₗ₋₁nₗ, the gradients
of the weights cost F, and the gradients passed between layers cost F without the first layer, since the gradients of
observations and of replayed actions are not needed. A layer of one unit is a sum, not a product, as in
:mod:`ddpg.compiler.ir`. So an update needs

- for y: a forward pass of the actor and of every critic on B rows of s′;
- for each critic: a forward pass on B rows of (s, a), the weights' gradients, and the gradients between layers;
- for the actor, in one of ``policy_delay`` updates: a forward pass, one critic's forward pass on (s, μ(s)), a backward
  pass through that critic without its weights' gradients and, in its first layer, for the action alone, and the actor's
  own backward pass.

A joint pass computes y's and the prediction's forward passes as one, of 2B rows. Its output layer has gradients in B
rows only; below it all 2B rows have gradients, through the batch's statistics.

Passes move at least the activations between products. Forward, an activation is read and written once; backward, two
numbers are read and one is written (one number less each before a layer of one unit). Statistics of a batch need the
whole batch before the first result: forward this reads one more number, backward two. Adam reads four numbers per
weight and writes three; the moving average of a target network reads and writes one more.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from ddpg.config.algorithm_options import RENORMS

FLOAT = 4  # bytes
ADAM, AVERAGE = 7, 2  # numbers that a step reads and writes per weight
FORWARD, BACKWARD = 2, 3  # numbers that a pass reads and writes per activation
STATISTICS = 1, 2  # further numbers per activation, forward and backward, with batch normalisation

Layer = tuple[int, int]  # inputs and outputs


@dataclasses.dataclass(frozen=True)
class Least:
    """The minimum cost of one update.

    Attributes:
        flop: operations of matrix products.
        pass_bytes: bytes that passes read and write.
    """

    flop: float
    pass_bytes: float


def least(config: Any, observations: int, actions: int) -> Least:
    """Return the minimum cost, averaged over updates with and without an actor's step.

    Args:
        config: options of DDPG or of a variant.
        observations, actions: their numbers of dimensions.
    """
    actor = layers((observations, *config.hidden, actions))
    outputs = 1 if config.critic == "scalar" else config.atoms
    critic = layers((observations, *config.hidden_of_critics, outputs), config.action_layer, actions)
    rows, count, delay = config.batch_size, config.n_critics, config.policy_delay
    joint = rows * (
        2 if config.joint_pass else 1
    )  # rows of a critic's pass; its output layer has gradients in B of them
    weights = rows * product_flop(critic[-1:]) + joint * product_flop(critic[:-1])
    entry = config.action_layer
    replayed = product_flop([(actions, critic[entry][1])]) if entry else 0  # the gradient of replayed actions
    between = weights - joint * (product_flop(critic[:1]) + replayed)
    of_y = rows * (product_flop(actor) + count * product_flop(critic))
    of_critics = count * (rows * product_flop(critic) + weights + between)
    to_action = product_flop([(actions, critic[entry][1]), *critic[entry + 1 :]])
    critic_forward = product_flop(critic) * (2 if config.bc_alpha else 1)  # TD3+BC divides by the mean of |Q(s, a)|
    of_actor = rows * (2 * product_flop(actor) + product_flop(actor[1:]) + critic_forward + to_action)
    return Least(of_y + of_critics + of_actor / delay, FLOAT * _numbers(config, actor, critic, joint))


def _numbers(config: Any, actor: Sequence[Layer], critic: Sequence[Layer], joint: int) -> float:
    """Return how many floats the passes read and write."""
    rows, count, delay = config.batch_size, config.n_critics, config.policy_delay
    units, critic_units = sum(config.hidden), sum(config.hidden_of_critics)
    # Q is summed in the pass that computes its layer's inputs.
    short = config.hidden_of_critics[-1] if critic[-1][1] == 1 else 0
    both, normalised = FORWARD + BACKWARD, sum(STATISTICS)  # for each unit
    of_critic = both * critic_units - 2 * short
    y = FORWARD * units + (count * (FORWARD * critic_units - short) if joint == rows else 0)
    critics = of_critic + normalised * critic_units * (config.norm_of_critics in RENORMS)
    trained = (both + normalised * (config.norm in RENORMS)) * units
    activations = rows * y + joint * count * critics + rows * (trained + of_critic) / delay
    averaged = AVERAGE * (config.target in ("ema", "joint_ema")) / delay
    steps = count * size(critic) * (ADAM + averaged) + size(actor) * (ADAM + AVERAGE * (config.target == "ema")) / delay
    return activations + steps


def layers(widths: Sequence[int], enters: int | None = None, more: int = 0) -> list[Layer]:
    """Return the inputs and outputs of each layer; ``more`` inputs are added to layer ``enters``."""
    pairs = enumerate(itertools.pairwise(widths))
    return [(inputs + more * (index == enters), outputs) for index, (inputs, outputs) in pairs]


def product_flop(network: Sequence[Layer]) -> int:
    """Return the operations of the products of one row with the layers' weights."""
    return sum(2 * inputs * outputs for inputs, outputs in network if outputs > 1)


def size(network: Sequence[Layer]) -> int:
    """Return the number of weights and biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in network)
