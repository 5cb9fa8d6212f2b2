"""The commands ``ddpg train`` and ``ddpg resume``."""

import dataclasses
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpg.cli.command import (
    Answer,
    Command,
    EnvironmentCommand,
    JSONOption,
    ProgressOption,
    WithImports,
    check_own_options,
    import_with_tensorflow,
    inspect_environment,
    own_options,
)
from ddpg.cli.flags import Flag, flag_name, flags_of, parse_flags, refuse_unknown
from ddpg.cli.terminal import stdout_reserved_for_answer
from ddpg.config.imports import references_in
from ddpg.config.options import as_toml, check_known, from_toml, option
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError
from ddpg.progress import format_number, print_to_stderr

if TYPE_CHECKING:
    from ddpg.config.algorithm_options import AgentConfig
    from ddpg.config.presets import Preset

_ALL = (
    "Train in an environment; writes runs/ENV/N/.\n\nThese are the options of every algorithm.\n\n"
    "For ENV's own options, with its preset as the defaults: ddpg train ENV --help"
)

_RESUME = (
    "Resume an interrupted run.\n\nOptions of ddpg train, such as --batch-size, may change on the way.\n\n"
    "Those that may, with the values of RUN: ddpg resume RUN --help"
)

# Flags of ddpg train that are arguments of ddpg.train, too: settings that a study also has, and those of a single run.
_SETTINGS = (
    *("total_timesteps", "evaluation_interval", "evaluation_episodes", "n_envs", "vectorization"),
    *("collector", "workers"),
)
_OF_ONE_RUN = ("ray_address", "dataset", "offline_timesteps", "diagnose", "track")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithTracker(Command):
    """A command that trains, and can log to an experiment tracker."""

    track: str | None = option(
        None, "an experiment tracker to log to, besides the files of the run", ("wandb", "mlflow", "trackio")
    )

    def check_tracker(self) -> None:
        """Refuse a tracker that does not exist, before TensorFlow is imported.

        Raises:
            UsageError: if it is unknown, or its package is not installed.
        """
        if self.track is not None:
            from ddpg.runs.trackers import as_tracker

            as_tracker(self.track)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(JSONOption, ProgressOption, WithTracker, WithImports, EnvironmentCommand):
    """Train in an environment; writes runs/ENV/N/."""

    seed: int | None = option(None, "seed of weights, exploration and environment; none: a random one", at_least=0)
    seeds: int | None = option(
        None,
        "train this many seeds, from --seed or 0 on, at the same time: a study in ROOT/ENV/seeds, with a table at the "
        "end; the same command goes on, with more seeds too",
        at_least=1,
        at_most=10_000,
    )
    total_timesteps: int | None = option(
        None, "environment steps; none: the preset's, or 100000 without one", at_least=1
    )
    recipe: str | None = option(None, "a named set of defaults: one of ddpg/recipes, or a TOML file", metavar="NAME")
    config: str | None = option(None, "a TOML file with the options below; flags override it", metavar="FILE")
    algorithm: str | None = option(
        None,
        "an algorithm of your own, with --allow-import; none: DDPG, or DQN for discrete actions",
        metavar="MODULE:NAME",
    )
    root: str = option("runs", "where runs are kept", metavar="DIR", is_path=True)
    evaluation_interval: int | None = option(
        None,
        "steps between evaluations; none: a twentieth of all, or more where that would cut episodes",
        at_least=1,
    )
    evaluation_episodes: int = option(10, "episodes per evaluation", at_least=1)
    n_envs: int = option(1, "environments to act in at the same time", at_least=1)
    vectorization: str = option(
        "sync",
        "how several environments are stepped; sync: in this process; async: a process each; envpool: its own threads",
        ("sync", "async", "envpool"),
    )
    collector: str = option(
        "local",
        "who steps the environment; process: workers that are processes of this machine; ray: workers on a Ray cluster",
        ("local", "process", "ray"),
    )
    workers: int | None = option(None, "number of workers, with --collector process or ray", at_least=1)
    ray_address: str | None = option(
        None, "address of a Ray cluster; none: start one on this machine", metavar="ADDRESS"
    )
    dataset: str | None = option(
        None,
        "learn from recorded transitions: an .npz file, or minari:NAME; a timestep is an update then, and the "
        "environment is for evaluations; without --recipe the options are those of td3_bc",
        metavar="FILE|minari:NAME",
    )
    offline_timesteps: int | None = option(
        None, "with --dataset: timesteps to learn from it before stepping the environment; none: all", at_least=0
    )
    diagnose: bool = option(False, "write diagnostics.csv: the state of the networks, for ddpg plot RUN --diagnose")

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Callable[[], Answer]:
        """Return the training that the arguments describe, ready to be called; they are parsed twice.

        The first pass knows the options of every algorithm and finds the environment and the file. The second knows
        the environment's own options and their defaults. Precedence: flag > file > preset or recipe > default.
        """
        from ddpg.agents.resource_limits import with_fitting_buffer
        from ddpg.config.presets import default_options, hints_for, offline_recipe, preset_for

        every = cls.flags() | _options_of_all_algorithms()
        words, helped = _without_help(arguments)
        try:
            first, unknown = parse_flags(every, words, prog, _ALL)
            if first["algorithm"] is None:
                refuse_unknown(unknown, every, prog)
            asked = cls(**{name: first[name] for name in cls.flags()})
        except UsageError:
            if helped:
                parse_flags(every, helped, prog, _ALL)
            raise
        with stdout_reserved_for_answer(asked.json):
            name, algorithm, kind, env = inspect_environment(asked.source)
        if asked.algorithm is not None:
            algorithm = asked.algorithm
            with stdout_reserved_for_answer(asked.json), asked.imports_allowed():
                kind = own_options(algorithm, kind, name)
            if taken := [option for option in flags_of(kind) if option in cls.flags()]:
                raise UsageError(
                    f"{kind.__name__} has an option {taken[0]!r}, which is a flag of {prog} too; give it another name"
                )
            every |= flags_of(kind)
            refuse_unknown(parse_flags(every, words, prog, _ALL)[1], every, prog)

        preset = preset_for(name, kind)
        recipe = asked.recipe
        if recipe is None and asked.dataset is not None:
            recipe = offline_recipe(kind)
        usual_values = default_options(kind, name, asked.total_timesteps or preset.total_timesteps, recipe)
        values, buffer_note = with_fitting_buffer(usual_values, kind, (env.observation_space, env.action_space))
        buffer = values["buffer_size"]
        hints = hints_for(kind, name)
        if asked.config is not None:
            values = values | from_toml(kind, read_toml(asked.config), kind.__name__, hints | cls.flag_hints())
        options = flags_of(kind, values)
        flags = cls.flags({"total_timesteps": preset.total_timesteps}) | options
        whose = f"those of the recipe {recipe}" if recipe is not None else _origin_of_defaults(name, kind, preset)
        text = f"Train {algorithm} in {name}; writes runs/{name}/N/.\n\nThe defaults are {whose}."
        found, unknown = parse_flags(flags, helped or words, prog, text)
        _refuse_options_of_others(kind, unknown, hints)
        values = {option: found.pop(option) for option in options}
        try:
            with stdout_reserved_for_answer(asked.json), asked.imports_allowed():
                if references_in(values.values()):
                    import_with_tensorflow(say=asked.progress_bar)  # their modules would import it without a message
                config = kind(**values)
                if asked.algorithm is not None:
                    check_own_options(algorithm, config)
        except UsageError as error:
            usual = preset.recipe if recipe is None else recipe
            if asked.recipe is not None or usual is None:
                raise
            raise UsageError(
                f"{error} (the defaults of {name} are those of the recipe {usual}; for plain DDPG give --recipe ddpg)"
            ) from None
        if buffer_note and config.buffer_size == buffer and not helped:
            print_to_stderr(buffer_note)
        return functools.partial(cls(**found), config, name)

    def __call__(self, config: "AgentConfig | None" = None, name: str = "") -> Answer:
        """Train with these options in the environment of this id, without its module, and report."""
        from ddpg.runs.dataset import check_offline
        from ddpg.workers.worker_options import check_collector

        if self.seeds is not None:
            assert config is not None  # ``parse`` gives it
            return self._train_seeds(config, name)
        self.check_tracker()
        check_offline(self.dataset, self.offline_timesteps, self.collector)
        check_collector(self.collector, self.workers, self.ray_address)
        import_with_tensorflow("ddpg.runs.training", say=self.progress_bar)
        from ddpg.runs import training

        run = training.train(
            self.env,
            config,
            seed=self.seed,
            root=self.root,
            wrappers=self.wrap,
            env_kwargs=self.source.kwargs,
            progress_bar=self.progress_bar,
            **{name: getattr(self, name) for name in (*_SETTINGS, *_OF_ONE_RUN)},
        )
        return report_on(run)

    def _train_seeds(self, config: "AgentConfig", name: str) -> Answer:
        """Describe several seeds as a study, and run it as ``ddpg study`` does.

        Raises:
            UsageError: if an option is given that the runs of a study do not have; errors as of ``ddpg study``, too.
        """
        from ddpg.checkpoints import atomic_write
        from ddpg.cli.studies import Study
        from ddpg.runs import run_directory

        assert self.seeds is not None
        for flag in _OF_ONE_RUN:
            if getattr(self, flag) not in (None, False):
                raise UsageError(f"{flag_name(flag)} is for a single run; leave it or --seeds out")
        run_directory.check_root(self.root)
        module, root, first = self.env.rpartition(":")[0], Path(self.root, name, "seeds"), self.seed or 0
        study = {"environments": [self.env], "seeds": list(range(first, first + self.seeds))}
        study |= {field: getattr(self, field) for field in _SETTINGS}
        study |= {"wrappers": list(self.wrap), "env_kwargs": list(self.env_kwargs)}
        options = config.to_json() | ({} if self.algorithm is None else {"algorithm": self.algorithm})
        given = as_toml({field: value for field, value in study.items() if value is not None})
        root.parent.mkdir(parents=True, exist_ok=True)
        file = root.with_suffix(".toml")  # the study copies it into its folder, unless its runs are of other options
        atomic_write.write_text(file, f"{given}\n[configurations.train]\n{as_toml(options)}")
        modules = tuple(dict.fromkeys([*self.allow_import, *[module] * bool(module)]))
        answer = Study(study=str(file), root=str(root), allow_import=modules, progress_bar=self.progress_bar)()
        where = f"The runs are {root}/train/SEED/{name}/1; for other options give another --root"
        return answer._replace(text=f"{answer.text}\n{where}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume(JSONOption, ProgressOption, WithTracker, WithImports):
    """Resume an interrupted run."""

    run: str = option(
        dataclasses.MISSING, "a run directory, e.g. runs/Pendulum-v1/1", positional=True, metavar="RUN", is_path=True
    )
    total_timesteps: int | None = option(None, "train up to this many steps; none: the run's own goal", at_least=1)
    checkpoint: str = option(
        "latest",
        "checkpoint to resume from: latest, or its number of steps, and then everything after them is removed from RUN",
        metavar="N",
    )
    evaluation_interval: int | None = option(None, "new steps between evaluations; none: as before", at_least=1)
    workers: int | None = option(None, "new number of workers; none: as before", at_least=1)
    ray_address: str | None = option(None, "new address of the Ray cluster; none: as before", metavar="ADDRESS")
    offline_timesteps: int | None = option(
        None,
        "for a run with a data set: the timestep from which it steps the environment; none: as before",
        at_least=0,
    )

    @classmethod
    def parse(cls, arguments: Sequence[str], prog: str) -> Callable[[], Answer]:
        """Return the training that the arguments describe, ready to be called; they are parsed twice.

        The second pass knows the options of the run, whose defaults are its own values.
        """
        from ddpg.config.changeable_options import CHANGEABLE, check_changeable
        from ddpg.config.presets import hints_for
        from ddpg.runs import run_directory
        from ddpg.runs.listing import options_class

        words, helped = _without_help(arguments)
        own, every = cls.flags(), cls.flags() | _options_of_all_algorithms()
        try:
            first, unknown = parse_flags(every, words, prog, _RESUME)
            refuse_unknown(unknown, every, prog)
            document = run_directory.read_config(cls(**{name: first[name] for name in own}).run)
        except UsageError:
            if helped:
                parse_flags(own, helped, prog, _RESUME)
            raise
        kind, config = options_class(document["algorithm"], document["config"]), document["config"]
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}
        options = {} if kind is None else flags_of(kind, values)
        if helped:
            changeable = {name: flag for name, flag in options.items() if name in CHANGEABLE}
            parse_flags(own | changeable, helped, prog, _RESUME)
        found, unknown = parse_flags(own | options, words, prog, _RESUME)
        if kind is not None:
            _refuse_options_of_others(kind, unknown, hints_for(kind, document["env_id"]))
        refuse_unknown(unknown, own, prog)
        given = {name: found.pop(name) for name in options}
        changes = {name: value for name, value in given.items() if value != options[name].default}
        if kind is not None:
            check_changeable(kind, changes)
        return functools.partial(cls(**found), changes)

    def __call__(self, changes: Mapping[str, Any] | None = None) -> Answer:
        """Resume with these options changed, and report."""
        with self.imports_allowed():
            self.check_tracker()
            import_with_tensorflow("ddpg.runs.training", say=self.progress_bar)
            from ddpg.runs import training

            run = training.resume(
                self.run,
                options=changes,
                total_timesteps=self.total_timesteps,
                which=self.checkpoint,
                evaluation_interval=self.evaluation_interval,
                allow_import=self.allow_import,
                workers=self.workers,
                ray_address=self.ray_address,
                offline_timesteps=self.offline_timesteps,
                progress_bar=self.progress_bar,
                track=self.track,
            )
        return report_on(run)


