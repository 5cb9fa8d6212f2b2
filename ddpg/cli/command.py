"""The base of all commands: their options are their flags (:mod:`ddpg.cli.flags`), some of which commands share."""

import abc
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpg.cli.flags import Flag, flag_name, flags_of, parse_flags, refuse_unknown
from ddpg.config.imports import imports_allowed, is_reference
from ddpg.config.name_hints import ADVICE
from ddpg.config.options import Options, option
from ddpg.errors import UsageError, brief
from ddpg.progress import progress_message
from ddpg.quiet import load_tensorflow, quiet_import

if TYPE_CHECKING:
    import gymnasium as gym

    from ddpg.config.algorithm_options import AgentConfig
    from ddpg.runs.env_source import EnvSource
    from ddpg.runs.saved_policy import SavedPolicy


class Answer(NamedTuple):
    """What a command has found out.

    Attributes:
        values: for ``--json``.
        text: for people.
        failure: what went wrong all the same, to be raised when the answer is printed.
    """

    values: Mapping[str, Any]
    text: str
    failure: UsageError | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Options, abc.ABC):
    """A command: its fields are its flags, its docstring is its help, calling it does the work.

    Besides what :func:`~ddpg.config.options.option` names, a field may have ``is_path=True``. Values are checked here,
    before a command imports TensorFlow.
    """

    def __post_init__(self):
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("is_path") and value is not None:
                for path in value if isinstance(value, tuple) else (value,):
                    _check_path(path, field.name)

    @abc.abstractmethod
    def __call__(self) -> Answer | None:
        """Do it, and return what there is to print."""

    @classmethod
    def flags(cls, defaults: Mapping[str, Any] | None = None) -> dict[str, Flag]:
        """Return the flags: the command's own, then those it inherits."""
        flags = flags_of(cls, defaults or {})
        return {name: flags[name] for name in [*inspect.get_annotations(cls), *flags]}

    @classmethod
    def flag_hints(cls) -> dict[str, str]:
        """Return advice, by name, on flags of this command that a user wrote into a file of options."""
        return {
            name: f"it is a flag of ddpg {cls.__name__.lower()}, not an option of the algorithm; write "
            f"{flag_name(name)} on the command line"
            for name in cls.flags()
            if name != "env"  # which has no flag
        }

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Callable[[], Answer | None]:
        """Return the command that the arguments describe, ready to be called.

        Raises:
            UsageError: if they are wrong.
            SystemExit: if help was requested, after it is printed.
        """
        flags = cls.flags()
        values, unknown = parse_flags(flags, arguments, prog, inspect.getdoc(cls) or "")
        refuse_unknown(unknown, flags, prog)
        return cls(**values)


