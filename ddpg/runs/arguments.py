"""The arguments of ``train`` and ``resume``: checked before anything is made."""

from typing import Any

from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError, brief
from ddpg.interaction.validation import validate_int, validate_text


def check_counts(seed: Any, total_timesteps: Any, evaluation_interval: Any, evaluation_episodes: Any) -> None:
    """Refuse what counts nothing; all but the last may be ``None``.

    Raises:
        UsageError: one is no whole number, or out of its range.
    """
    for value, what, at_least in (
        (seed, "seed", 0),
        (total_timesteps, "total_timesteps", 1),
        (evaluation_interval, "evaluation_interval", 1),
        (evaluation_episodes, "evaluation_episodes", 1),
    ):
        if value is not None or what == "evaluation_episodes":
            validate_int(value, what, at_least)


def check_names(**names: Any) -> None:
    """Refuse arguments that are no strings.

    Raises:
        UsageError: one is none.
    """
    for what, value in names.items():
        validate_text(value, what, "a name")


def validate_config(config: Any) -> AgentConfig | None:
    """Return options of the caller's.

    Raises:
        UsageError: they are neither ``None`` nor options of an agent.
    """
    if config is not None and not isinstance(config, AgentConfig):
        raise UsageError(f"config={brief(config)} must be a DDPGConfig or a DQNConfig, or None")
    return config
