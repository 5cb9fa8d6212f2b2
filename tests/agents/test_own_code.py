"""An error in a user's function is one line with the option, the error, and the line in the user's file."""

import dataclasses
import functools
import inspect
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from refusals import lacking

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, train
from ddpg.errors import OwnCodeFault

SMALL = {"hidden": (4,), "batch_size": 4, "buffer_size": 100, "learning_starts": 4, "updates_per_call": 2}
SMALL |= {"optimizer": "sgd"}
NO_UPDATES = SMALL | {"updates_per_step": 1e-9}
AGENTS = {DDPGConfig: (DDPG, "Pendulum-v1"), DQNConfig: (DQN, "CartPole-v1")}
# Fields whose callables take something other than a tensor say so in their metadata; this list follows it.
# Slow: options of DQN that DDPG has, too.
SHARED = {field.name for field in dataclasses.fields(DDPGConfig)}
CASES = [
    pytest.param(config, option, id=f"{config.__name__}-{option}", marks=[pytest.mark.slow] * is_slow)
    for config in AGENTS
    for field in dataclasses.fields(config)
    for option, is_slow in [(field.name, config is DQNConfig and field.name in SHARED)]
    if field.metadata.get("arguments") or option in {"activation", "optimizer", "noise"}
]


def boom(*args):
    """A user's function with an error in its second line."""
    left = len(args)
    return 1 / (left - left)


LINE = inspect.getsourcelines(boom)[1] + 3
WHERE = f"ZeroDivisionError {Path(__file__).name} line {LINE}"


@pytest.mark.parametrize(("config", "option"), CASES)
def test_an_error_in_a_users_function_is_one_line(config, option):
    kind, env_id = AGENTS[config]
    with (
        pytest.raises(UsageError) as caught,
        kind(gym.make(env_id), config(**SMALL | {option: boom}), seed=0) as agent,
    ):
        agent.learn(20)
    message = str(caught.value)
    assert not lacking(message, f"boom failed {WHERE}")
    assert option in message or "schedule of the learning rate" in message
    assert "\n" not in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)  # the traceback is kept


class Noise:
    """Custom noise; the method ``fails`` raises."""

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
def test_an_error_in_a_method_of_custom_noise_is_one_line(method, tmp_path):
    config = DDPGConfig(**NO_UPDATES, noise=lambda shape: Noise(shape, method))

    def learn_save_load():
        with DDPG(gym.make("Pendulum-v1"), config, seed=0) as agent:
            saved = agent.learn(8).save(tmp_path / "saved")
        DDPG.load(saved, gym.make("Pendulum-v1"), config=config).learn(8)

    with pytest.raises(UsageError) as caught:
        learn_save_load()
    assert not lacking(str(caught.value), f"noise {method} failed {WHERE}")


@dataclasses.dataclass
class Checked:
    """Noise with a generated constructor that raises."""

    shape: tuple

    def __post_init__(self):
        boom()


class Inherited(Checked):
    """Noise with an inherited constructor."""


class Proxy:
    """A callable with any attribute."""

    def __getattr__(self, name):
        return Proxy()

    def __call__(self, *args):
        return boom()


FUNCTIONS = {
    "a dataclass": {"noise": Checked},
    "an inherited constructor": {"noise": Inherited},
    "a partial": {"learning_rate_schedule": functools.partial(boom)},
    "an object": {"learning_rate_schedule": Proxy()},
}


@pytest.mark.parametrize("options", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_line_is_found_in_any_kind_of_callable(options):
    with pytest.raises(UsageError) as caught, DDPG(gym.make("Pendulum-v1"), DDPGConfig(**SMALL, **options)) as agent:
        agent.learn(20)
    assert not lacking(str(caught.value), WHERE)


class Unprintable(Exception):
    def __str__(self):
        return "\x1b[31mred\x1b[0m"


def test_colour_codes_in_a_message_are_removed():
    def fails(left):
        raise Unprintable

    config = DDPGConfig(**SMALL, learning_rate_schedule=fails)
    with pytest.raises(UsageError) as caught, DDPG(gym.make("Pendulum-v1"), config) as agent:
        agent.learn(20)
    assert "Unprintable: red (" in str(caught.value)


class NotAnArray:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


class Locked(Noise):
    def __deepcopy__(self, memo):
        raise TypeError("cannot copy a lock")


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (lambda shape: Returns(shape, sample=NotAnArray()), "noise sample numbers RuntimeError"),
        (lambda shape: Returns(shape, state={"a": [[1.0], [1.0, 2.0]]}), "noise state arrays ValueError"),
        (lambda shape: Returns(shape, state={"a": NotAnArray()}), "noise state arrays RuntimeError"),
        (Locked((1, 1)), "copying noise Locked TypeError lock"),
    ],
    ids=["a sample", "a ragged state", "a state", "a copy"],
)
def test_noise_that_returns_no_array_is_a_one_line_error(noise, words):
    config = DDPGConfig(**NO_UPDATES, noise=noise)
    with pytest.raises(UsageError) as caught, DDPG(gym.make("Pendulum-v1"), config) as agent:
        agent.learn(20)
    assert not lacking(str(caught.value), words)


class Returns(Noise):
    """Noise that returns these values."""

    def __init__(self, shape, sample=None, state=None):
        super().__init__(shape)
        self.given = {"sample": np.zeros(shape) if sample is None else sample, "state": state or {}}

    def sample(self, rng):
        return self.given["sample"]

    def state(self):
        return self.given["state"]


class Later(Noise):
    """Noise that fails in its hundredth step."""

    steps = 0

    def sample(self, rng):
        Later.steps += 1
        return boom() if Later.steps == 100 else super().sample(rng)


def test_a_run_whose_noise_fails_is_saved_with_a_hint_to_resume(tmp_path):
    config = DDPGConfig(**NO_UPDATES, noise=Later)
    options = {"total_timesteps": 300, "evaluation_interval": 200, "evaluation_episodes": 1, "progress_bar": False}
    with pytest.raises(OwnCodeFault) as caught:
        train("Pendulum-v1", config, seed=0, root=tmp_path, **options)
    step = int(re.search(r"after step (\d+), seed 0", str(caught.value))[1])
    assert not lacking(str(caught.value), f"noise sample {WHERE} saved resume")
    assert (tmp_path / "Pendulum-v1" / "1" / "checkpoints" / str(step) / "manifest.json").exists()
