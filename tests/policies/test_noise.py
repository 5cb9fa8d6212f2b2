"""Exploration noise has the documented scale, correlation in time and reset."""

from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg import DDPG, DDPGConfig, GaussianNoise, OrnsteinUhlenbeckNoise, UsageError
from ddpg.policies.noise import PERIOD, PinkNoise, RepeatedNoise


def series(noise, rng, steps=100_000):
    return np.array([noise.sample(rng)[0, 0] for _ in range(steps)])


def correlation_time(values):
    """Return the steps until the autocorrelation falls to 1/e, extrapolated from its value at lag 1."""
    values = values - values.mean()
    return -1 / np.log((values[1:] * values[:-1]).mean() / values.var())


def test_gaussian_is_white(rng):
    values = series(GaussianNoise(0.3, (1, 1)), rng)
    assert values.std() == pytest.approx(0.3, rel=0.02)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("dt", "steps", "time"), [(1.0, 100_000, 6.15), pytest.param(0.01, 400_000, 666, marks=pytest.mark.slow)]
)
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


def test_invalid_parameters_are_refused():
    with refuses(UsageError, "theta 0.15 dt 10"):
        OrnsteinUhlenbeckNoise(0.2, (1, 1), dt=10)
    for scale in (-0.1, np.nan):
        with refuses(UsageError, "noise scale"):
            GaussianNoise(scale, (1, 1))


def durations(values):
    """Return for how many steps each value lasts, without the last one, which is cut off."""
    starts = np.flatnonzero(np.diff(values) != 0) + 1
    return np.diff(np.concatenate([[0], starts]))


@pytest.mark.slow
def test_repeated_noise_has_the_specified_durations(rng):
    """A share n⁻² / (1 + 1/4 + ... + 1/16²) of the draws lasts n steps; each step has the scale of Gaussian noise."""
    noise = RepeatedNoise(0.5, (3, 2))
    samples = np.array([noise.sample(rng) for _ in range(60_000)])
    assert samples.shape == (60_000, 3, 2)
    assert samples.dtype == np.float32
    law = np.arange(1, 17) ** -2.0
    law /= law.sum()
    for env_id in range(3):
        run_lengths = durations(samples[:, env_id, 0])
        # All numbers of an action change together.
        np.testing.assert_array_equal(run_lengths, durations(samples[:, env_id, 1]))
        shares = np.bincount(run_lengths, minlength=17)[1:] / len(run_lengths)
        assert run_lengths.max() == 16
        np.testing.assert_allclose(shares, law, atol=0.012)
        assert samples[:, env_id].std() == pytest.approx(0.5, rel=0.04)
    assert abs(np.corrcoef(samples[:, 0, 0], samples[:, 1, 0])[0, 1]) < 0.05


def test_repeated_noise_by_hand():
    """P(1) = 0.631 and P(1) + P(2) = 0.789: a draw of 0.7 lasts 2 steps, 0.1 lasts 1, the largest draw 16."""
    rng = mock.Mock()
    rng.standard_normal.side_effect = [np.float32([[1.0]]), np.float32([[-2.0]]), np.float32([[3.0]])]
    rng.random.side_effect = [np.array([0.7]), np.array([0.1]), np.array([1 - 2**-53])]
    noise = RepeatedNoise(0.5, (1, 1))
    found = [noise.sample(rng).item() for _ in range(3 + 16)]
    assert found == [0.5, 0.5, -1.0, *[1.5] * 16]


def test_reset_draws_new_repeated_noise(rng):
    noise = RepeatedNoise(1.0, (2, 1))
    before = noise.sample(rng)
    noise._left[:] = 9
    noise.reset(1)
    after = noise.sample(rng)
    assert after[0] == before[0]
    assert after[1] != before[1]
    with refuses(UsageError, "index 2"):
        noise.reset(2)


@pytest.mark.parametrize(
    ("noise", "low", "high"), [("gaussian", -0.2, 0.2), ("repeated", 0.3, 0.8), ("pink", 0.3, 1.0)]
)
def test_an_agents_actions_have_the_correlation_of_its_noise(noise, low, high):
    """Correlates each action with the next one; the observation is constant."""
    box = gym.spaces.Box(-1, 1, (1,), np.float32)
    config = DDPGConfig(
        hidden=(4,), noise=noise, noise_scale=0.1, learning_starts=0, jit=False, optimizer="sgd", target="online"
    )
    agent = DDPG((box, box), config, seed=0)
    actions = np.array([agent.act(np.zeros((1, 1), np.float32))[0].item() for _ in range(300)])
    assert low < np.corrcoef(actions[1:], actions[:-1])[0, 1] < high
    repeated = (np.diff(actions) == 0).mean()  # exactly
    assert 0.3 < repeated < 0.8 if noise == "repeated" else repeated == 0


@pytest.mark.slow  # the next test has the law by hand
def test_the_power_of_pink_noise_is_inverse_to_the_frequency(rng):
    """Each step has the scale of Gaussian noise; numbers of an action, environments and sequences are independent."""
    noise = PinkNoise(0.5, (2, 3))
    sequences = []
    for _ in range(80):
        sequences.append(np.array([noise.sample(rng) for _ in range(PERIOD)]))
    samples = np.array(sequences)  # [80, PERIOD, 2, 3]
    assert samples.dtype == np.float32
    powers = (np.abs(np.fft.rfft(samples, axis=1)) ** 2).mean(axis=(0, 2, 3))
    frequencies = np.fft.rfftfreq(PERIOD)
    bands = [slice(1, 4), slice(4, 12), slice(12, 40), slice(40, 120), slice(120, 400), slice(400, 500)]
    means = np.array([(powers[band] * frequencies[band]).mean() for band in bands])
    np.testing.assert_allclose(means, means[0], rtol=0.2)
    assert powers[0] == pytest.approx(powers[1], rel=0.4)
    assert samples[:, 0].std() == pytest.approx(0.5, rel=0.12)
    assert samples[:, 700].std() == pytest.approx(0.5, rel=0.12)
    flat = samples.transpose(2, 3, 0, 1).reshape(6, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 0.2


def test_pink_noise_by_hand(monkeypatch):
    """Four steps: frequencies 0 (scaled as 1/4), 1/4 and 1/2 have amplitudes 2, 2 and √2.

    Their variances 8 + 16 + 4 = 28 give the factor 4 / √28.
    """
    monkeypatch.setattr("ddpg.policies.noise.PERIOD", 4)
    rng = mock.Mock()
    rng.standard_normal.side_effect = [np.array([[[1.0, 2.0, 3.0]], [[9.0, 5.0, 9.0]]])]
    noise = PinkNoise(10.0, (1, 1))
    found = [noise.sample(rng).item() for _ in range(4)]
    # Coefficients: 2√2, 4 + 10i, 6. A step is (first + 2 (real cos - imaginary sin) + last (-1)^t) / 4 times 4 / √28.
    first, last = 2 * np.sqrt(2), 6
    expected = np.array([first + 8 + last, first - 20 - last, first - 8 + last, first + 20 - last]) / np.sqrt(28)
    np.testing.assert_allclose(found, 10 * expected, rtol=1e-6)


def test_reset_draws_new_pink_noise(rng):
    noise = PinkNoise(1.0, (2, 1))
    for _ in range(5):
        noise.sample(rng)
    sequences = noise._noise.copy()
    noise.reset(1)
    noise.sample(rng)
    np.testing.assert_array_equal(noise._noise[0], sequences[0])
    assert (noise._noise[1] != sequences[1]).all()
    with refuses(UsageError, "index 2"):
        noise.reset(2)
