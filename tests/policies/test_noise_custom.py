"""Custom noise is an object or a function that creates one; checkpoints hold its state, and mistakes are refused."""

import functools

import numpy as np
import pytest
from agent_options import TINY
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, OrnsteinUhlenbeckNoise, UsageError
from ddpg.checkpoints import checkpoint
from ddpg.policies.noise import make_noise

CONFIG = DDPGConfig(**TINY, learning_starts=0, updates_per_call=10_000)


class Counted:
    """The noise is 0.001 times its number of samples, plus 0.1 times the step of the episode."""

    def __init__(self, shape):
        self.total, self.steps = np.zeros(shape), np.zeros(shape)

    def sample(self, rng):
        self.total += 1
        self.steps += 1
        return 0.001 * self.total + 0.1 * self.steps

    def reset(self, index):
        self.steps[index] = 0

    def state(self):
        return {"total": self.total.copy()}

    def restore(self, arrays):
        self.total = arrays["total"].copy()


def noise(agent, steps):
    """Return the noise in the stored actions of the last ``steps`` steps."""
    stored = agent.replay.arrays()
    policy = (agent.predict(stored["observations"])[0] - 1) / 3  # the box is [-2, 4]
    return (stored["actions"] - policy)[-steps:, 0]


def expected(first, length, steps):
    count = np.arange(first, first + steps)
    return 0.001 * (count + 1) + 0.1 * (count % length + 1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An agent whose noise a function creates, after 8 steps in episodes of 4, and its checkpoint."""
    agent = DDPG(Counting(4), CONFIG.replace(noise=Counted), seed=0).learn(8)
    return agent, agent.save(tmp_path_factory.mktemp("noise") / "checkpoint")


def test_noise_is_reset_with_episodes_and_keeps_its_other_state(saved):
    agent, _ = saved
    np.testing.assert_allclose(noise(agent, 8), expected(0, 4, 8), atol=1e-6)


def test_a_checkpoint_holds_the_state_and_no_code(saved):
    _, path = saved
    with refuses(UsageError, "noise Counted"):
        DDPG.load(path, Counting(4))
    loaded = DDPG.load(path, Counting(4), config=CONFIG.replace(noise=Counted))
    np.testing.assert_allclose(noise(loaded.learn(4), 4), expected(8, 4, 4), atol=1e-6)


def test_a_loaded_state_is_saved_again_without_being_used(saved, tmp_path):
    again = DDPG.load(saved[1], config=CONFIG.replace(noise=Counted)).save(tmp_path / "again")
    assert checkpoint.read(again)[1]["noise"]["total"].tolist() == [[8.0]]


def test_noise_that_cannot_restore_its_state_is_refused(saved):
    class Forgetful:
        def __init__(self, shape):
            self.shape = shape

        def sample(self, rng):
            return np.zeros(self.shape)

        def reset(self, index):
            pass

    with refuses(UsageError, "restore total"):
        DDPG.load(saved[1], Counting(4), config=CONFIG.replace(noise=Forgetful)).learn(1)


def test_an_object_is_copied_for_each_agent_and_samples_for_all_environments():
    given = Counted((2, 1))
    env = SyncVectorEnv(
        [lambda length=length: Counting(length) for length in (100, 2)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    agent = DDPG(env, CONFIG.replace(noise=given), seed=0).learn(8)
    both = noise(agent, 8).reshape(4, 2)
    np.testing.assert_allclose(both[:, 0], expected(0, 100, 4), atol=1e-6)
    np.testing.assert_allclose(both[:, 1], expected(0, 2, 4), atol=1e-6)
    assert not given.total.any()


def test_the_packages_classes_can_be_passed_as_functions():
    created = make_noise(functools.partial(OrnsteinUhlenbeckNoise, 0.2, theta=0.5), 0, 0, 0, (1, 2))
    reference = OrnsteinUhlenbeckNoise(0.2, (1, 2), theta=0.5)
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(3):
        np.testing.assert_array_equal(created.sample(one), reference.sample(other))


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (lambda rng: np.zeros(2), "(2,) (1, 2)"),
        (lambda rng: np.full((1, 2), np.nan), "finite"),
        (lambda rng: "loud", "numbers"),
    ],
)
def test_samples_are_checked(sample, message):
    class Custom:
        reset = print

    custom = Custom()
    custom.sample = sample
    with refuses(UsageError, message):
        make_noise(custom, 0, 0, 0, (1, 2)).sample(np.random.default_rng(0))


def test_the_state_of_parameter_noise_is_not_restored_into_custom_noise(tmp_path):
    """A run with parameter_noise continues with custom noise: σ is neither passed to it nor saved again."""
    saved = DDPG(Counting(4), CONFIG.replace(parameter_noise=0.2), seed=0).learn(8).save(tmp_path / "saved")
    loaded = DDPG.load(saved, Counting(4), config=CONFIG.replace(noise=Counted))
    assert loaded.behaviour.state().keys() == {"total"}
    assert loaded.learn(8).behaviour.state().keys() == {"total"}


def test_a_reserved_name_in_the_state_is_refused():
    class Custom(Counted):
        def state(self):
            return {"parameter_noise": self.total}

    with refuses(UsageError, "parameter_noise"):
        make_noise(Custom, 0, 0, 0, (1, 1)).state()


@pytest.mark.parametrize(("given", "lacks"), [(object(), "sample"), (lambda shape: None, "sample")])
def test_an_object_without_the_methods_is_refused_at_once(given, lacks):
    with refuses(UsageError, lacks):
        make_noise(given, 0, 0, 0, (1, 1))


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"state": lambda self: {"scale": 0.3}}, "state restore"),
        ({"restore": lambda self, arrays: None}, "state restore"),
        ({"state": lambda self: [0.3], "restore": Counted.restore}, "state 0.3"),
        ({"state": lambda self: {"warm": True}, "restore": Counted.restore}, "warm=True float64"),
        ({"state": lambda self: {"n": np.array([np.nan])}, "restore": Counted.restore}, "n= nan finite"),
        ({"state": lambda self: {"name": "pink"}, "restore": Counted.restore}, "name= pink"),
    ],
)
def test_a_state_that_no_checkpoint_can_hold_is_refused_before_learning(methods, words):
    plain = {"sample": lambda self, rng: np.zeros((1, 1)), "reset": lambda self, index: None}
    with refuses(UsageError, f"noise {words}"):
        make_noise(type("Custom", (), plain | methods)(), 0, 0, 0, (1, 1))
