"""What commands share: options of their own as flags, and the flags that several have."""

import abc
import dataclasses
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddpg.commands.flags import Flag, flags_of, parsed, refuse_unknown
from ddpg.options import Options, option
from ddpg.progress import saying
from ddpg.quiet import load_tensorflow


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Options, abc.ABC):
    """A command: its fields are its flags, its docstring is its help, calling it does the work."""

    @abc.abstractmethod
    def __call__(self) -> None:
        """Do it."""

    @classmethod
    def flags(cls, defaults: Mapping[str, Any] | None = None) -> dict[str, Flag]:
        """Return the flags, those that others have too behind the command's own."""
        flags = flags_of(cls, defaults or {})
        return {name: flags[name] for name in [*inspect.get_annotations(cls), *flags]}

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Callable[[], None]:
        """Return what the arguments ask for.

        Raises:
            UsageError: they are wrong.
            SystemExit: help was asked for, and is printed.
        """
        flags = cls.flags()
        values, unknown = parsed(flags, arguments, prog, inspect.getdoc(cls) or "")
        refuse_unknown(unknown, flags, prog)
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfRun(Command):
    """A command about a run."""

    run: str = option(dataclasses.MISSING, "a run directory, e.g. runs/Pendulum-v1/1", positional=True, metavar="RUN")

    def check_checkpoint(self, which: str) -> None:
        """Refuse a run that has no such checkpoint, before TensorFlow is imported, which takes seconds.

        Raises:
            UsageError: no run directory, or no such checkpoint.
        """
        from ddpg.storage import checkpoint

        checkpoint.find(self.run, which)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfEnvironment(Command):
    """A command about an environment."""

    env: str = option(
        dataclasses.MISSING, "a gymnasium id such as Pendulum-v1, or module:Id", positional=True, metavar="ENV"
    )
    wrap: tuple[str, ...] = option(
        (),
        "a wrapper of gymnasium's: FlattenObservation, TimeAwareObservation or GrayscaleObservation",
        metavar="WRAPPER",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InItsEnvironment(OfRun):
    """A command that makes the environment of a run."""

    allow_import: tuple[str, ...] = option((), "let the run's environment, module:Id, import MODULE", metavar="MODULE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithJson(Command):
    """A command that prints for people, or JSON."""

    json: bool = option(False, "print one JSON object on stdout and nothing else")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithProgress(Command):
    """A command that takes long."""

    progress_bar: bool = option(True, "show progress on stderr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithTracker(Command):
    """A command that trains, which an experiment tracker can follow."""

    track: str | None = option(
        None, "an experiment tracker to log to, beside the files of the run", metavar="{wandb,mlflow,trackio}"
    )

    def check_tracker(self) -> None:
        """Refuse a tracker that is not there, before TensorFlow is imported.

        Raises:
            UsageError: an unknown one, or its package is not installed.
        """
        if self.track is not None:
            from ddpg.runs.trackers import as_tracker  # which imports TensorFlow

            as_tracker(self.track)


def load(*modules: str, say: bool = True) -> None:
    """Import TensorFlow and modules that stand on it; ``say`` on a terminal what takes so long."""
    with saying("loading TensorFlow", say):
        load_tensorflow()
        for module in modules:
            importlib.import_module(module)


def find_here(*names: str) -> None:
    """Let modules that the command line names be found in the working directory, too.

    It comes last in the path, and only for what is nowhere else: nothing there takes the place of another module.

    Args:
        names: of modules, or of environments: ``module:Id``; without a module, nothing is done.
    """
    for module in (name.rpartition(":")[0] or name for name in names):
        try:
            # Of its first part alone: to find one in a package, the package would be imported, whatever that raises.
            spec = importlib.util.find_spec(module.partition(".")[0])
            found = spec is not None and spec.origin is not None  # a package without a file may go on there
        except (ImportError, ValueError):
            found = False
        if not found and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