def _check_path(text: str, name: str) -> None:
    from ddpg.interaction.validation import validate_path  # imports NumPy, which ``ddpg --help`` does not need

    if not text:
        raise UsageError(f"{name}={text!r} must be a path")
    validate_path(text, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentCommand(Command):
    """A command about an environment."""

    env: str = option(
        dataclasses.MISSING, "a gymnasium id such as Pendulum-v1, or module:Id", positional=True, metavar="ENV"
    )
    wrap: tuple[str, ...] = option(
        (),
        "a wrapper with its arguments, such as 'DelayObservation(delay=2)'; the first is the innermost. Of gymnasium: "
        "FlattenObservation, TimeAwareObservation, FilterObservation, ReshapeObservation, RescaleObservation, "
        "DelayObservation, FrameStackObservation, GrayscaleObservation, ResizeObservation, MaxAndSkipObservation, "
        "RepeatAction, StickyAction, DiscretizeAction, AtariPreprocessing; ActionMask appends info['action_mask'] for "
        "DQN",
        metavar="WRAPPER",
    )
    env_kwargs: tuple[str, ...] = option(
        (),
        "a keyword argument of the environment's constructor, such as continuous=true; max_episode_steps=N gives it "
        "another time limit",
        metavar="NAME=VALUE",
    )

    @property
    def source(self) -> "EnvSource":
        """What the environment is made from.

        Raises:
            UsageError: if the keyword arguments cannot be read.
        """
        from ddpg.runs.env_source import EnvSource, kwargs_of

        return EnvSource(self.env, self.wrap, kwargs_of(self.env_kwargs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithImports(Command):
    """A command that may import user code, which a flag or a file names as ``module:Name``."""

    allow_import: tuple[str, ...] = option(
        (),
        "allow MODULE to be imported, where a flag or a file names an environment, a gradient path, a network or an "
        "algorithm as MODULE:Name",
        metavar="MODULE",
    )

    @contextlib.contextmanager
    def imports_allowed(self) -> Iterator[None]:
        """Allow these imports inside the block, also from the working directory, without TensorFlow's notices."""

        def importer(name: str) -> types.ModuleType:
            with quiet_import():
                return importlib.import_module(name)

        import_from_working_directory(*self.allow_import)
        with imports_allowed(self.allow_import, importer):
            yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedPolicyCommand(WithImports):
    """A command about the policy of a run or a policy of the zoo."""

    run: str = option(
        dataclasses.MISSING,
        "a run directory, e.g. runs/Pendulum-v1/1, or zoo:NAME of a policy that comes with the package",
        positional=True,
        metavar="RUN",
        is_path=True,
    )
    checkpoint: str = option(
        "latest",
        "checkpoint: latest, best, or its number of steps; for a fine-tuned run also offline or better",
        metavar="WHICH",
    )

    @property
    def is_of_zoo(self) -> bool:
        """Whether the run is ``zoo:NAME``.

        Raises:
            UsageError: if it is, and a checkpoint is named.
        """
        if not self.run.startswith("zoo:"):
            return False
        if self.checkpoint != "latest":
            raise UsageError(
                f"checkpoint={brief(self.checkpoint)}: {brief(self.run)} has one policy; leave --checkpoint out"
            )
        return True

    def saved_policy(self) -> "SavedPolicy":
        """Return the policy; for that of a run import TensorFlow, after what can be refused before has been.

        Raises:
            UsageError: if there is no such policy, run or checkpoint, or the run needs an import that is not allowed.
        """
        from ddpg.exports.zoo import names
        from ddpg.runs.saved_policy import RunPolicy, ZooPolicy

        if self.is_of_zoo:
            return ZooPolicy(self.run)
        if self.run in names() and not os.path.lexists(self.run):
            raise UsageError(
                f"no run at {brief(self.run)}; zoo:{self.run} is the policy that comes with the package, and a run of "
                f"your own is a directory such as runs/{self.run}/1"
            )
        policy = RunPolicy(self.run, self.checkpoint, self.allow_import)
        import_with_tensorflow("ddpg.agents.off_policy")
        return policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class JSONOption(Command):
    """A command that prints text or, with ``--json``, one JSON object."""

    json: bool = option(False, "print one JSON object on stdout and nothing else")


def json_line(answer: Mapping[str, Any]) -> str:
    """Return one line of JSON; an infinite number or NaN, which JSON cannot express, becomes null."""
    return json.dumps(_finite(answer), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressOption(Command):
    """A long command, with a progress bar."""

    progress_bar: bool = option(True, "show progress on stderr")


def import_with_tensorflow(*modules: str, say: bool = True) -> None:
    """Import TensorFlow and modules that need it; with ``say``, show on a terminal that this is what takes seconds.

    If there is a GPU, its operations are made deterministic in the whole process. Otherwise a GPU adds numbers in
    another order from run to run, and a resumed run would not end as an uninterrupted one.
    """
    with progress_message("loading TensorFlow", say):
        load_tensorflow()
        tf = sys.modules["tensorflow"]
        if tf.config.list_physical_devices("GPU"):
            tf.config.experimental.enable_op_determinism()
        for module in modules:
            importlib.import_module(module)


def import_from_working_directory(*modules: str) -> None:
    """Allow modules named on the command line to be imported from the working directory.

    It is appended to ``sys.path``, and only if the module is found nowhere else, so it never shadows another module.
    """
    for module in filter(None, modules):  # the module of an environment's id is empty if the id names none
        try:
            # Look up the top-level package only: finding a submodule imports the package, which may raise anything.
            spec = importlib.util.find_spec(module.partition(".")[0])
            found = spec is not None and spec.origin is not None  # a namespace package may have a part there too
        except (ImportError, ValueError):
            found = False
        if not found and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


def inspect_environment(source: "EnvSource") -> "tuple[str, str, type[AgentConfig], gym.Env]":
    """Return an environment's id without its module, its algorithm, that one's options class, and itself, closed."""
    from ddpg.config.algorithm_options import CONFIGS
    from ddpg.interaction.env_calls import close_quietly
    from ddpg.interaction.spaces import algorithm_for
    from ddpg.runs.env_factory import env_id_of, make_env

    import_from_working_directory(source.env_id.rpartition(":")[0])
    env = make_env(source)
    name, algorithm = env_id_of(env), algorithm_for(env.action_space)
    close_quietly(env)
    return name, algorithm, CONFIGS[algorithm], env


def own_options(algorithm: str, usual: "type[AgentConfig]", env_id: str) -> "type[AgentConfig]":
    """Return the options class of a user's own algorithm, ``module:Name``.

    ``usual`` is the options class of the algorithm that would otherwise train in the environment.

    Raises:
        UsageError: if there is no such algorithm, its import is not allowed
            (:func:`ddpg.config.imports.imports_allowed`), or it is for another kind of action space.
    """
    if not is_reference(algorithm):
        raise UsageError(
            f"algorithm={brief(algorithm)} must be one of your own, MODULE:NAME; for any other {ADVICE['algo']}"
        )
    import_with_tensorflow("ddpg.algorithms.registry")
    from ddpg.algorithms.registry import algorithm_named
    from ddpg.config.algorithm_options import CONFIGS

    kind = algorithm_named(algorithm).config
    theirs = [name for name, config in CONFIGS.items() if name != algorithm and issubclass(kind, config)]
    if theirs and not issubclass(kind, usual):
        raise UsageError(
            f"algorithm={algorithm!r} has the options of {theirs[0]}, and the actions of {env_id} need those of "
            f"{usual.__name__}; take another environment or algorithm"
        )
    return kind


def check_own_options(algorithm: str, config: "AgentConfig") -> None:
    """Refuse options that the update of a user's own algorithm, from :func:`own_options`, would ignore.

    Raises:
        UsageError: if there are any.
    """
    from ddpg.algorithms.registry import checked_update

    checked_update(algorithm, config)
