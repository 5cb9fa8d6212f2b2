"""Target networks: exponential moving averages of another network's variables.

    θ′ ← τθ + (1 − τ)θ′        (Lillicrap et al. 2015, Algorithm 1)

``tf.train.ExponentialMovingAverage`` keeps one shadow per variable, created as a copy of it, and moves
them with decay 1 − τ. The target network is the same builder run again under a custom getter that
answers each variable with its shadow: nothing is looked up by name or by position.
"""

from collections.abc import Callable

import tensorflow as tf

from ddpg.errors import UsageError


class Target:
    """The EMA shadows of ``variables`` and the ops that move them.

    Args:
        variables: **all** variables of the online network; moving statistics of batch norm too, or
            the target would normalise with the statistics it was born with.
        tau: the step τ in (0, 1] towards the online weights.

    Raises:
        UsageError: τ outside (0, 1].
    """

    def __init__(self, variables: list[tf.Variable], tau: float):
        if not 0 < tau <= 1:
            raise UsageError(f"tau={tau} must be in (0, 1]: the share of the online weights in each target update")
        self._online = list(variables)
        self._average = tf.train.ExponentialMovingAverage(decay=1 - tau)
        self._average.apply(self._online)
        self.variables = [self._average.average(variable) for variable in self._online]

    def shadow_getter(self, getter: Callable, *args, **kwargs):
        """Answer ``getter`` with the shadow: a ``custom_getter`` for ``variable_scope``."""
        return self._average.average(getter(*args, **kwargs))

    def shadow_of(self, variable: tf.Variable) -> tf.Variable:
        """Return a variable's shadow."""
        return self._average.average(variable)

    def update(self) -> tf.Operation:
        """Return the op that moves every shadow by τ; alone, so that its place in a step is explicit."""
        return self._average.apply(self._online)

    def sync(self) -> tf.Operation:
        """Return the op that copies every variable into its shadow: a hard update."""
        pairs = zip(self.variables, self._online, strict=True)
        return tf.group(*[shadow.assign(variable.read_value()) for shadow, variable in pairs])
