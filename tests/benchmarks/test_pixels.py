"""Learning from pictures with and without the options for images: the task, the table and its page."""

import numpy as np
import pytest

from benchmarks import pixels


def test_the_reward_is_the_distance_from_the_direction_of_the_needle_that_is_seen():
    env, down, right = pixels.Needle(), *np.mgrid[: pixels.SIDE, : pixels.SIDE]
    for seed in range(5):
        image, _ = env.reset(seed=seed)
        assert image.max() == 255
        direction = env._direction
        assert env.step(direction)[1] == pytest.approx(0, abs=1e-6)
        assert env.step(-direction)[1] == pytest.approx(-2)
        # From its middle, the needle reaches about 3 pixels along its direction and not as far across.
        seen = np.stack([right[image > 0], down[image > 0]], axis=1)
        offsets = seen - seen.mean(axis=0)
        along, across = np.abs(offsets @ direction), np.abs(offsets @ [-direction[1], direction[0]])
        assert across.max() < 2.5 < along.max() < 5


def test_a_table_of_means_with_the_return_of_each_seed():
    rows = [
        {"variant": variant, "seed": seed, "steps": steps, "return": f"-{seed}.5", "cpu_seconds": 10 * seed}
        for variant in pixels.VARIANTS
        for seed in (1, 2)
        for steps in (50, 100)
    ]
    heads, _, first, second, *_ = pixels.table(rows).splitlines()
    assert heads == "| options | 50 steps | 100 steps | CPU seconds |"
    assert first == "| neither | -2.00 (-1.50, -2.50) | -2.00 (-1.50, -2.50) | 15 |"
    assert second.startswith("| `random_shift=2` | ")


@pytest.mark.slow
@pytest.mark.parametrize("variant", pixels.VARIANTS)
def test_each_variant_learns_for_some_steps(variant, monkeypatch):
    monkeypatch.setattr(pixels, "EPISODES", 3)
    rows = pixels.run(variant, 0, 220)
    assert [row["steps"] for row in rows] == [110, 220]
    assert all(-3 < float(row["return"]) < 0 for row in rows)
