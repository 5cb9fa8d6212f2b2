"""Making an environment from what stands on a command line."""

import importlib
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym

from ddpg.errors import EnvironmentFault, UsageError, did_you_mean
from ddpg.experience.faults import said


def make_env(env_id: str, **kwargs) -> gym.Env:
    """Return ``gymnasium.make(env_id)``, with errors a user can act on.

    Args:
        env_id: a registered id; ``module:Id`` imports ``module`` first; ``ddpg_envs/...`` needs no import.
        kwargs: for ``gymnasium.make``.

    Raises:
        UsageError: no such environment or module, or a dependency of it is missing.
        EnvironmentFault: its module or its constructor raised.
    """
    module, _, name = env_id.rpartition(":")
    if not module and name.startswith("ddpg_envs/"):
        module = "ddpg_envs"
    try:
        if module:
            importlib.import_module(module)
        # Its checker only warns of what stepping refuses, in lines of its own.
        return gym.make(name, **{"disable_env_checker": True, **kwargs})
    except ModuleNotFoundError as error:
        if module and error.name == module:
            raise UsageError(f"no module {module!r} to import for environment {env_id!r}; install it first") from None
        raise UsageError(f"environment {env_id!r} needs the package {error.name!r}; install it first") from None
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install 'ddpg-paths[mujoco]'" if "mujoco" in str(error).lower() else "install it first"
        raise UsageError(f"environment {env_id!r} lacks a dependency ({error}); {hint}") from None
    except gym.error.Error as error:
        hint = did_you_mean(name, gym.registry)
        raise UsageError(f"cannot make environment {env_id!r}: {_first_line(error)}{hint}") from None
    except Exception as error:
        raise EnvironmentFault(f"environment {env_id!r} failed while it was made: {said(error)}") from error


def check_import(env_id: str, run: str | Path, allowed: Sequence[str]) -> None:
    """Refuse the environment of a file that would import a module nobody has allowed.

    Raises:
        UsageError: ``env_id`` is ``module:Id`` and ``module`` is not among ``allowed``.
    """
    module = env_id.rpartition(":")[0]
    if module and module not in allowed:
        raise UsageError(
            f"{run} names the environment {env_id!r}, for which the module {module!r} would be imported, and a file "
            f"never makes this package import code by itself; if you trust it, allow it: --allow-import {module}, in "
            f"Python allow_import=[{module!r}]"
        )


def id_of(env: gym.Env) -> str:
    """Return the id that ``env`` was made by."""
    assert env.spec is not None, "gymnasium.make gives every environment its spec"
    return env.spec.id


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
