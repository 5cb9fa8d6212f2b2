"""A user's own function that fails is one line, which names the option, the error and the line in the user's file."""

import dataclasses
import inspect
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from refusals import lacking

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError

SMALL = {"hidden": (4,), "batch_size": 4, "buffer_size": 100, "learning_starts": 4, "updates_per_call": 2}
AGENTS = {DDPGConfig: (DDPG, "Pendulum-v1"), DQNConfig: (DQN, "CartPole-v1")}
# Fields whose callables take other arguments than a tensor declare them, so that this list grows with them.
CASES = [
    (config, field.name)
    for config in AGENTS
    for field in dataclasses.fields(config)
    if field.metadata.get("arguments") or field.name in {"activation", "optimizer", "noise"}
]


def boom(*args):
    """The user's own function, wrong in its second line."""
    left = len(args)
    return 1 / (left - left)


LINE = inspect.getsourcelines(boom)[1] + 3
WHERE = f"ZeroDivisionError {Path(__file__).name} line {LINE}"


@pytest.mark.parametrize(("config", "option"), CASES, ids=[f"{config.__name__}-{option}" for config, option in CASES])
def test_an_error_in_ones_own_function_is_one_line(config, option):
    kind, env_id = AGENTS[config]
    with (
        pytest.raises(UsageError) as caught,
        kind(gym.make(env_id), config(**SMALL, **{option: boom}), seed=0) as agent,
    ):
        agent.learn(20)
    message = str(caught.value)
    assert not lacking(message, f"boom failed {WHERE}")
    assert option in message or "schedule of the learning rate" in message
    assert "\n" not in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)  # in Python the whole traceback is there


class Noise:
    """Noise of one's own whose method ``fails`` raises."""

    def __init__(self, shape, fails=""):
        self.shape, self.fails = shape, fails

    def sample(self, rng):
        return np.zeros(self.shape) if self.fails != "sample" else boom()

    def reset(self, index):
        return boom() if self.fails == "reset" else None

    def state(self):
        return {"count": np.zeros(1)} if self.fails != "state" else boom()

    def restore(self, arrays):
        return boom() if self.fails == "restore" else None


@pytest.mark.parametrize("method", ["sample", "reset", "state", "restore"])
def test_so_is_one_in_a_method_of_ones_own_noise(method, tmp_path):
    config = DDPGConfig(**SMALL, noise=lambda shape: Noise(shape, method))

    def learn_save_load():
        with DDPG(gym.make("Pendulum-v1"), config, seed=0) as agent:
            saved = agent.learn(8).save(tmp_path / "saved")
        DDPG.load(saved, gym.make("Pendulum-v1"), config=config).learn(8)

    with pytest.raises(UsageError) as caught:
        learn_save_load()
    assert not lacking(str(caught.value), f"noise {method} failed {WHERE}")
