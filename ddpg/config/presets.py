"""Presets (options that work well in an environment) and recipes (named sets of options, with their sources)."""

import dataclasses
import functools
import itertools
import math
import re
from pathlib import Path
from typing import Any, TypeVar, overload

from ddpg.config.algorithm_options import CONFIGS, NETWORKS, AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.name_hints import FILES, OPTIONS
from ddpg.config.options import from_toml
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError, brief, did_you_mean

_FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_recipe(name: str, beside: str | Path = ".") -> dict[str, Any]:
    """Return the options of a recipe, which replaces an environment's preset.

    Args:
        name: one of :data:`RECIPES`, or the path of a TOML file, ending in ``.toml``.
        beside: the folder that a relative path starts from.

    Raises:
        UsageError: if there is no such recipe or file.
    """
    if name in RECIPES:
        return read_toml(_FOLDER / f"{name}.toml")
    if name.endswith(".toml"):
        return read_toml(Path(beside) / name)
    raise UsageError(
        f"recipe {name!r} is not one of {', '.join(RECIPES)}{did_you_mean(name, RECIPES)}; for a file of your own, "
        "give its path, ending in .toml"
    )


def recipe_options(name: str, kind: type[AgentConfig], env_id: str) -> dict[str, Any]:
    """Return the options of a recipe, checked against ``kind``, the options class of the environment's algorithm.

    Raises:
        UsageError: if there is no such recipe, or it has options of another algorithm.
    """
    return from_toml(
        kind, read_recipe(name), f"recipe {brief(name)} in {env_id}: {kind.__name__}", hints_for(kind, env_id)
    )


def default_options(
    kind: type[AgentConfig], env_id: str, total_timesteps: int, recipe: str | None = None
) -> dict[str, Any]:
    """Return the options of a run for which the caller gives none: those of ``recipe``, or of the environment's preset.

    In a short run the preset has fewer random steps. Errors as of :func:`recipe_options`.
    """
    if recipe is not None:
        return recipe_options(recipe, kind, env_id)
    return preset_for(env_id, kind).options_for(kind, total_timesteps)


def ddpg_recipe(name: str) -> dict[str, Any]:
    """Return the options of a recipe for DDPG in any environment; errors as of :func:`recipe_options`."""
    return from_toml(DDPGConfig, read_recipe(name), f"recipe {brief(name)}: DDPGConfig")


def offline_recipe(kind: type[AgentConfig]) -> str | None:
    """Return the default recipe for learning from a data set; ``None``: use the preset."""
    return "td3_bc" if issubclass(kind, DDPGConfig) else None


def hints_for(kind: type[AgentConfig], env_id: str) -> dict[str, str]:
    """Return advice, by name, on options that ``kind`` does not have: those of another algorithm or another package.

    ``kind`` is the options class of the algorithm that trains in ``env_id``.
    """
    trains = next((algorithm for algorithm, config in CONFIGS.items() if config is kind), kind.__name__)
    actions = {"DQN": " (its actions are discrete)", "DDPG": " (its actions are a Box)"}.get(trains, "")
    own = {field.name for field in dataclasses.fields(kind)}
    others = {
        field.name: f"it is {algorithm}'s option, and {env_id} trains {trains}{actions}; leave it, or its recipe, out"
        for algorithm, config in CONFIGS.items()
        for field in dataclasses.fields(config)
        if field.name not in own
    }
    here = " and ".join(f"--{name.replace('_', '-')}" for name in NETWORKS if name in own)
    of_networks = f"{env_id} trains {trains}{actions}, whose networks are {here}"
    return others | {name: of_networks for name in NETWORKS if here and name in others} | OPTIONS | FILES


RANDOM_SHARE = 0.1  # the largest share of random steps in a run shorter than usual

_Config = TypeVar("_Config", bound=AgentConfig)


