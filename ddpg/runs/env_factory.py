"""Make environments from their sources and a vectorization; error messages say which package to install."""

import copy
import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from gymnasium import wrappers as supplied

from ddpg.errors import EnvironmentFault, UsageError, brief, did_you_mean, format_error, without_opengl
from ddpg.exports import zoo
from ddpg.interaction import env_calls
from ddpg.interaction.env_calls import CheckedEnv, ProbedEnv
from ddpg.interaction.envpool import EnvPoolVector
from ddpg.interaction.spaces import unflattenable_part
from ddpg.interaction.validation import validate_choice, validate_int
from ddpg.quiet import quiet_import
from ddpg.runs import signals
from ddpg.runs.env_source import EnvSource
from ddpg.runs.wrappers import check_wrappers, is_masked, wrapped
from ddpg.workers.worker_options import GUARD, check_main_is_a_file

_NONE: Mapping[str, Any] = MappingProxyType({})
VECTORIZATIONS = ("sync", "async", "envpool")


def make_env(source: EnvSource | str, **rendering: Any) -> gym.Env:
    """Return ``gymnasium.make(env_id)``, with Dict observations flattened and with errors that a user can act on.

    A Dict observation with an ``action_mask`` is flattened by :class:`~ddpg.interaction.action_mask.ActionMask`, after
    the other wrappers.

    Args:
        source: what it is made from; an id alone, as :meth:`EnvSource.of` takes it.
        rendering: further keyword arguments for ``gymnasium.make``.

    Raises:
        UsageError: if the environment, module, wrapper or a dependency does not exist, a wrapper does not fit, or the
            environment does not take one of the source's keyword arguments.
        EnvironmentFault: if its module or its constructor raised another exception.
    """
    env_id, wrappers, kwargs = EnvSource.of(source)
    check_wrappers(wrappers)
    module, name = _module_and_name(env_id)
    try:
        with env_calls.own_directory(), env_calls.ProcessStateGuard():
            if module:
                with quiet_import():
                    importlib.import_module(module)
            # gymnasium's checker only warns about faults that our own checks refuse. A copy of the arguments: some
            # constructors take items out of a list or dict, which the next environment needs, too.
            copied = copy.deepcopy(dict(kwargs))
            env = gym.make(_with_version(name), disable_env_checker=True, **copied, **rendering)
            env = wrapped(env, wrappers)
            if is_masked(env):
                return wrapped(env, ["ActionMask"])
            space = env.observation_space
            if isinstance(space, gym.spaces.Dict) and not unflattenable_part(space):
                return supplied.FlattenObservation(env)
            return env  # the agent refuses other spaces by name
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if module and error.name == module:
            _refuse_zoo_name(env_id)
            raise UsageError(
                f"no module {brief(module)} to import for environment {brief(env_id)}; {how_to_install(module)}"
            ) from None
        missing = str(error.name)
        raise UsageError(
            f"environment {brief(env_id)} needs the package {brief(missing)}; {how_to_install(missing)}"
        ) from None
    except gym.error.DependencyNotInstalled as error:
        raise UsageError(
            f"environment {brief(env_id)} lacks a dependency ({_first_line(error)}); {how_to_install(str(error))}"
        ) from None
    except gym.error.Error as error:
        text = re.sub(r"\s*Did you mean.*", "", _first_line(error)).rstrip(".")  # gymnasium suggests no versions
        given = env_id[: env_id.rfind(":") + 1]  # its module, which a suggestion needs, too
        close = did_you_mean(name, gym.registry, cutoff=0.7).replace("mean '", f"mean '{given}")
        hint = other_package_hint(name) or close
        own = f"; an environment of your own is named with its module, module:{brief(name, quotes=False)}"
        own = "" if hint or module else own
        raise UsageError(f"cannot make environment {brief(env_id)}: {text}{hint}{own}") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not signals.interrupted_without_signal():
            raise
        unexpected = _argument("got an unexpected keyword argument", error)
        if unexpected in kwargs:
            raise UsageError(
                f"environment {brief(env_id)} has no keyword argument {brief(unexpected)}, which is in env_kwargs="
                f"{brief(dict(kwargs))}; its package documents those that it has"
            ) from None
        what = without_opengl(error) or format_error(error)
        missing = _argument(r"missing \d+ required .*arguments?:", error)
        hint = f"; env_kwargs gives it arguments, at the command line --env-kwargs {missing}=VALUE" if missing else ""
        raise EnvironmentFault(f"environment {brief(env_id)} could not be made: {what}{hint}") from error