def report_on(run: Path) -> Answer:
    """Return the path of a run, its speed, and its last evaluation."""
    from ddpg.runs import run_directory
    from ddpg.runs.commands import as_argument, command_for
    from ddpg.runs.tables import read_table

    document = run_directory.read_config(run)
    env_id = document["env_id"]
    # A run that was stopped early may have no row yet.
    metrics, evaluation = ((read_table(run / f"{name}.csv") or [{}])[-1] for name in ("metrics", "evaluations"))
    timesteps = int(run_directory.checkpoints(run)[-1].name)
    seconds, compiling = (float(metrics.get(name) or 0) for name in ("seconds", "compile_seconds"))
    steps = int(metrics.get("timesteps", 0))
    summary = {
        "run": str(run),
        "env_id": env_id,
        "seed": document["seed"],
        "timesteps": timesteps,
        "finished": timesteps >= document["total_timesteps"],
        "steps_per_second": steps / max(seconds - compiling, 1e-9),  # of all processes; the table's are of the last
        "training_seconds": seconds,
        "compile_seconds": compiling,
        "evaluation_mean_return": float(evaluation["mean_return"]) if evaluation else None,
        "evaluation_episodes": int(evaluation.get("episodes") or 0),
        "evaluation_success_rate": float(evaluation["success_rate"]) if evaluation.get("success_rate") else None,
    }
    lines = []
    if evaluation and summary["finished"]:  # a run that stopped early has printed it already
        success = summary["evaluation_success_rate"]
        until = timesteps if document["offline_timesteps"] is None else document["offline_timesteps"]
        unit = "updates" if document["dataset"] is not None and timesteps <= until else "steps"
        lines.append(
            f"{env_id}: evaluation return {format_number(summary['evaluation_mean_return'])}"
            + (f", success rate {success:.0%}," if success is not None else "")
            + f" after {int(evaluation['timesteps']):,} {unit}, {seconds:.1f} s of training "
            f"({compiling:.1f} s of them compiling), {summary['steps_per_second']:,.0f} {unit}/s without those"
        )
    lines.append(f"Everything is in {run}; evaluate it with: {command_for('evaluate', run, document)}")
    lines.append(f"Its curves (pip install tensorboard): {shlex.join(['tensorboard', '--logdir', as_argument(run)])}")
    return Answer(summary, "\n".join(lines))


