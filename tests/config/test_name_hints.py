"""Names from Stable-Baselines3 and similar packages: errors name the equivalent here, and shared names work."""

import dataclasses
import re

import gymnasium as gym
import numpy as np
import pytest
from agent_options import IDLE
from environments import Counting
from refusals import lacking, refuses

import ddpg
from ddpg import DDPG, DQN, CheckpointCallback, DDPGConfig, DQNConfig, EvalCallback, UsageError
from ddpg.config import name_hints
from ddpg.policies.noise import NOISES

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32))


@pytest.mark.parametrize("policy", name_hints.POLICIES)
@pytest.mark.parametrize("kind", [DDPG, DQN])
def test_a_policy_name_as_first_argument_is_refused(kind, policy):
    with refuses(UsageError, kind.__name__, f"{kind.__name__}Config("):
        kind(policy, Counting(3), verbose=1)


@pytest.mark.parametrize("name", sorted({*name_hints.OPTIONS} - {"env", "seed"}))
def test_foreign_constructor_keywords_name_the_equivalent(name):
    with pytest.raises(UsageError) as caught:
        DDPG(SPACES, **{name: None})
    assert name_hints.OPTIONS[name] in str(caught.value)
    with pytest.raises(UsageError) as caught:
        DDPGConfig(**{name: None})
    assert name_hints.OPTIONS[name] in str(caught.value)


@pytest.mark.parametrize("name", ["env", "seed"])
def test_arguments_of_the_agent_are_not_options(name):
    with refuses(UsageError, "DDPG(env, config"):
        DDPGConfig(**{name: 1})


@pytest.mark.parametrize("config", [DDPGConfig, DQNConfig])
def test_advised_options_exist_and_existing_options_have_no_hint(config):
    fields = {field.name for field in dataclasses.fields(DDPGConfig)} | {f.name for f in dataclasses.fields(DQNConfig)}
    advised = {"max_grad_norm": "max_gradient_norm", "train_freq": "updates_per_step", "action_noise": "noise_scale"}
    assert all(name in name_hints.OPTIONS[key] and name in fields for key, name in advised.items())
    assert {*name_hints.OPTIONS} & {field.name for field in dataclasses.fields(config)} <= {"learning_rate"}


def test_options_passed_to_the_agent_are_refused():
    with refuses(UsageError, "ddpg.DDPGConfig(batch_size=64)"):
        DDPG(SPACES, batch_size=64)
    with refuses(UsageError, "ddpg.DQNConfig(learning_rate=0.1)"):
        DQN(SPACES, learning_rate=0.1)
    assert DQNConfig(learning_rate=0.1).learning_rate == 0.1


def test_misspelt_keywords_name_the_nearest_one():
    with refuses(UsageError, "actor_networks 'actor_network'"):
        DDPG(SPACES, actor_networks=None)
    with refuses(UsageError, "DDPGConfig gama 'gamma'"):
        DDPGConfig(gama=0.9)


@pytest.fixture(scope="module")
def agent():
    return DDPG(Counting(3), DDPGConfig(**IDLE), seed=0)


@pytest.mark.parametrize("name", [*name_hints.LEARN, "progress"])
def test_foreign_keywords_of_learn_name_the_equivalent(agent, name):
    expected = name_hints.LEARN.get(name, "did you mean 'progress_bar'")
    with pytest.raises(UsageError) as caught:
        agent.learn(1, **{name: None})
    assert expected in str(caught.value)
    assert agent.num_timesteps == 0


@pytest.mark.parametrize("name", name_hints.EVAL_CALLBACK)
def test_foreign_keywords_of_eval_callback_name_the_equivalent(name):
    with pytest.raises(UsageError) as caught:
        EvalCallback(Counting(3), **{name: None})
    assert name_hints.EVAL_CALLBACK[name] in str(caught.value)


def test_a_misspelt_keyword_of_eval_callback_names_the_right_one():
    for name in ("n_eval_episodes", "eval_freq", "best_model_save_path", "deterministic", "seed"):
        with refuses(UsageError, f"'{name}'"):
            EvalCallback(Counting(3), **{f"{name}s": None})


