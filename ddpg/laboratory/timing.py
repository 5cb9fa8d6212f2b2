"""How long a gradient takes: by a session call, and in one compiled function."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ddpg.gradients.td import GradientsAndVariables

WARM_UP_CALLS = 2
TIMED_CALLS = 10


def milliseconds(session: tf.compat.v1.Session, fetches, feeds: dict) -> float:
    """Return the median duration of a session call. It must fetch: what nobody fetches is optimised away."""
    call = session.make_callable(fetches, feed_list=list(feeds))
    durations = []
    for _ in range(WARM_UP_CALLS + TIMED_CALLS):
        start = time.perf_counter()
        call(*feeds.values())
        durations.append(time.perf_counter() - start)
    return 1e3 * float(np.median(durations[WARM_UP_CALLS:]))


def compiled(compute: Callable[..., GradientsAndVariables], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients of ``compute(*inputs) -> [(gradient, variable)]``, compiled by XLA."""

    def gradients(*inputs: tf.Tensor) -> list[tf.Tensor]:
        return [gradient for gradient, _ in compute(*inputs)]

    return tf.function(gradients, jit_compile=True, autograph=False)(*inputs)
