"""A session whose variables may be elsewhere for a while."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def assign(run: Callable[..., Any], variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Set variables, in as few calls of a session's ``run`` as that takes: mostly one.

    A variable's initialiser assigns its second input: feeding that sets any value, without new ops. Variables that
    were made from one tensor have it in common, and are set one after the other.
    """
    left = list(zip(variables, values, strict=True))
    while left:
        feeds: dict[Any, np.ndarray] = {}
        operations, later = [], []
        for variable, value in left:
            initial = variable.initializer.inputs[1]
            if initial.ref() in feeds:
                later.append((variable, value))
            else:
                feeds[initial.ref()] = value
                operations.append(variable.initializer)
        run(operations, {initial.deref(): value for initial, value in feeds.items()})
        left = later


class LendingSession(tf.compat.v1.Session):
    """A session that asks for its variables back before it runs anything.

    A learner that updates weights in memory of its own sets :attr:`reclaim`; whoever uses the session finds them
    there as if they had never left.

    Attributes:
        reclaim: called before anything runs; must put the variables back, by :meth:`run_as_is`.
    """

    reclaim: Callable[[], None] | None = None

    def __init__(self) -> None:
        config = v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True))
        # TensorFlow would rewrite the graph anew for whatever is fetched first: seconds, for what is compiled anyway.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        super().__init__(config=config)

    def run(self, *arguments: Any, **options: Any) -> Any:
        """See ``tf.compat.v1.Session.run``."""
        if self.reclaim:
            self.reclaim()
        return super().run(*arguments, **options)

    def run_as_is(self, *arguments: Any, **options: Any) -> Any:
        """Run with the variables that are here now."""
        return super().run(*arguments, **options)

    def make_callable(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See ``tf.compat.v1.Session.make_callable``."""
        call = super().make_callable(*arguments, **options)

        def reclaiming(*values: Any, **more: Any) -> Any:
            if self.reclaim:
                self.reclaim()
            return call(*values, **more)

        return reclaiming
