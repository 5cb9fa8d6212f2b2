"""A moving average of an actor's weights: the policy that evaluations and exports use, beside the actor that learns.

    θ̄ ← θ̄ + (θ − θ̄)/h      after each of the actor's steps

Single steps move weights back and forth; averaged over many steps this cancels (Polyak & Juditsky 1992).
"""

import numpy as np
import tensorflow as tf

from ddpg.interaction import spaces
from ddpg.networks.base import EMATarget, Network, NumericMethods


class AveragedActor:
    """The network of an actor on the moving averages of its variables. It is not trained, and learning never reads it.

    Moving statistics of batch norms are averaged too: the averaged layers normalise with statistics of their own time.

    Args:
        actor: the actor whose variables are averaged. The averages start as copies.
        horizon: h ≥ 1, in calls of :meth:`update`: each moves the averages by 1/h towards the actor.

    Attributes:
        graph: the actor's graph.
        observation_space: the actor's observation space.
    """

    def __init__(self, actor: Network, horizon: int):
        self._actor, self.graph, self.observation_space = actor, actor.graph, actor.observation_space
        self._average = EMATarget(actor.variables, 1 / horizon, name="average")
        self._run = NumericMethods(actor.graph, f"{actor.name}_average")

    @property
    def variables(self) -> list[tf.Variable]:
        """The averages, in the order of the actor's variables."""
        return list(self._average.variables)

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        """Return the averaged policy's actions, ``[B, A]``."""
        return self._actor.with_averages(self._average, [states])

    def update(self) -> tf.Operation:
        """Return the op that moves the averages by 1/h towards the actor."""
        return self._average.update()

    def predict(self, states) -> np.ndarray:
        """Return the averaged policy's actions, ``[B, A]``; states ``[B, *observation shape]`` or flat ``[B, n]``."""
        return self._run("predict", self.__call__, spaces.as_batch(self.observation_space, states, "states")[0])
