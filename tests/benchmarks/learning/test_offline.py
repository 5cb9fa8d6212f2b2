"""The benchmark of learning from data sets: collecting data, running methods, and the page's tables."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting

from benchmarks.learning import offline
from benchmarks.learning.offline import DATA, METHODS, Row, Setting

if "Collected-v0" not in gym.registry:
    gym.register("Collected-v0", lambda **_: Counting(7, truncate=True), disable_env_checker=True)


def test_episodes_are_collected_and_the_last_is_cut():
    arrays = offline.collect(Counting(3), lambda observation: np.array([1.0], np.float32), 8, seed=0)
    assert arrays["rewards"].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert arrays["terminations"].tolist() == [False, False, True, False, False, True, False, False]
    assert arrays["truncations"].tolist() == [False] * 7 + [True]
    np.testing.assert_array_equal(arrays["next_observations"][:2], arrays["observations"][1:3])
    assert arrays["next_observations"][2].tolist() == [0, 3]
    assert offline.mean_return(arrays) == pytest.approx((6 + 6 + 3) / 3)


@pytest.mark.slow
def test_a_small_study(tmp_path, monkeypatch):
    """Both methods on one data set; TD3+BC has returns after its updates and after fine-tuning."""
    small = {"hidden": (4,), "batch_size": 4, "jit": False, "n_critics": 1}
    setting = Setting(medium=5, expert=6, transitions=9, updates=8, steps=7, seeds=[0], changes=small)
    monkeypatch.setattr(offline, "EPISODES", 3)
    monkeypatch.setattr(offline, "RESULTS", tmp_path / "offline.csv")
    sets = {}
    for name in DATA:
        arrays = offline.collect(
            Counting(7, truncate=True), lambda _: np.array([0.5], np.float32), setting.transitions, seed=0
        )
        np.savez(tmp_path / f"{name}.npz", **arrays)
        sets[name] = tmp_path / f"{name}.npz", offline.mean_return(arrays)
    rows = []
    for method in METHODS:
        path, data_return = sets["expert"]
        rows += offline.cell("Collected-v0", setting, "expert", path, data_return, method, 0, tmp_path / "runs")
    assert [(row.method, row.timesteps) for row in rows] == [
        *(("behaviour cloning", 8), ("TD3+BC", 8), ("fine-tuned", 15), ("better", 15)),
    ]
    assert {row.mean_return for row in rows} == {28.0}
    (run,) = (tmp_path / "runs" / "Collected-v0").glob("1")
    with pytest.raises(SystemExit, match="9 timesteps"):
        offline.returns_of(run, 9, "Collected-v0", 0, ["latest"])
    offline.write(rows[::-1], tmp_path / "rows.csv")
    assert offline.read(tmp_path / "rows.csv") == rows
    assert offline.read(tmp_path / "none.csv") == []


def test_the_table_has_means_over_seeds():
    rows = [Row("Pendulum-v1", "medium", "TD3+BC", seed, 5, -10.0 * seed, -7.0) for seed in (1, 2, 3)]
    rows.append(Row("Pendulum-v1", "medium", "fine-tuned", 1, 6, -30.0, -7.0))
    *_, line = offline.table(rows).splitlines()
    assert line == "| Pendulum-v1 | medium | -7 | not run | -20 (-30 to -10), 3 seeds | -30, 1 seed | not run |"


def test_the_table_of_seeds_has_the_seeds_with_all_three_returns():

    returns = {"TD3+BC": -10.0, "fine-tuned": -30.0, "better": -10.5, "behaviour cloning": -1.0}
    rows = [Row("Pendulum-v1", "mixture", method, 7002, 5, value, -7.0) for method, value in returns.items()]
    rows.append(Row("Pendulum-v1", "mixture", "TD3+BC", 7003, 5, -1.0, -7.0))
    _, _, *lines = offline.seeds_table(rows).splitlines()
    assert lines == ["| Pendulum-v1 | mixture | 7002 | -10 | -30 | -10.5 |"]


def test_the_zoo_s_expert_acts_with_noise_within_the_bounds():
    space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
    act = offline._zoo_policy("Pendulum-v1", space, np.random.default_rng(0))
    state = np.array([1.0, 0.0, 0.0], np.float32)
    actions = np.array([act(state) for _ in range(200)])
    assert 0.1 < actions.std() < 0.3  # 0.1 half-ranges of 2
    extreme = np.array([-1.0, 0.0, 8.0], np.float32)
    assert all(space.contains(act(extreme)) for _ in range(50))


def test_no_run_is_committed_twice():
    keys = [(row.env_id, row.data, row.method, row.seed) for row in offline.read()]
    assert len({*keys}) == len(keys) > 0
