"""tf.train.ExponentialMovingAverage of variables and of tensors, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.networks.base import EMATarget

v1 = tf.compat.v1
DECAY = 0.9
FED = (4.0, 8.0, 8.0)

# shadow ← 0.9·shadow + 0.1·value, from 0: 0.4, 0.9·0.4 + 0.8, 0.9·1.16 + 0.8
FROM_ZERO = (0.4, 1.16, 1.844)
# divided by 1 − 0.9ⁿ: a mean of the fed values with weights that add up to 1
DEBIASED = (0.4 / 0.1, 1.16 / 0.19, 1.844 / 0.271)
# from the initial value 10, while the variable is set to the fed values: 0.9·10 + 0.4, ...
FROM_INITIAL = (9.4, 9.26, 9.134)


@pytest.fixture
def tensor(graph):
    return v1.placeholder(tf.float32, [], name="value")


@pytest.fixture
def variable(graph):
    return v1.get_variable("weight", initializer=10.0, use_resource=True)


def history(session, average, move, of, feeds):
    """Return the shadow's value after every move."""
    shadow = average.average(of)
    session.run(v1.global_variables_initializer())
    values = [session.run(shadow)]
    for feed in feeds:
        session.run(move, feed)
        values.append(session.run(shadow))
    return values


@pytest.mark.parametrize("zero_debias", [False, True])
def test_a_variables_shadow_starts_at_its_initial_value(session, variable, zero_debias):
    average = tf.train.ExponentialMovingAverage(DECAY, zero_debias=zero_debias)
    move = average.apply([variable])
    session.run(v1.global_variables_initializer())
    assert session.run(average.average(variable)) == 10.0
    for fed, expected in zip(FED, FROM_INITIAL, strict=True):
        session.run(variable.assign(fed))
        session.run(move)
        np.testing.assert_allclose(session.run(average.average(variable)), expected, rtol=1e-6)


@pytest.mark.parametrize(("zero_debias", "expected"), [(False, FROM_ZERO), (True, DEBIASED)])
def test_a_tensors_shadow_starts_at_zero_and_is_debiased_on_request(session, tensor, zero_debias, expected):
    average = tf.train.ExponentialMovingAverage(DECAY, zero_debias=zero_debias)
    move = average.apply([tensor])
    values = history(session, average, move, tensor, [{tensor: fed} for fed in FED])
    np.testing.assert_allclose(values, (0.0, *expected), rtol=1e-6)


def test_integers_are_not_averaged(session, variable):
    """0.9·10 + 0.1·4 = 9.4; the target reads the integer itself."""
    count = v1.get_variable("count", initializer=7, use_resource=True)
    target = EMATarget([count, variable], 0.1)
    assert target.variables[0] is count is target.shadow_of(count)
    session.run(v1.global_variables_initializer())
    session.run([variable.assign(4.0), count.assign(8)])
    session.run(target.update())
    assert session.run(target.variables) == [8, pytest.approx(9.4)]
    session.run(target.sync())
    assert session.run(target.variables) == [8, 4.0]


def test_a_targets_shadow_starts_as_tensorflows_does(session, graph):
    """At the variable's current value; before it is initialised, at its initial value."""
    drawn = v1.get_variable("drawn", initializer=tf.random.normal([3, 2]), use_resource=True)
    fixed = v1.get_variable("fixed", initializer=10.0, use_resource=True)
    target = EMATarget([drawn, fixed], 0.1)
    average = tf.train.ExponentialMovingAverage(0.9, name="theirs")
    average.apply([drawn, fixed])
    both = target.variables, [average.average(v) for v in (drawn, fixed)]
    for _, shadow in both:
        session.run(shadow.initializer)
        assert session.run(shadow) == 10.0
    session.run(v1.global_variables_initializer())
    value = session.run(drawn)
    for of in both:
        np.testing.assert_array_equal(session.run(of[0]), value)
        assert [shadow.shape for shadow in of] == [drawn.shape, fixed.shape]
        assert not any(shadow.trainable for shadow in of)
    session.run(fixed.assign(3.0))
    for of in both:
        session.run([shadow.initializer for shadow in of])
        np.testing.assert_array_equal(session.run(of[0]), value)
        assert session.run(of[1]) == 3.0
    names = [v.name for v in target.variables]
    assert names == ["drawn/ExponentialMovingAverage:0", "fixed/ExponentialMovingAverage:0"]
