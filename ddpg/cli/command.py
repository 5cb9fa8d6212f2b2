"""The base of all commands: their options become flags, which tyro parses; several commands share some of the flags."""

import abc
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import io
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from ddpg.config.imports import imports_allowed, is_reference
from ddpg.config.name_hints import ADVICE, meaning_here, renamed
from ddpg.config.options import Options, field_type, option
from ddpg.errors import UsageError, brief, did_you_mean
from ddpg.progress import progress_message
from ddpg.quiet import load_tensorflow, quiet_tensorflow

if TYPE_CHECKING:
    import gymnasium as gym

    from ddpg.config.algorithm_options import AgentConfig
    from ddpg.runs.saved_policy import SavedPolicy

_NONE: Mapping[str, Any] = types.MappingProxyType({})
_LONGEST_WORD = 4096  # characters; no path is longer


class Flag(NamedTuple):
    """A flag or positional argument, made from an option's field for tyro."""

    name: str
    hint: Any
    default: Any
    group: str
    metavar: str = ""

    @property
    def field(self) -> tuple[Any, ...]:
        """The field as an argument of ``make_dataclass``."""
        missing = self.default is dataclasses.MISSING
        return (self.name, self.hint) if missing else (self.name, self.hint, dataclasses.field(default=self.default))


def flags_of(
    kind: type[Options], defaults: Mapping[str, Any] = _NONE, notes: Mapping[str, str] = _NONE
) -> dict[str, Flag]:
    """Return the flags of a class of options by name.

    Args:
        kind: the class.
        defaults: by name, those that differ from the fields' defaults.
        notes: by name, text to append to the help.
    """
    return {
        field.name: _flag(kind, field, defaults.get(field.name, field.default), notes.get(field.name, ""))
        for field in dataclasses.fields(kind)
    }


def _flag(kind: type[Options], field: dataclasses.Field, default: Any, note: str) -> Flag:
    scalar, many, optional = field_type(kind, field.name)
    about = field.metadata
    marks: list[Any] = [
        tyro.conf.arg(
            help=about.get("help", "") + note,
            metavar=_metavar(field, kind),
            aliases=about.get("aliases"),
            help_behavior_hint="(required)" if about.get("positional") and default == () else None,
        )
    ]
    marks += [tyro.conf.Positional] * bool(about.get("positional"))
    hint: Any = scalar
    if scalar is bool:
        marks += [tyro.conf.FlagCreatePairsOff] * (not about.get("group") and not default)
    elif scalar is str and many:
        hint = tuple[str, ...]
        marks += [tyro.conf.UseAppendAction] * (not about.get("positional"))
    else:
        hint = object
        marks.append(_primitive(scalar, many, optional))
    return Flag(field.name, _annotated(hint, *marks), default, about.get("group", ""), _metavar(field, kind) or "")


def _annotated(hint: Any, *marks: Any) -> Any:
    parts = (hint, *marks)
    return Annotated[parts]


def _metavar(field: dataclasses.Field, kind: type[Options]) -> str | None:
    scalar, many, optional = field_type(kind, field.name)
    if choices := field.metadata.get("choices"):
        return "{" + ",".join([*choices, *["none"] * optional]) + "}"
    if scalar is bool:
        return None
    return field.metadata.get("metavar") or ("NAME" if scalar is str else "N [N ...]" if many else "N")


def _primitive(scalar: type, many: bool, optional: bool) -> tyro.constructors.PrimitiveConstructorSpec:
    """Return tyro's rule to read and show a value; text that cannot be converted stays text, which Options refuses."""

    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        with contextlib.suppress(ValueError):
            return scalar(text)
        with contextlib.suppress(ValueError):
            return float(text) if scalar is int else text  # 1e6, which Options converts to 1000000
        return text

    def shown(value: Any) -> list[str]:
        return ["none" if one is None else str(one) for one in (value if many else (value,))]

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar="",
        instance_from_str=lambda texts: tuple(map(read, texts)) if many else read(texts[0]),
        is_instance=lambda value: True,
        str_from_instance=shown,
    )


