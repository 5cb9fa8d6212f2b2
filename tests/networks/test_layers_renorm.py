"""Batch renormalisation, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg._tflearn import training_mode
from ddpg.networks.layers import batch_renormalization

v1 = tf.compat.v1


@pytest.mark.parametrize(("mean", "shift"), [(-9, -5), (-4, -4), (0, 0), (4, 4), (4.9, 4.9), (5.1, 5)])
def test_the_shift_is_clipped_at_five_deviations(session, mean, shift):
    """Averages of mean 0 and variance 1: a batch around ``mean`` is shifted by d, clipped at 5 deviations."""
    x = v1.placeholder(tf.float32, [2, 1])
    with training_mode(True):
        outputs = batch_renormalization(x, "norm", warm_up=0, epsilon=1e-9)
    session.run(v1.global_variables_initializer())
    found = session.run(outputs, {x: np.float32([[mean - 0.5], [mean + 0.5]])})
    assert found.mean() == pytest.approx(shift, abs=1e-5)