def _origin_of_defaults(name: str, kind: type["AgentConfig"], preset: "Preset") -> str:
    """Return where the defaults of an environment come from, for its help."""
    from ddpg.config.presets import PRESETS, preset_name

    of_recipe = "" if preset.recipe is None else f"those of the recipe {preset.recipe}"
    if (of := preset_name(name, kind)) is not None:
        whose = f"those of {of}'s preset" if of in PRESETS and of != name else "its preset's"
        return whose + (f", {of_recipe}" if of_recipe else "")
    return f"{of_recipe or 'the same everywhere'}: {name} has no preset"


def _without_help(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that do not ask for help, and ``["--help"]`` if the others do."""
    words = [word for word in arguments if word not in ("-h", "--help")]
    return words, ["--help"] * (len(words) < len(arguments))


def _refuse_options_of_others(kind: type["AgentConfig"], unknown: Sequence[str], hints: Mapping[str, str]) -> None:
    """Refuse an option that ``kind`` does not have, the first of the words ``unknown`` that were not recognised."""
    names = [word[2:].partition("=")[0].removeprefix("no-").replace("-", "_") for word in unknown[:1]]
    check_known(kind, names, kind.__name__, hints)


def _options_of_all_algorithms() -> dict[str, Flag]:
    """Return the options of all algorithms.

    If only one algorithm has an option, the option's help names it; if defaults differ, the help has each.
    """
    from ddpg.config.algorithm_options import CONFIGS

    owners: dict[str, dict[str, object]] = {}
    for algorithm, kind in CONFIGS.items():
        for field in dataclasses.fields(kind):
            owners.setdefault(field.name, {})[algorithm] = "none" if field.default is None else field.default
    notes = {
        name: f" [{', '.join(f'{whose}: {default}' for whose, default in defaults.items())}]"
        if len(defaults) == len(CONFIGS)
        else f" [{next(iter(defaults))}]"
        for name, defaults in owners.items()
        if len(defaults) < len(CONFIGS) or len({*map(str, defaults.values())}) > 1
    }
    return {name: flag for kind in CONFIGS.values() for name, flag in flags_of(kind, notes=notes).items()}