@dataclasses.dataclass(frozen=True)
class Preset:
    """How long, and with which options, to train in an environment.

    Attributes:
        total_timesteps: environment steps.
        changes: options that differ from the recipe, or from the defaults if there is none.
        recipe: one of :data:`RECIPES`; ``None``: the defaults.
        kind: the options class of the algorithm for which it is.
    """

    total_timesteps: int
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    recipe: str | None = None
    kind: type[AgentConfig] = DDPGConfig

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The options that differ from the defaults."""
        if self.recipe is None:
            return self.changes
        return ddpg_recipe(self.recipe) | self.changes

    def options_for(self, kind: type[AgentConfig], total_timesteps: int) -> dict[str, Any]:
        """Return the options for a run of another length; a shorter run has fewer random steps.

        In a shorter run ``learning_starts`` and ``exploration_steps`` are at most a tenth of the run, or the same share
        of it as in the usual run, whichever is larger. Longer runs leave them unchanged.

        The defaults of the options class ``kind`` count too.
        """
        config = kind(**self.options)
        return self.options | {
            name: steps
            for name, least in (("learning_starts", config.batch_size), ("exploration_steps", 1))
            if (steps := self._within(getattr(config, name), least, total_timesteps)) < getattr(config, name)
        }

    def _within(self, usual: int, least: int, total_timesteps: int) -> int:
        share = max(RANDOM_SHARE, usual / self.total_timesteps)
        return min(usual, max(least, math.ceil(share * total_timesteps)))


# Plain DDPG forgets here: one seed in ten ended below -200. With normalised rewards and a cooldown of the learning
# rates, one seed in 100 did (seeds 300 to 399, benchmarks/results/tuning_pendulum.csv).
_PENDULUM = {
    **{"hidden": (64, 64), "batch_size": 64, "gamma": 0.98},
    **{"normalize_rewards": True, "learning_rate_schedule": "cooldown"},
}
# With one-step returns about one run in ten learns to balance and loses it again, whatever the other options; with
# ten-step returns none of nine did (seeds 1204 to 1207, 1210 to 1214: benchmarks/results/tuning_cartpole.csv).
_CART_POLE = {
    **{"hidden": (64, 64), "batch_size": 64, "learning_rate_schedule": "cooldown", "double_q": True},
    **{"n_steps": 10, "exploration_final": 0.02},
}
# DQN's options where no better ones are known. Without normalised rewards, or with three-step returns, a run of
# LunarLander hovered until the time limit; with layer normalisation runs learned later (one seed each, 4401 or 4402:
# benchmarks/results/tuning_dqn.csv).
_DISCRETE = {
    **{"hidden": (64, 64), "batch_size": 64, "learning_rate_schedule": "linear", "double_q": True, "n_steps": 10},
    **{"normalize_rewards": True, "updates_per_step": 0.5, "exploration_steps": 20_000, "exploration_final": 0.02},
}
# Landing is discovered by chance: with _DISCRETE alone seed 5001 hovered to the end. Longer exploration finds it, and
# learning rates that fall from the start are too small by then to learn from it (200,000 steps, seed 4403: 129 with
# linear, 209 with this).
_LANDS_SELDOM = {"exploration_steps": 100_000, "learning_rate_schedule": "cooldown"}
# tanh saturates here on some seeds and never recovers; inverting gradients cannot saturate. Once every episode balances
# for a thousand steps, one run in ten loses it again. Three times the usual noise keeps pushing the pendulum off
# balance, and TD3's three changes remove the last falls (seeds 1000 to 1149,
# benchmarks/results/tuning_double_pendulum.csv).
_DOUBLE_PENDULUM = {
    **{"hidden": (64, 64), "batch_size": 64, "bounding": "inverting", "learning_rate_schedule": "cooldown"},
    **{"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2, "noise_scale": 0.3},
}
_LQR = {"hidden": (64, 64), "batch_size": 64, "gamma": 0.95, "activation": "tanh"}
_PARAMETERISED = {"hidden": (64, 64), "batch_size": 64, "bounding": "inverting"}
# One update per ten steps, so that the replay memory covers more of the field. An actor with a tenth of the critic's
# learning rate does not follow the critic's errors; at 3e-4 it scored, forgot, and scored again. With gamma 0.98 and
# 0.99 it delayed the kick.
_HALF_FIELD = {
    **{"hidden": (128, 128), "batch_size": 128, "norm": "layer", "bounding": "inverting", "gamma": 0.95},
    **{"actor_learning_rate": 1e-4, "learning_rate_schedule": "cooldown", "updates_per_step": 0.1},
    **{"learning_starts": 10_000, "exploration_steps": 100_000},
}

# Without normalised observations and the penalty one of two seeds never learned to reach.
_REACHING = {"hindsight": 4, "gamma": 0.98, "normalize_observations": True, "pre_activation_penalty": 1e-2}

# With the recipe's one-step returns and white noise some seeds hover until the time limit and never find that landing
# pays (benchmarks/results/tuning_noise.csv: seeds 4301 and 4302; tuning_gamma.csv: 4001). With five-step returns
# evaluations exceed 200 after 11,000 and 15,000 steps, with three-step ones after 55,000 and 65,000
# (tuning_landing.csv).
_LANDING = {"n_steps": 5, "noise": "pink", "noise_scale": 0.3, "actor_average": 1_000}

# A stroke pays off over hundreds of steps. With gamma 0.9999 Q leaves the critic's values and the return falls again
# (benchmarks/results/tuning_swimmer.csv); with 0.999 it needs twice the recipe's range (tuning_swimmer_horizon.csv).
# What the minimum of two critics takes off adds up over as many steps: two runs of sixteen had Q at -3 to -5 and did
# not swim; with the mean all of ten did, these two seeds among them (tuning_swimmer_mean.csv).
_SWIMMING = {
    **{"gamma": 0.999, "v_min": -10.0, "v_max": 10.0, "atoms": 128, "n_steps": 5, "target_critics": "mean"},
    **{"noise": "pink", "noise_scale": 0.5, "actor_average": 1_000},
}

# Learning is the recipe's; the policy that is evaluated and exported averages the actor over about its last thousand
# steps, and its return drops less from one evaluation to the next (benchmarks/learning/averaged.toml).
_AVERAGED = {"actor_average": 1_000}

# With the recipe's norm, which follows the activation, units die for good, and a run of 300,000 steps forgot Hopper.
# With the norm before it none of six runs of Hopper and Walker2d did (benchmarks/learning/long_preactivation.toml), and
# lighter humanoids learn faster (benchmarks/studies/tuning_humanoid.toml). HalfCheetah, where nothing is forgotten,
# returns less.
_HOLDING = _AVERAGED | {"norm": "renorm_preactivation"}

PRESETS = {
    "CartPole-v1": Preset(100_000, _CART_POLE, kind=DQNConfig),
    "Acrobot-v1": Preset(100_000, _DISCRETE, kind=DQNConfig),
    "LunarLander-v3": Preset(300_000, _DISCRETE | _LANDS_SELDOM, kind=DQNConfig),
    "Pendulum-v1": Preset(10_000, _PENDULUM),
    "ddpg_envs/LQR-v0": Preset(10_000, _LQR),
    "ddpg_envs/AsymmetricLQR-v0": Preset(10_000, _LQR),
    "ddpg_envs/Platform-v0": Preset(50_000, _PARAMETERISED),
    "ddpg_envs/Goal-v0": Preset(100_000, _PARAMETERISED),
    "ddpg_envs/HalfFieldOffense-v0": Preset(1_500_000, _HALF_FIELD),
    "FetchReach-v4": Preset(30_000, _REACHING),
    "MountainCarContinuous-v0": Preset(100_000, {"noise": "ornstein_uhlenbeck", "noise_scale": 0.5}),
    "LunarLanderContinuous-v3": Preset(200_000, _LANDING, recipe="plus"),
    "BipedalWalker-v3": Preset(300_000, _AVERAGED, recipe="plus"),
    "InvertedPendulum-v5": Preset(50_000),
    "InvertedDoublePendulum-v5": Preset(50_000, _DOUBLE_PENDULUM),
    "Reacher-v5": Preset(50_000, {"gamma": 0.98}),
    "Swimmer-v5": Preset(300_000, _SWIMMING, recipe="plus"),
    "HalfCheetah-v5": Preset(1_000_000, _AVERAGED, recipe="plus"),
    "Hopper-v5": Preset(1_000_000, _HOLDING, recipe="plus"),
    "Walker2d-v5": Preset(1_000_000, _HOLDING, recipe="plus"),
    "Ant-v5": Preset(1_000_000, _AVERAGED, recipe="plus"),
    "Humanoid-v5": Preset(2_000_000, _HOLDING, recipe="plus"),
}

# With the recipe's Gaussian noise of 0.1 one of two seeds did not learn a swing-up
# (benchmarks/studies/tuning_exploration.toml, tuning_narrowing.toml).
_EXPLORING = _AVERAGED | {"noise": "pink", "noise_scale": 0.5}

# Presets of all tasks whose ids begin so. With the recipe's norm, which follows the activation, variants of four tasks
# returned two thirds as much (benchmarks/studies/tuning_control_suite.toml); with the minimum of the critics, 21 of the
# tasks returned 566 on average instead of 606, one seed (benchmarks/learning/dmc.toml).
_SUITE = _EXPLORING | {"norm": "renorm_preactivation", "target_critics": "mean"}
SUITES = {"dmc/": Preset(100_000, _SUITE, recipe="plus")}

# For environments without a preset: what measured best in other environments (docs/learning.md).
_ELSEWHERE: dict[type[AgentConfig], Preset] = {
    DDPGConfig: Preset(100_000, _EXPLORING, recipe="plus"),
    DQNConfig: Preset(100_000, _DISCRETE, kind=DQNConfig),
}


def preset_name(env_id: str, kind: type[AgentConfig] = DDPGConfig) -> str | None:
    """Return the environment or the suite whose preset ``env_id`` has for the options class ``kind``, or ``None``.

    An environment without a preset of its own has that of another version: ``Ant-v4`` has that of ``Ant-v5``. A preset
    for another algorithm does not count: a wrapper may have made the actions discrete.
    """
    versions = (name for name in PRESETS if _without_version(name) == _without_version(env_id))
    suites = (prefix for prefix in SUITES if env_id.startswith(prefix))
    found = env_id if env_id in PRESETS else next(itertools.chain(versions, suites), None)
    return found if found is not None and issubclass(kind, (PRESETS | SUITES)[found].kind) else None


def preset_for(env_id: str, kind: type[AgentConfig] = DDPGConfig) -> Preset:
    """Return the preset that :func:`preset_name` names, or the default of the options class ``kind``."""
    name = preset_name(env_id, kind)
    return (PRESETS | SUITES)[name] if name is not None else _ELSEWHERE.get(kind, Preset(100_000))


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


@overload
def preset_config(env_id: str, **changes: Any) -> DDPGConfig: ...


@overload
def preset_config(env_id: str, kind: type[_Config], **changes: Any) -> _Config: ...


def preset_config(env_id: str, kind: type[AgentConfig] = DDPGConfig, **changes: Any) -> AgentConfig:
    """Return the preset's configuration with ``changes``.

    Without a preset it is the recipe ``plus`` with an averaged actor and pink noise, or Acrobot's preset where actions
    are discrete.

    Raises:
        UsageError: if a field is unknown or a value is invalid.
    """
    return kind().replace(**preset_for(env_id, kind).options | changes)


def random_steps_note(
    what: str, learning_starts: int, total_timesteps: int, option: str = "--learning-starts {}"
) -> str:
    """Return a one-line warning if more than a quarter of a run's steps are random, or the empty string.

    ``what`` names the run; ``option`` is how ``learning_starts`` is written, with ``{}`` for the value.
    """
    advice = f"(learning_starts); train longer, or take e.g. {option.format(total_timesteps // 10)}"
    if learning_starts >= total_timesteps:
        steps = "its only step is" if total_timesteps == 1 else f"all {total_timesteps:,} steps are"
        return f"{what}: nothing will be learned: {steps} random {advice}"
    if learning_starts > total_timesteps / 4:
        be = "is" if learning_starts == 1 else "are"
        return f"{what}: {learning_starts:,} of {total_timesteps:,} steps {be} random before learning begins {advice}"
    return ""


def budget_note(env_id: str, config: AgentConfig, total_timesteps: int) -> str:
    """Return a one-line warning if a run of ``total_timesteps`` is short for its options, or the empty string."""
    starts = config.learning_starts
    if note := random_steps_note(env_id, starts, total_timesteps):
        return note
    kind, preset = type(config), preset_for(env_id, type(config))
    usual = kind(**preset.options).learning_starts
    equal = [getattr(config, name) == value for name, value in preset.options.items() if name != "learning_starts"]
    of_preset = 2 * sum(equal) >= len(equal)  # not those of another recipe
    if of_preset and starts < usual and starts == preset.options_for(kind, total_timesteps).get("learning_starts"):
        whose = "its preset" if preset.recipe is None else f"recipe {preset.recipe}"
        plain = ", and --recipe ddpg may learn more in so few" if preset.recipe == "plus" else ""
        return (
            f"{env_id}: {starts:,} of {total_timesteps:,} steps are random before learning begins, not the {usual:,} "
            f"of {whose}, which are meant for {preset.total_timesteps:,} steps; --learning-starts changes it{plain}"
        )
    return ""
