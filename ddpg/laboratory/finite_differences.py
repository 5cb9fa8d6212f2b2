"""Reference gradients: central differences in float64 at sampled coordinates.

They are independent of automatic differentiation: the networks are NumPy functions of their weights, and this module
implements y, ∇ₐQ and the boundings a second time.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError
from ddpg.laboratory.gradient_checks import cosine, finite_difference, relative
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.base import Network
from ddpg.networks.critic import CriticNetwork
from ddpg.policies.graph_to_numpy import UnsupportedOp, lower_to_numpy
from ddpg.replay.minibatch import Batch


def float64_function(network: Network) -> Callable:
    """Return ``function(weights, *inputs) -> output``, an actor or a critic computed in float64.

    The weights are the values of ``network.variables``, or of ``network.target_variables``, which give the target
    network; the inputs are ``[B, ...]``.

    Raises:
        UsageError: if the network has an op without a NumPy counterpart, or normalises over the batch, so that its
            outputs in training differ from those in acting.
    """
    with network.graph.as_default(), tf.name_scope("reference"):
        inputs = network.placeholders()
        output = network(*inputs)
    try:
        if len(network.variables) > len(network.trainable_variables):  # batch norm's moving statistics
            raise UnsupportedOp("batch normalisation")
        program, loaded = lower_to_numpy(output, inputs, network.variables)
    except UnsupportedOp:
        raise UsageError(
            f"the network of the {network.name} has ops without a NumPy counterpart (normalisation over the batch, "
            "pooling, custom activations); give it fully connected layers or convolutions with norm none, layer or rms "
            "and one of tflearn's activations"
        ) from None

    def function(weights, *inputs):
        program.load([weights[index] for index in loaded])
        return program(*inputs)

    return function


COORDINATES = 150

STEP = 1e-6

# If derivatives by two step sizes differ by more than this share of the largest one, there is a kink within a step.
SMOOTH = 1e-6

# (∇ₐQ [B, A], action [B, A], low [A], high [A]) -> [B, A]
BOUNDINGS: dict[str, Callable[..., np.ndarray]] = {
    "squashing": lambda g, a, low, high: g,
    "inverting": lambda g, a, low, high: g * np.where(g > 0, high - a, a - low) / (high - low),
    "zeroing": lambda g, a, low, high: g * ((a > low) & (a < high)),
}


class ReferenceGradient(NamedTuple):
    """A gradient at sampled coordinates.

    Attributes:
        coordinates: ``[(place of the variable in ``network.variables``, index into it flattened)]``.
        derivatives: float64, one for each coordinate.
        believable: False where a kink makes the central difference wrong.
    """

    coordinates: Sequence[tuple[int, int]]
    derivatives: np.ndarray
    believable: np.ndarray

    def against(self, gradients: Sequence[np.ndarray]) -> dict[str, Any]:
        """Compare ``gradients``, one array for each variable, at the believable coordinates."""
        found = np.array([gradients[which].reshape(-1)[index] for which, index in self.coordinates], np.float64)
        found, expected = found[self.believable], self.derivatives[self.believable]
        largest = np.abs(found - expected).max()
        return {
            "coordinates": len(expected),
            "dropped": int((~self.believable).sum()),
            "max_abs": float(largest),
            "max_relative": relative(float(largest), float(np.abs(expected).max())),
            "cosine": cosine(found, expected),
        }


def sample_coordinates(network: Network, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Sample about :data:`COORDINATES` coordinates, the same number from each trainable variable."""
    places = [place for place, variable in enumerate(network.variables) if variable.trainable]
    share = -(-COORDINATES // len(places))
    sizes = [(place, network.variables[place].shape.num_elements()) for place in places]
    return [(place, int(index)) for place, size in sizes for index in rng.choice(size, min(size, share), replace=False)]


def central_differences(
    loss: Callable[[list[np.ndarray]], float], weights: Sequence[np.ndarray], coordinates: Sequence[tuple[int, int]]
) -> ReferenceGradient:
    """Differentiate ``loss``, a function of a list of float64 arrays, with two step sizes to detect kinks."""
    wide, narrow = (finite_difference(loss, weights, coordinates, step) for step in (STEP, STEP / 2))
    return ReferenceGradient(coordinates, wide, np.abs(wide - narrow) <= SMOOTH * np.abs(wide).max())


class FiniteDifferences:
    """The float64 losses of one minibatch, and their derivatives.

    Args:
        actor: μ; its action box is used for y and for the boundings.
        critic: Q.
        weights: values of the networks' ``variables`` and ``target_variables``: "actor", "target_critic", ...
        batch: the minibatch.
        gamma: discount factor γ.
    """

    def __init__(self, actor: ActorNetwork, critic: CriticNetwork, weights: dict, batch: Batch, gamma: float):
        self._q = float64_function(critic)
        self._weights = {name: [array.astype(np.float64) for array in arrays] for name, arrays in weights.items()}
        self._batch = batch.map(lambda field: field.astype(np.float64))
        self._gamma = gamma
        self._low, self._high = (bound.astype(np.float64) for bound in (actor.low, actor.high))
        mu = float64_function(actor)
        self._next_actions = {
            name: np.clip(mu(self._weights[name], self._batch.next_observations), self._low, self._high)
            for name in ("actor", "target_actor")
        }

    def td(
        self,
        coordinates: Sequence[tuple[int, int]],
        online: bool,
        own_loss: Callable[[np.ndarray, np.ndarray], float] | None = None,
    ) -> ReferenceGradient:
        """Return the derivatives of L(φ) = 1/B Σ (Q(s, a; φ) − y)², or of another loss.

        Args:
            coordinates: in the critic's variables.
            online: y is computed by the online networks and varies with φ; otherwise it is constant.
            own_loss: ``(q, y) -> loss`` of float64 ``[B, 1]``, instead of the mean squared error.
        """
        batch, start = self._batch, self._weights["critic"]

        def bootstrap(name: str, weights: list) -> np.ndarray:
            next_q = self._q(weights, batch.next_observations, self._next_actions[name])
            return self._gamma * (1 - batch.terminated) * next_q

        fixed = None if online else bootstrap("target_actor", self._weights["target_critic"])

        def q_and_next(weights: list) -> tuple[np.ndarray, np.ndarray]:
            q = self._q(weights, batch.observations, batch.actions)
            return q, bootstrap("actor", weights) if fixed is None else fixed

        if own_loss is not None:

            def own(weights: list) -> float:
                q, following = q_and_next(weights)
                return own_loss(q, batch.rewards + following)

            return central_differences(own, start, coordinates)

        def difference(weights: list) -> np.ndarray:
            q, following = q_and_next(weights)
            return q - following

        here = difference(start)
        residual = here - batch.rewards

        def loss(weights: list) -> float:
            # The change of the loss, not as a difference of squares: rounding of large rewards would swamp it.
            moved = difference(weights) - here
            return np.mean(moved * (moved + 2 * residual))

        return central_differences(loss, start, coordinates)

    def policy(self, actor: ActorNetwork, bounding: str, coordinates: Sequence[tuple[int, int]]) -> ReferenceGradient:
        """Return the derivatives of −1/B Σ g·μ(s; θ), with g the bounded ∇ₐQ held constant.

        ``actor`` has that bounding's head and the weights "actor", in which the coordinates are.
        """
        mu, states = float64_function(actor), self._batch.observations
        actions = mu(self._weights["actor"], states)
        bounded = BOUNDINGS[bounding](self._action_gradient(states, actions), actions, self._low, self._high)

        def loss(weights: list) -> float:
            return -np.sum(bounded * mu(weights, states)) / len(states)

        return central_differences(loss, self._weights["actor"], coordinates)

    def _action_gradient(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return ∇ₐQ by central differences in every sample and dimension, ``[B, A]``."""

        def difference(step: float) -> np.ndarray:
            columns = []
            for column in np.eye(actions.shape[1]) * step:
                above, below = (self._q(self._weights["critic"], states, actions + c) for c in (column, -column))
                columns.append((above - below) / (2 * step))
            return np.concatenate(columns, axis=1)

        wide = difference(STEP)
        smooth = np.abs(wide - difference(STEP / 2)) <= SMOOTH * np.abs(wide).max()
        # Samples cannot be dropped, so at a kink a hundredth of the step is used, which very likely stays on one side.
        return np.where(smooth, wide, difference(STEP / 100))
