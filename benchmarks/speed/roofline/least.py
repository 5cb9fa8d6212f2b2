"""The least that an update needs: matrix products and bytes of passes, by formulas of the sizes and options alone.

Of a network with layers of n₀ → n₁ → … → n_L units, B rows cost F = 2B·Σ nₗ₋₁nₗ in the forward pass, as much for the
gradients of the weights, and F less its first layer for the gradients of what lies between the layers: nobody reads
the gradient of an observation, or of a replayed action. Layers of one unit are no products, here as in
:mod:`ddpg.compiler.ir`. So an update needs

- y: the actor and every critic forward on B rows of s′;
- each critic: forward, weights, and between the layers, on B rows of (s, a);
- the actor, in one of ``policy_delay`` updates: forward, one critic forward on (s, μ(s)), back through that critic
  without its weights' gradients and in its first layer to the action alone, and the actor's own backward pass.

A joint pass makes y's and the prediction's forward passes in one of 2B rows. Its output layer has a gradient in B rows
alone; through the batch's statistics all 2B rows have one below.

Passes move at least what lies between products, each number once a pass: an activation is read and written forward, and
two numbers are read and one written backward (one number less each before a layer of one unit). Statistics of a batch
need all of it before the first result: one more reading forward, and one of two numbers backward. Adam reads four
numbers a weight and writes three; a target network's average reads and writes one more.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from ddpg.config.algorithm_options import RENORMS

FLOAT = 4  # bytes
ADAM, AVERAGE = 7, 2  # numbers that a step reads and writes for each weight
FORWARD, BACKWARD = 2, 3  # numbers that a pass over an activation reads and writes
STATISTICS = 1, 2  # further numbers of it, forward and backward, where a batch is normalised

Layer = tuple[int, int]  # inputs and outputs


@dataclasses.dataclass(frozen=True)
class Least:
    """Of one update.

    Attributes:
        flop: of matrix products.
        pass_bytes: that passes read and write.
    """

    flop: float
    pass_bytes: float


def least(config: Any, observations: int, actions: int) -> Least:
    """Return what an update needs in the mean over updates, of which every ``policy_delay``-th has an actor's step.

    Args:
        config: options of DDPG or of a variant.
        observations, actions: numbers in one.
    """
    actor = layers((observations, *config.hidden, actions))
    outputs = 1 if config.critic == "scalar" else config.atoms
    critic = layers((observations, *config.hidden, outputs), config.action_layer, actions)
    rows, count, delay = config.batch_size, config.n_critics, config.policy_delay
    joint = rows * (2 if config.joint_pass else 1)  # rows of a critic's pass; above its output layer gradients are of B
    weights = rows * product(critic[-1:]) + joint * product(critic[:-1])
    entry = config.action_layer
    replayed = product([(actions, critic[entry][1])]) if entry else 0  # the gradient of replayed actions
    between = weights - joint * (product(critic[:1]) + replayed)
    of_y = rows * (product(actor) + count * product(critic))
    of_critics = count * (rows * product(critic) + weights + between)
    to_action = product([(actions, critic[entry][1]), *critic[entry + 1 :]])
    asked = product(critic) * (2 if config.bc_alpha else 1)  # TD3+BC divides by the mean of |Q(s, a)|
    of_actor = rows * (2 * product(actor) + product(actor[1:]) + asked + to_action)
    return Least(of_y + of_critics + of_actor / delay, FLOAT * _numbers(config, actor, critic, joint))


def _numbers(config: Any, actor: Sequence[Layer], critic: Sequence[Layer], joint: int) -> float:
    """Return how many numbers the passes read and write."""
    rows, count, delay, units = config.batch_size, config.n_critics, config.policy_delay, sum(config.hidden)
    short = config.hidden[-1] if critic[-1][1] == 1 else 0  # Q is summed up where its layer's inputs are computed
    both = (FORWARD + BACKWARD) * units
    of_critic = both - 2 * short
    normalised = sum(STATISTICS) * units
    y = FORWARD * units + (count * (FORWARD * units - short) if joint == rows else 0)
    critics = of_critic + normalised * (config.norm_of_critics in RENORMS)
    trained = both + normalised * (config.norm in RENORMS)
    activations = rows * y + joint * count * critics + rows * (trained + of_critic) / delay
    averaged = AVERAGE * (config.target in ("ema", "joint_ema")) / delay
    steps = count * size(critic) * (ADAM + averaged) + size(actor) * (ADAM + AVERAGE * (config.target == "ema")) / delay
    return activations + steps


def layers(widths: Sequence[int], enters: int | None = None, more: int = 0) -> list[Layer]:
    """Return inputs and outputs of each layer; ``more`` inputs enter with layer ``enters``."""
    pairs = enumerate(itertools.pairwise(widths))
    return [(inputs + more * (index == enters), outputs) for index, (inputs, outputs) in pairs]


def product(of: Sequence[Layer]) -> int:
    """Return the operations of one row's products with these layers' weights."""
    return sum(2 * inputs * outputs for inputs, outputs in of if outputs > 1)


def size(of: Sequence[Layer]) -> int:
    """Return the number of weights and biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in of)
