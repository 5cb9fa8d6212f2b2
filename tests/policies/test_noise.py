"""Exploration noise: scale, correlation and dt."""

import numpy as np
import pytest
from refusals import refuses

from ddpg import GaussianNoise, OrnsteinUhlenbeckNoise, UsageError


def series(noise, rng, steps=100_000):
    return np.array([noise.sample(rng)[0, 0] for _ in range(steps)])


def correlation_time(values):
    """Steps until the autocorrelation has fallen to 1/e, from its value at lag 1."""
    values = values - values.mean()
    return -1 / np.log((values[1:] * values[:-1]).mean() / values.var())


def test_gaussian_is_white(rng):
    values = series(GaussianNoise(0.3, (1, 1)), rng)
    assert values.std() == pytest.approx(0.3, rel=0.02)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize(("dt", "steps", "time"), [(1.0, 100_000, 6.15), (0.01, 400_000, 666)])
def test_ou_correlation_time_follows_dt(dt, steps, time, rng):
    noise = OrnsteinUhlenbeckNoise(0.2, (1, 1), theta=0.15, dt=dt)
    values = series(noise, rng, steps)
    assert correlation_time(values) == pytest.approx(time, rel=0.2)
    expected = 0.2 / np.sqrt(2 * 0.15 - 0.15**2 * dt)
    assert values.std() == pytest.approx(expected, rel=0.15)


def test_ou_by_hand():
    class One:
        def standard_normal(self, shape, dtype):
            return np.ones(shape, dtype)

    noise = OrnsteinUhlenbeckNoise(0.2, (2, 1), theta=0.5, dt=0.25)
    np.testing.assert_allclose(noise.sample(One()), [[0.1], [0.1]])  # 0 + 0.2·√0.25
    np.testing.assert_allclose(noise.sample(One()), [[0.1875], [0.1875]])  # 0.1·(1 − 0.125) + 0.1
    noise.reset(0)
    np.testing.assert_allclose(noise.sample(One())[:, 0], [0.1, 0.1875 * 0.875 + 0.1])


def test_errors():
    with refuses(UsageError, "theta 0.15 dt 10"):
        OrnsteinUhlenbeckNoise(0.2, (1, 1), dt=10)
    for scale in (-0.1, np.nan):
        with refuses(UsageError, "noise scale"):
            GaussianNoise(scale, (1, 1))
