"""A session whose variables may be elsewhere for a while."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


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