@pytest.mark.parametrize("name", name_hints.CHECKPOINT_CALLBACK)
def test_foreign_keywords_of_checkpoint_callback_name_the_equivalent(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        CheckpointCallback(5, tmp_path, **{name: None})
    assert name_hints.CHECKPOINT_CALLBACK[name] in str(caught.value)


def test_predict_takes_the_arguments_of_stable_baselines3(agent):
    observation, _ = Counting(3).reset()
    action, state = agent.predict(observation, deterministic=True)
    assert state is None
    assert agent.action_space.contains(action)
    np.testing.assert_array_equal(agent.predict(observation, None, None, True)[0], action)


def test_attributes_of_other_packages_agents_name_the_equivalent(agent):
    """Neither agent has such an attribute, and every hint names one that DDPG or DQN has."""
    agents = agent, DQN(gym.make("CartPole-v1"), DQNConfig(hidden=(4,), jit=False, optimizer="sgd"), seed=0)
    for name, hint in name_hints.ATTRIBUTES.items():
        for one in agents:
            assert not hasattr(one, name)
            with pytest.raises(AttributeError) as caught:
                getattr(one, name)
            assert not lacking(str(caught.value), f"{type(one).__name__} {name}")
            first = re.match(r"use agent\.(\w+)", hint)
            exists = first is None or hasattr(one, first[1])
            assert str(caught.value).endswith(hint) is exists, "advised only where it exists"
        for path in re.findall(r"agent\.([\w.]+)|\b(\w+)\(", hint):
            names = "".join(path).split(".")
            assert names == ["CSVCallback"] or any(_has(one, names) for one in agents), hint


def _has(value, names):
    return not names or (hasattr(value, names[0]) and _has(getattr(value, names[0]), names[1:]))


@pytest.mark.parametrize("name", name_hints.IMPORTS)
def test_imports_of_other_packages_names_show_the_equivalent(name):
    """``from ddpg import`` shows the hint, and everything that the hint names exists."""
    assert name not in ddpg.__all__
    with pytest.raises(ImportError) as caught:
        exec(f"from ddpg import {name}")
    hint = name_hints.IMPORTS[name]
    assert str(caught.value) == f"ddpg has no {name}: {hint}"
    fields = {field.name for kind in (DDPGConfig, DQNConfig) for field in dataclasses.fields(kind)}
    assert {*re.findall(r"options? (\w+)", hint), *re.findall(r"(\w+)=", hint)} <= fields | {"num_envs"}
    assert all(hasattr(ddpg, used) for used in re.findall(r"ddpg\.(\w+)", hint))


def test_an_option_of_the_other_algorithm_is_named_as_such():
    with refuses(UsageError, "DQNConfig 'n_critics': DDPGConfig"):
        DQNConfig(n_critics=2)
    with refuses(UsageError, "DDPGConfig 'double_q': DQNConfig"):
        DDPGConfig().replace(double_q=True)


def test_a_number_instead_of_a_list_is_refused_with_the_list():
    with refuses(UsageError, "hidden=256 hidden=(256,) --hidden 256 [256]"):
        DDPGConfig(hidden=256)


def test_the_hint_for_action_noise_lists_every_noise():
    assert all(f"'{kind}'" in name_hints.OPTIONS["action_noise"] for kind in NOISES)


def test_a_misspelt_attribute_raises_pythons_usual_error(agent):
    with pytest.raises(AttributeError, match=r"^'DDPG' object has no attribute 'pedict'$"):
        agent.pedict  # noqa: B018


def test_an_attribute_error_inside_a_property_is_not_hidden():
    class Mine(DDPG):
        @property
        def share(self):
            return self.memory.nothing

    with (
        Mine(SPACES, DDPGConfig(hidden=(4,), jit=False, optimizer="sgd"), seed=0) as mine,
        pytest.raises(AttributeError, match="nothing"),
    ):
        mine.share  # noqa: B018
