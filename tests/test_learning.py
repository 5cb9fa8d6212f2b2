"""Real training runs through the command line: ``pytest -m slow``."""

import json

import pytest

from ddpg.cli import main


def train_and_evaluate(env_id, seed, timesteps, tmp_path, capsys):
    arguments = ["--seed", str(seed), "--total-timesteps", str(timesteps), "--root", str(tmp_path)]
    assert main(["train", env_id, *arguments, "--json", "--no-progress-bar"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["evaluate", run, "--episodes", "100", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["mean_return"]


def test_pendulum_is_learned(tmp_path, capsys):
    """A first seed with every run of the tests; the other nine are slow."""
    assert train_and_evaluate("Pendulum-v1", 0, 10_000, tmp_path, capsys) >= -200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 10))
def test_pendulum_on_every_seed(seed, tmp_path, capsys):
    assert train_and_evaluate("Pendulum-v1", seed, 10_000, tmp_path, capsys) >= -200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_half_cheetah(seed, tmp_path, capsys):
    pytest.importorskip("mujoco")
    assert train_and_evaluate("HalfCheetah-v5", seed, 100_000, tmp_path, capsys) >= 4000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_inverted_double_pendulum(seed, tmp_path, capsys):
    pytest.importorskip("mujoco")
    assert train_and_evaluate("InvertedDoublePendulum-v5", seed, 50_000, tmp_path, capsys) >= 9000


@pytest.mark.slow
@pytest.mark.parametrize("td_target", ["stop_gradient", "output_delta"])
def test_cart_pole_on_four_of_five_seeds(td_target, tmp_path, capsys):
    returns = []
    for seed in range(5):
        arguments = ["--seed", str(seed), "--td-target", td_target, "--root", str(tmp_path)]
        assert main(["train", "CartPole-v1", *arguments, "--json", "--no-progress-bar"]) == 0
        run = json.loads(capsys.readouterr().out)["run"]
        assert main(["evaluate", run, "--episodes", "100", "--json"]) == 0
        returns.append(json.loads(capsys.readouterr().out)["mean_return"])
    assert sum(value >= 475 for value in returns) >= 4


@pytest.mark.slow
def test_platform(tmp_path, capsys):
    """PA-DDPG, the published baseline, returns 0.36 here."""
    returns = [train_and_evaluate("ddpg_envs/Platform-v0", seed, 50_000, tmp_path, capsys) for seed in range(5)]
    assert sum(returns) / 5 >= 0.36
