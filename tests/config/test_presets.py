"""Recipes: options under a name, in the place of a preset."""

import pytest
from refusals import refuses

from ddpg import DDPGConfig, UsageError
from ddpg.algorithms.crossq import CrossQUpdate
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.registry import update_of
from ddpg.algorithms.td3 import TD3Update
from ddpg.algorithms.td3_bc import TD3BCUpdate
from ddpg.cli.train import Train
from ddpg.config.options import from_toml
from ddpg.config.presets import RECIPES, read_recipe

# What makes each what it is, from its paper: not from the file.
OF_THE_PAPER = {
    "ddpg": {"hidden": (256, 256), "noise": "gaussian", "bounding": "squashing"},
    "lillicrap2015": {
        **{"hidden": (400, 300), "action_layer": 1, "norm": "batch", "critic_l2": 0.01, "tau": 0.001},
        **{"actor_learning_rate": 1e-4, "critic_learning_rate": 1e-3, "batch_size": 64},
        **{"noise": "ornstein_uhlenbeck", "noise_theta": 0.15, "noise_scale": 0.2},
    },
    "hausknecht2016": {"hidden": (1024, 512, 256, 128), "bounding": "inverting", "batch_size": 32},
    "td3": {"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2, "target_noise_clip": 0.5},
    "td3_bc": {"bc_alpha": 2.5, "normalize_observations": True, "n_critics": 2, "policy_delay": 2, "batch_size": 256},
    "plus": {"n_critics": 2, "target": "none", "norm": "renorm_soft", "adam_beta1": 0.5, "critic": "categorical"},
}
UPDATES = {"td3": TD3Update, "td3_bc": TD3BCUpdate, "plus": CrossQUpdate}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_an_agents_options(name):
    values = from_toml(DDPGConfig, read_recipe(name), name)
    config = DDPGConfig(**values)
    for option, value in (OF_THE_PAPER[name] | values).items():
        assert getattr(config, option) == value
    assert {*OF_THE_PAPER[name]} <= {*values}
    assert update_of(config) is UPDATES.get(name, DDPGUpdate)


def test_what_every_recipe_changes():
    changed = {
        name: {
            option
            for option, value in from_toml(DDPGConfig, read_recipe(name), name).items()
            if value != getattr(DDPGConfig(), option)
        }
        for name in RECIPES
    }
    assert changed.pop("ddpg") == set()  # today's defaults, written out
    assert all(len(options) >= 6 for options in changed.values())


def config_of(*words):
    return Train.parse(["Pendulum-v1", *words], "ddpg train").args[0]


def test_a_recipe_stands_in_the_presets_place_and_flags_go_before_it(tmp_path):
    assert config_of("--recipe", "ddpg") == DDPGConfig()
    assert config_of("--recipe", "ddpg") != config_of()
    td3 = DDPGConfig(**from_toml(DDPGConfig, read_recipe("td3"), "it"))
    assert config_of("--recipe", "td3", "--tau", "0.5") == td3.replace(tau=0.5)
    own = tmp_path / "own.toml"
    own.write_text("batch_size = 7\nn_critics = 3\nmax_gradient_norm = 'none'\n")
    assert config_of("--recipe", str(own)) == DDPGConfig(batch_size=7, n_critics=3)
    assert config_of("--recipe", "td3", "--config", str(own)) == td3.replace(batch_size=7, n_critics=3)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["Pendulum-v1", "--recipe", "td4"], "recipe td4 'td3'"),
        (["Pendulum-v1", "--recipe", "none.toml"], "none.toml"),
        (["CartPole-v1", "--recipe", "td3"], "recipe td3 CartPole-v1 n_critics"),
    ],
)
def test_a_recipe_that_is_none(words, match):
    with refuses(UsageError, match):
        Train.parse(words, "ddpg train")
