"""Random shifts of the images in minibatches: crops of padded images, and the numbers that decide where."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from ddpg import DDPG, DQN, Batch, DDPGConfig, DQNConfig, ReplayBuffer, UsageError
from ddpg.replay.random_shift import RandomShift
from ddpg.replay.sampling import Sampler


def images_of(shape, dtype=np.uint8):
    return gym.spaces.Box(0, 255, shape, dtype)


def batch_of(observations, next_observations):
    zeros = np.zeros((len(observations), 1), np.float32)
    return Batch(observations, zeros, zeros, next_observations, zeros)


def test_a_shifted_image_by_hand():
    """In s the crop begins two rows lower and one column farther to the left than the image, in s′ the other way."""
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 3, 3)
    batch = RandomShift(2, images_of((3, 3)))(batch_of(image.copy(), image.copy()), np.array([[[4, 1], [0, 3]]]))
    assert batch.observations.tolist() == [[[7, 7, 8]] * 3]
    assert batch.next_observations.tolist() == [[[2, 3, 3]] * 3]
    assert batch.observations.dtype == np.uint8
    unmoved = RandomShift(2, images_of((3, 3)))(batch_of(image.copy(), image.copy()), np.full((1, 2, 2), 2))
    np.testing.assert_array_equal(unmoved.observations, image)


LAYOUTS = {  # the shape of an observation, and its axes of height and width
    (5, 4): (0, 1),
    (5, 4, 3): (0, 1),
    (3, 5, 4): (1, 2),
    (4, 5, 4): (0, 1),  # not fewer frames than columns, so read as [height, width, channels], as by conv
    (2, 5, 4, 3): (1, 2),
}


@settings(max_examples=50)
@given(st.sampled_from([*LAYOUTS]), st.integers(1, 3), st.sampled_from([np.uint8, np.float32]), st.integers(0, 99))
def test_every_crop_is_a_crop_of_the_padded_image(shape, pixels, dtype, seed):
    """All frames and channels of an observation by the same shift; the largest shifts occur too."""
    rng, count, axes = np.random.default_rng(seed), 3, LAYOUTS[shape]
    before = [rng.integers(0, 256, (count, *shape)).astype(dtype) for _ in range(2)]
    shift = RandomShift(pixels, images_of(shape, dtype))
    corners = shift.draw(rng, count)
    assert corners.min() >= 0
    assert corners.max() <= 2 * pixels
    after = shift(batch_of(*(images.copy() for images in before)), corners)
    for which, shifted in enumerate((after.observations, after.next_observations)):
        assert shifted.dtype == dtype
        for image, found, corner in zip(before[which], shifted, corners[:, which], strict=True):
            padded = np.pad(image, [(pixels, pixels) if axis in axes else (0, 0) for axis in range(len(shape))], "edge")
            for axis, first in zip(axes, corner, strict=True):
                padded = padded.take(range(first, first + shape[axis]), axis=axis)
            np.testing.assert_array_equal(found, padded)


def test_all_shifts_are_equally_likely(rng):
    counts = np.bincount(RandomShift(2, images_of((4, 4))).draw(rng, 20_000).ravel(), minlength=5)
    np.testing.assert_allclose(counts / counts.sum(), 0.2, atol=0.01)


def sampler_of(n_steps=1, share=None, shift=1):
    """Return a sampler of 20 random images of 3 x 2, four of them recorded."""
    rng = np.random.default_rng(1)
    replay = ReplayBuffer(20, (3, 2), 1, np.uint8)
    images = rng.integers(0, 256, (21, 3, 2), dtype=np.uint8)
    for indices, part in (([-1] * 4, slice(0, 4)), ([0] * 16, slice(4, 20))):
        flags = np.zeros(len(indices), bool)
        following = images[1:][part]
        replay.add(images[part], rng.normal(size=(len(indices), 1)), flags, following, flags, flags, indices)
    space = images_of((3, 2))
    return Sampler(replay, n_steps, 0.5, None, None, share, None, RandomShift(shift, space) if shift else None)


@pytest.mark.parametrize("options", [{}, {"n_steps": 3}, {"share": 0.5}], ids=str)
def test_minibatches_do_not_depend_on_how_many_are_drawn_together(options):
    """The rows stay those that the numbers of the memory choose; images are crops of theirs, s and s′ by their own."""
    sampler, plain = sampler_of(**options), sampler_of(**options, shift=0)
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    together, rows = sampler.sample(one, 5, 4, 1.0)
    parts = [sampler.sample(other, count, 4, 1.0) for count in (2, 1, 2)]
    np.testing.assert_array_equal(rows, np.concatenate([part for _, part in parts]))
    for name, field in together.named().items():
        np.testing.assert_array_equal(field, np.concatenate([getattr(batch, name) for batch, _ in parts]))
    assert one.bit_generator.state == other.bit_generator.state
    unshifted = plain._replay.gather(rows, options.get("n_steps", 1), 0.5)
    same = {
        name: [(found == expected).all() for found, expected in zip(*pair, strict=True)]
        for name in ("observations", "next_observations")
        for pair in [[getattr(batch, name).reshape(-1, 3, 2) for batch in (together, unshifted)]]
    }
    assert 0 < sum(same["observations"]) < 10  # a ninth of them is not moved
    assert same["observations"] != same["next_observations"]
    np.testing.assert_array_equal(together.rewards, unshifted.rewards)


@pytest.mark.parametrize(
    ("shape", "pixels", "words"),
    [
        ((4,), 1, "random_shift=1 (4,) 0"),
        ((2, 2, 3, 4, 3), 1, "random_shift=1 (2, 2, 3, 4, 3) 0"),
        ((4, 17), 4, "random_shift=4 4 x 17"),  # four stacked vectors
        ((8, 8, 4), 8, "random_shift=8 8 x 8"),
        ((8, 9, 8), 8, "random_shift=8 8 x 9"),  # eight frames that are read as eight rows
    ],
)
def test_observations_that_are_no_images_are_refused(shape, pixels, words):
    for kind, config, space in (
        (DDPG, DDPGConfig, gym.spaces.Box(-1.0, 1.0, (1,), np.float32)),
        (DQN, DQNConfig, gym.spaces.Discrete(2)),
    ):
        with refuses(UsageError, words):
            kind((images_of(shape), space), config(random_shift=pixels))