def parse_flags(
    flags: Mapping[str, Flag], arguments: Sequence[str], prog: str, text: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the values by name, and the words that were not recognised.

    Raises:
        UsageError: if an argument or a value is missing, or too long.
        SystemExit: if help was requested, after it is printed.
    """
    for word in arguments:
        if len(word) > _LONGEST_WORD:
            raise UsageError(f"{brief(word)} has {len(word)} characters; expected at most {_LONGEST_WORD}")
    notes = io.StringIO()
    try:
        with contextlib.redirect_stderr(notes):
            # The fields hold the help texts; searching for them in source comments would take half of the time.
            found, unknown = tyro.cli(
                _grouped(flags),
                prog=prog,
                description=text,
                args=arguments,
                return_unknown_args=True,
                config=(tyro.conf.HelptextFromCommentsOff,),
            )
    except SystemExit as left:
        if not left.code:
            raise
        # An unknown flag may have swallowed the argument that is missing now: `--env Pendulum-v1`.
        known = {_flag_name(prefix + name) for name in {*flags} - {*ADVICE} for prefix in ("", "no_")}
        words = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        refuse_unknown([word for word in words if word not in known and _hint(word, [*flags], prog)], flags, prog)
        text = _tyro_message(notes.getvalue())
        without = re.match(r"Missing value for argument '--([\w-]+)'", text)
        flag = flags.get(without[1].replace("-", "_")) if without else None
        choices = f" One of {flag.metavar}." if flag and flag.metavar.startswith("{") else ""
        path = next((word for word in words if word not in known and re.search("[./]", word)), None)
        dash = f" {brief(path)} was taken for a flag; write ./{path}" if path else ""
        raise UsageError(text + choices + dash) from None
    holders = {flag.group: getattr(found, _identifier(flag.group)) if flag.group else found for flag in flags.values()}
    return {name: getattr(holders[flag.group], name) for name, flag in flags.items()}, unknown


def _grouped(flags: Mapping[str, Flag]) -> Callable[..., Any]:
    """Return the dataclass that tyro reads; each group of flags is a nested dataclass, which gets a heading."""
    groups: dict[str, list] = {}
    for flag in flags.values():
        groups.setdefault(flag.group, []).append(flag.field)
    own = groups.pop("", [])
    for group, fields in groups.items():
        inner = dataclasses.make_dataclass(_identifier(group), fields)
        hint = _annotated(inner, tyro.conf.OmitArgPrefixes)
        own.append((_identifier(group), hint, dataclasses.field(default_factory=inner)))
    return dataclasses.make_dataclass("Flags", own, kw_only=True)


def _identifier(group: str) -> str:
    return group.replace(" ", "_")


def refuse_unknown(unknown: Sequence[str], flags: Iterable[str], prog: str) -> None:
    """Refuse words that were not recognised.

    Raises:
        UsageError: if there is one; the message names the first, and a similar flag.
    """
    if unknown:
        word = next((token for token in unknown if token.startswith("-")), unknown[0]).partition("=")[0]
        hint = _hint(word, [*flags], prog) if word.startswith("-") else _hint_without_flag(word)
        raise UsageError(f"{prog} does not know {brief(word)}{hint}; all that it knows: {prog} --help")


def _hint(word: str, names: Sequence[str], prog: str) -> str:
    """Return a hint about the flag that was probably meant."""
    name = word.strip("-").replace("-", "_").lower()
    for candidate in (name, name.removeprefix("no_")):
        if here := renamed(candidate, names):
            return f"; it is {_flag_name(here)} here{meaning_here(candidate)}"
        if candidate in ADVICE:
            return f": {ADVICE[candidate].format(verb=prog.rpartition(' ')[2])}"
    if name in names:  # a positional argument
        return f": give its value without a flag, {prog} {name.upper()}"
    flags = {flag.strip("-"): flag for flag in map(_flag_name, names)}
    close = did_you_mean(word.strip("-"), flags, cutoff=0.7)
    return close.replace("did you mean '", "did you mean '--")


def _hint_without_flag(word: str) -> str:
    from ddpg.runs.env_factory import WRAPPERS  # imports gymnasium, which takes a second

    return f"; --wrap takes one wrapper, so write --wrap {word}" if word in WRAPPERS else ""


def _flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _tyro_message(box: str) -> str:
    """Return the message in tyro's box as one line, without the help below it."""
    blocks: list[list[str]] = [[]]
    for line in (line.strip(" │") for line in box.splitlines()):
        if re.match("╭|╰|──|---", line):
            blocks.append([])
        else:
            blocks[-1].append(line)
    # In an ASCII terminal, the title is not in the border of the box but on a line of its own above a rule.
    message = next((block for block in blocks[1:] if any(block)), blocks[0])
    return " ".join(" ".join(message).split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Options, abc.ABC):
    """A command: its fields are its flags, its docstring is its help, calling it does the work.

    Besides what :func:`~ddpg.config.options.option` takes, a field may have ``at_least``, its smallest value, and
    ``is_path=True``. Values are checked here, before a command imports TensorFlow.
    """

    def __post_init__(self):
        super().__post_init__()
        for field in dataclasses.fields(self):
            value, at_least = getattr(self, field.name), field.metadata.get("at_least")
            if at_least is not None:
                expected = f"at least {at_least}{self._or_none(field.name)}"
                self._check(value is None or value >= at_least, field.name, expected)
            if field.metadata.get("is_path") and value is not None:
                for path in value if isinstance(value, tuple) else (value,):
                    _check_path(path, field.name)

    @abc.abstractmethod
    def __call__(self) -> None:
        """Do it."""

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
            f"--{name.replace('_', '-')} on the command line"
            for name in cls.flags()
            if name != "env"  # which has no flag
        }

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Callable[[], None]:
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
        "a wrapper: gymnasium's FlattenObservation, TimeAwareObservation or GrayscaleObservation, or ActionMask, which "
        "appends info['action_mask'] for DQN",
        metavar="WRAPPER",
    )


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
        """Allow these imports inside the block, from the working directory too."""
        with allowing_imports(self.allow_import):
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressOption(Command):
    """A long command, with a progress bar."""

    progress_bar: bool = option(True, "show progress on stderr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithTracker(Command):
    """A command that trains, and can log to an experiment tracker."""

    track: str | None = option(
        None, "an experiment tracker to log to, besides the files of the run", metavar="{wandb,mlflow,trackio}"
    )

    def check_tracker(self) -> None:
        """Refuse a tracker that does not exist, before TensorFlow is imported.

        Raises:
            UsageError: if it is unknown, or its package is not installed.
        """
        if self.track is not None:
            from ddpg.runs.trackers import as_tracker

            as_tracker(self.track)


@contextlib.contextmanager
def allowing_imports(modules: Sequence[str]) -> Iterator[None]:
    """Allow references to modules inside the block, also from the working directory, without TensorFlow's notices."""

    def importer(name: str) -> types.ModuleType:
        with quiet_tensorflow():
            return importlib.import_module(name)

    import_from_working_directory(*modules)
    with imports_allowed(modules, importer):
        yield


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


def inspect_environment(env_id: str, wrappers: Sequence[str]) -> "tuple[str, str, type[AgentConfig], gym.Env]":
    """Return an environment's id without its module, its algorithm, that one's options class, and itself, closed."""
    from ddpg.config.algorithm_options import CONFIGS
    from ddpg.interaction.env_calls import close_quietly
    from ddpg.interaction.spaces import algorithm_for
    from ddpg.runs.env_factory import env_id_of, make_env

    import_from_working_directory(env_id.rpartition(":")[0])
    env = make_env(env_id, wrappers)
    name, algorithm = env_id_of(env), algorithm_for(env.action_space)
    close_quietly(env)
    return name, algorithm, CONFIGS[algorithm], env


def own_options(algorithm: str, usual: "type[AgentConfig]", env_id: str) -> "type[AgentConfig]":
    """Return the options class of a user's own algorithm.

    Args:
        algorithm: its name, ``module:Name``.
        usual: the options class of the algorithm that would otherwise train in the environment.
        env_id: the environment, for messages.

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
