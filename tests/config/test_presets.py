"""Recipes: named sets of options that replace an environment's preset, and that files and flags override."""

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

# The options that characterise each recipe, taken from its paper and not from the recipe's file.
PAPER_OPTIONS = {
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
def test_a_recipe_has_the_options_of_its_paper(name):
    values = from_toml(DDPGConfig, read_recipe(name), name)
    config = DDPGConfig(**values)
    for option, value in (PAPER_OPTIONS[name] | values).items():
        assert getattr(config, option) == value
    assert {*PAPER_OPTIONS[name]} <= {*values}
    assert update_of(config) is UPDATES.get(name, DDPGUpdate)


def test_every_recipe_but_ddpg_differs_from_the_defaults():
    changed = {
        name: {
            option
            for option, value in from_toml(DDPGConfig, read_recipe(name), name).items()
            if value != getattr(DDPGConfig(), option)
        }
        for name in RECIPES
    }
    assert changed.pop("ddpg") == set()  # lists the current defaults
    assert all(len(options) >= 6 for options in changed.values())


def parsed_config(*words):
    return Train.parse(["Pendulum-v1", *words], "ddpg train").args[0]


def test_a_recipe_replaces_the_preset_and_files_and_flags_override_it(tmp_path):
    assert parsed_config("--recipe", "ddpg") == DDPGConfig()
    assert parsed_config("--recipe", "ddpg") != parsed_config()
    td3 = DDPGConfig(**from_toml(DDPGConfig, read_recipe("td3"), "it"))
    assert parsed_config("--recipe", "td3", "--tau", "0.5") == td3.replace(tau=0.5)
    own = tmp_path / "own.toml"
    own.write_text("batch_size = 7\nn_critics = 3\nmax_gradient_norm = 'none'\n")
    assert parsed_config("--recipe", str(own)) == DDPGConfig(batch_size=7, n_critics=3)
    assert parsed_config("--recipe", "td3", "--config", str(own)) == td3.replace(batch_size=7, n_critics=3)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["Pendulum-v1", "--recipe", "td4"], "recipe td4 'td3'"),
        (["Pendulum-v1", "--recipe", "none.toml"], "none.toml"),
        (["CartPole-v1", "--recipe", "td3"], "recipe td3 CartPole-v1 n_critics"),
    ],
)
def test_unknown_or_unsuitable_recipes_are_refused(words, match):
    with refuses(UsageError, match):
        Train.parse(words, "ddpg train")