def _argument(problem: str, error: BaseException) -> str:
    """Return the name of the argument that a ``TypeError`` has this problem with, or the empty string."""
    found = re.search(rf"{problem} '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    return found[1] if found else ""


def _module_and_name(env_id: str) -> tuple[str, str]:
    """Return the module to import, or the empty string, and the id in gymnasium's registry.

    Raises:
        UsageError: if ``env_id`` has a module and no id, or a path where the module's name should be.
    """
    module, colon, name = env_id.rpartition(":")
    if colon and not (module and name):
        raise UsageError(f"environment {brief(env_id)} must have a module and an id on the two sides of ':'")
    if re.search(r"^\.|[/\\]|\.py$", module):
        stem = Path(module.replace("\\", "/").removesuffix(".py")).name
        raise UsageError(
            f"environment {brief(env_id)} has a path in place of its module's name; write {brief(f'{stem}:{name}')}, "
            "with the module's folder as the working directory or in PYTHONPATH"
        )
    if not module and name.startswith(("ddpg_envs/", "dmc/")):
        module = "ddpg_envs"
    return module, name


def _refuse_zoo_name(env_id: str) -> None:
    """Refuse the name of a zoo policy; the caller has found that there is no module ``zoo`` that it could mean."""
    if zoo.is_zoo(env_id):
        name = env_id.removeprefix(zoo.PREFIX)
        raise UsageError(
            f"{brief(env_id)} names a trained policy, for ddpg watch, evaluate, record and export; an environment "
            f"goes by its own id, such as {name}"
        )


def _with_version(name: str) -> str:
    """Return ``dmc/DOMAIN-TASK`` with its version, so that gymnasium need not guess it with a warning."""
    return f"{name}-v0" if name.startswith("dmc/") and f"{name}-v0" in gym.registry else name


def make_training_env(
    source: EnvSource | str, n_envs: int = 1, vectorization: str = "sync"
) -> gym.Env | gym.vector.VectorEnv:
    """Return one environment, or a vector of ``n_envs`` (autoreset NEXT_STEP).

    Args:
        source: as for :func:`make_env`.
        n_envs: number of environments; 1 gives a plain environment.
        vectorization: ``"sync"``: in this process, one after another; ``"async"``: each in its own process;
            ``"envpool"``: EnvPool's environments of that id, in its threads, with gymnasium's spaces.

    Raises:
        UsageError: as :func:`check_vector` and :func:`make_env`; EnvPool is not installed, or has no such environment.
    """
    source = EnvSource.of(source)
    n_envs = check_vector(n_envs, vectorization, source.wrappers, source.kwargs)
    if n_envs == 1:
        return make_env(source)
    if vectorization == "sync":
        return gym.vector.SyncVectorEnv([lambda: CheckedEnv(make_env(source))] * n_envs)
    if vectorization == "envpool":
        one = make_env(source)
        env_calls.close_quietly(one)
        return EnvPoolVector(env_id_of(one), n_envs, like=one)
    check_main_is_a_file("vectorization='async'")
    makers = [functools.partial(_make_in_worker, source, os.getpid())] * n_envs
    try:
        # Spawned, not forked: a forked child would keep the run's lock and its siblings' pipes open after this process
        # is killed, and would lack TensorFlow's threads. Without shared memory the first step after a reset is lost.
        return gym.vector.AsyncVectorEnv(makers, context="spawn", shared_memory=True)
    except (EOFError, OSError) as error:
        raise EnvironmentFault(
            f"a process of {brief(source.env_id)} ended at its start ({type(error).__name__}); its messages on stderr "
            f"say why; a script that trains with vectorization='async' needs {GUARD}, because every process imports it"
        ) from error


def check_vector(
    n_envs: int, vectorization: str, wrappers: Sequence[str] = (), kwargs: Mapping[str, Any] = _NONE
) -> int:
    """Refuse arguments that :func:`make_training_env` could not use; return ``n_envs`` as an int.

    Raises:
        UsageError: if ``vectorization`` is unknown, ``n_envs`` is no whole number from 1 to 1024, or is 1 with
            ``"async"`` or ``"envpool"``, or if there are wrappers or keyword arguments with ``"envpool"``.
    """
    n_envs = validate_int(n_envs, "n_envs", at_least=1, at_most=1024)
    validate_choice(vectorization, "vectorization", VECTORIZATIONS)
    if n_envs == 1 and vectorization != "sync":
        raise UsageError(f"{vectorization=} is for several environments; give --n-envs 2 or more, or leave it")
    if wrappers and vectorization == "envpool":
        raise UsageError(
            f"wrapper {wrappers[0]!r} is of a gymnasium environment, and EnvPool's are none; use --vectorization async"
        )
    if kwargs and vectorization == "envpool":
        raise UsageError(
            f"env_kwargs={brief(dict(kwargs))} is for a gymnasium environment, and EnvPool's are none; use "
            "--vectorization async"
        )
    return n_envs


def _make_in_worker(source: EnvSource, parent: int) -> gym.Env:
    """Make an environment in a process of the vector, which ignores Ctrl-C because the parent ends it."""
    if os.getpid() == parent:  # gymnasium also makes one in the parent, to read its spaces
        return ProbedEnv(make_env(source))
    env_calls.exit_if_orphaned()
    env_calls.ignore_terminal_signals()
    return CheckedEnv(make_env(source), in_worker=True)


def check_imports(names: Sequence[str], file: str | Path, allowed: Sequence[str]) -> None:
    """Refuse names ``module:Name`` in a file if the user has not allowed to import ``module``.

    Args:
        names: the names in the file; those without a module import nothing.
        file: the file or the run directory, for the message.
        allowed: the modules that the user has allowed to import.

    Raises:
        UsageError: if one of the names is ``module:Name`` and ``module`` is not among ``allowed``.
    """
    refused = [name for name in names if ":" in name and name.rpartition(":")[0] not in allowed]
    if refused:
        for name in refused:
            if importlib.util.find_spec("zoo") is None:
                _refuse_zoo_name(name)
        modules = list(dict.fromkeys(name.rpartition(":")[0] for name in refused))
        flags = " ".join(f"--allow-import {module}" for module in modules)
        raise UsageError(
            f"{file} names {', '.join(map(brief, refused))}, for which {', '.join(map(brief, modules))} would be "
            "imported, and a file never makes this package import code by itself; if you trust it, allow it: "
            f"{flags}, in Python allow_import={modules}"
        )


def env_id_of(env: gym.Env) -> str:
    """Return the id with which ``env`` was made."""
    assert env.spec is not None, "gymnasium.make gives every environment its spec"
    return env.spec.id


def full_id(env_id: str, name: str) -> str:
    """Return ``name``, from :func:`env_id_of`, with the module of ``env_id``, which may lack the version."""
    return "".join([*env_id.rpartition(":")[:2], name])


def _first_line(error: Exception) -> str:
    return brief(next(iter(str(error).strip().splitlines()), ""), quotes=False)


# A word in the message about a missing package, and the extra or package that installs it.
_EXTRAS = {
    "dm_control": "dmc",
    "gymnasium_robotics": "robotics",
    "gymnasium-robotics": "robotics",
    "mujoco": "mujoco",
    "box2d": "box2d",
    "pygame": "video",
    "imageio": "video",
    "envpool": "envpool",
    "ale_py": "atari",
    "cv2": "atari",
    "opencv": "atari",
}

# Ids without their module, or in the style of older packages: a pattern, the id to write instead, and its package.
_MODULES = (
    (r"(?:Fetch|Hand|Adroit|AntMaze|PointMaze|FrankaKitchen)\w*-v\d+", "gymnasium_robotics:{0}", "gymnasium_robotics"),
    (r"dm_control/(\w+-\w+)-v\d+", "dmc/{1}", "dm_control"),
    (r"ALE/\w+-v\d+", "ale_py:{0}", "ale_py"),
    (r"(\w+?)(?:NoFrameskip|Deterministic)-v\d+", "ale_py:ALE/{1}-v5", "ale_py"),
)


def how_to_install(missing: str) -> str:
    """Return how to install the package that a message says is missing, by our extra if one has it."""
    missing = missing.lower()
    for word, extra in _EXTRAS.items():
        if word in missing:
            return f'install the extra {extra!r}: pip install "ddpg-paths[{extra}]", in a checkout ".[{extra}]"'
    return "install the package that has it, or write the module's name right"


def other_package_hint(name: str) -> str:
    """Return how to name an environment that another package provides, or the empty string."""
    for pattern, written, package in _MODULES:
        if found := re.fullmatch(pattern, name):
            how = how_to_install(package)
            return f"; write {written.format(found[0], *found.groups())!r} and, unless it is there, {how}"
    return ""
