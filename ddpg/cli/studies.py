"""The commands ``ddpg study`` and ``ddpg tune``. Only the processes that train their cells import TensorFlow."""

import collections
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ddpg.cli.command import (
    Answer,
    Command,
    EnvironmentCommand,
    JSONOption,
    ProgressOption,
    WithImports,
    check_own_options,
    inspect_environment,
    own_options,
)
from ddpg.cli.flags import flag_name
from ddpg.config.options import from_toml, option
from ddpg.config.toml_file import read_toml
from ddpg.errors import CellsFailed, FileFault, UsageError, file_faults
from ddpg.progress import progress_message
from ddpg.studies.slurm_commands import SlurmOptions

if TYPE_CHECKING:
    from ddpg.config.algorithm_options import AgentConfig
    from ddpg.studies.engine_choice import EngineChoice
    from ddpg.studies.scheduler import StudyOutcome
    from ddpg.studies.search_space import Check
    from ddpg.studies.study_report import Report
    from ddpg.studies.tuning import TuningOutcome
    from ddpg.studies.tuning_plan import TuningPlan
    from ddpg.studies.tuning_report import TuningReport


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithEngine(SlurmOptions, Command):
    """A command that trains many runs, here or on a cluster."""

    jobs: int | None = option(
        None,
        "number of runs at a time; none: one per core, with Slurm all runs of a study, ten of a tuning",
        at_least=1,
        at_most=10_000,
    )
    engine: str = option(
        "process",
        "where runs are trained; process: processes of this machine; ray: a Ray cluster; slurm: array jobs of Slurm",
        ("process", "ray", "slurm"),
    )
    ray_address: str | None = option(
        None, "address of a Ray cluster; none: start one on this machine", metavar="ADDRESS"
    )

    def engine_choice(self) -> "EngineChoice":
        """Return the engine with its options."""
        from ddpg.studies.engine_choice import EngineChoice

        slurm = SlurmOptions(**{field.name: getattr(self, field.name) for field in dataclasses.fields(SlurmOptions)})
        return EngineChoice(self.engine, self.jobs, self.ray_address, slurm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(JSONOption, ProgressOption, WithEngine, WithImports):
    """Train all runs of a study: environments, configurations, seeds."""

    study: str = option(
        dataclasses.MISSING,
        "a TOML file that describes it (docs/studies.md)",
        positional=True,
        metavar="STUDY.toml",
        is_path=True,
    )
    root: str | None = option(
        None, "the study's folder; none: studies/ and the name of its file", metavar="DIR", is_path=True
    )
    retry: bool = option(False, "also retry cells that failed")
    report: bool = option(False, "only write the report of the cells that are done, also while the study runs")

    def __call__(self) -> Answer:
        """Run the cells that are left, and report."""
        if self.report and self.retry:
            raise UsageError("--report runs no cell, so --retry would do nothing; leave one of them out")
        path = Path(self.study)
        root = Path("studies", path.stem) if self.root is None else Path(self.root)
        report, outcome = self._report(path, root)
        left_out = {"unread": report.unread, "unwritten": report.unwritten}
        values = {"study": str(root), **_as_text(report.files), "rows": report.rows, "comparisons": report.comparisons}
        failure: UsageError | None = _left_out({"cells": report.unread, "files": report.unwritten})
        if failure is None and outcome is not None and outcome.failed:
            cell, why = next(iter(outcome.failed.items()))
            count = f"{len(outcome.failed)} of {outcome.cells} cells failed, {cell} with: {why}"
            failure = CellsFailed(f"{count}; when that is fixed, try them again with --retry")
        text = _with_files(report.markdown, report.files)
        return Answer(values | left_out | (vars(outcome) if outcome else {}), text, failure)

    def _report(self, path: Path, root: Path) -> "tuple[Report, StudyOutcome | None]":
        from ddpg.studies.study_report import write_report

        outcome = None
        if self.report:
            from ddpg.studies.study_folder import read_cells

            groups = read_cells(root)
        else:
            from ddpg.runs import run_directory
            from ddpg.studies.scheduler import run_study
            from ddpg.studies.study import read_study

            with self.imports_allowed(), progress_message("checking the cells", self.progress_bar):
                groups = read_study(path, self.allow_import, own_options, check_own_options)
            run_directory.check_root(root)
            outcome = run_study(
                path,
                root,
                groups,
                self.engine_choice(),
                retry=self.retry,
                progress_bar=self.progress_bar,
            )
        return write_report(root, groups), outcome


def _as_text(files: Mapping[str, Path | None]) -> dict[str, str | None]:
    return {name: None if path is None else str(path) for name, path in files.items()}


def _with_files(text: str, files: Mapping[str, Path | None]) -> str:
    """Return a report's text, and which files were written."""
    written = [str(path) for path in files.values() if path is not None]
    return f"{text}\nWritten: {', '.join(written)}" if written else text


def _left_out(lines_of: Mapping[str, list[str]]) -> FileFault | None:
    """Return the fault of a report from which anything was left out: by what it is, a line for each."""
    for what, lines in lines_of.items():
        if lines:
            return FileFault(f"{what} left out of the report: {len(lines)}; the first: {lines[0]}")
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tune(JSONOption, ProgressOption, WithEngine, WithImports, EnvironmentCommand):
    """Search for better options; leaves tuning/ENV/ with best.toml."""

    trials: int = option(50, "total number of trials, earlier ones included", at_least=1)
    total_timesteps: int | None = option(
        None, "environment steps of each seed of a trial; none: the preset's", at_least=1, at_most=2**53
    )
    seeds: int = option(1, "seeds per trial: 0, 1, ...; its value is their mean", at_least=1, at_most=10_000)
    fresh_seeds: int = option(
        5, "seeds of the final comparison: 1000, 1001, ...; 0: no comparison", at_least=0, at_most=10_000
    )
    recipe: str | None = option(
        None, "recipe to vary instead of the preset: one of ddpg/recipes, or a TOML file", metavar="NAME"
    )
    config: str | None = option(
        None, "a TOML file with options that override the preset's or the recipe's", metavar="FILE"
    )
    algorithm: str | None = option(
        None, "an algorithm of your own, with --allow-import; none: that of the environment", metavar="MODULE:NAME"
    )
    space: str | None = option(None, "a TOML file with the search space", metavar="FILE")
    tuning_seed: int = option(0, "seed of the search", at_least=0)
    prune: bool = option(True, "stop trials early that are worse than the median of the others")
    evaluation_interval: int | None = option(
        None,
        "steps between evaluations; none: a tenth of all, or more where that would cut episodes",
        at_least=1,
        at_most=2**53,
    )
    evaluation_episodes: int = option(10, "episodes per evaluation", at_least=1, at_most=100_000)
    root: str | None = option(
        None,
        "where trials are kept and resumed; none: tuning/ENV",
        metavar="DIR",
        is_path=True,
        aliases=("--storage",),
    )

    def __post_init__(self):
        super().__post_init__()
        from ddpg.studies.study import MAX_CELLS

        most = MAX_CELLS // self.seeds
        self._check(self.trials <= most, "trials", f"at most {most} with {self.seeds} seeds each: {MAX_CELLS} runs")

    def __call__(self) -> Answer:
        """Run the trials that are left, compare, and report."""
        with self.imports_allowed():
            root, report, tuned = self._tuned()
        files = {name: getattr(report, name) for name in ("results", "text", "best", "comparison", "figure")}
        best = {"trial": tuned.best.number, "value": tuned.best.value, **tuned.best.changes} if tuned.best else None
        summary = {
            "tuning": str(root),
            "trials": collections.Counter(trial.state for trial in tuned.trials),
            "files": _as_text(files),
            "best": best,
            "compared": {name: vars(one) for name, one in report.compared.items()},
            "comparison": report.comparison_of_best and dataclasses.asdict(report.comparison_of_best),
            "verdict": report.verdict,
            "unread": report.unread,
        }
        text = _with_files(report.text.read_text(encoding="utf-8"), files)
        return Answer(summary, text, _left_out({"runs": report.unread}) or _failures(tuned, self.trials))

    def _tuned(self) -> "tuple[Path, TuningReport, TuningOutcome]":
        from ddpg.runs import run_directory
        from ddpg.studies.trials import check_installed
        from ddpg.studies.tuning import run_tuning
        from ddpg.studies.tuning_report import write_tuning_report

        check_installed()
        plan, check = self._plan()
        root = Path("tuning", plan.base.name) if self.root is None else Path(self.root)
        run_directory.check_root(root)
        words = self._command_words()
        tuned = run_tuning(
            root,
            plan,
            self.trials,
            self.fresh_seeds,
            self.engine_choice(),
            again=words,
            check=check,
            progress_bar=self.progress_bar,
        )
        with file_faults(f"the trials are kept; with that put right, write the report with: {shlex.join(words)}"):
            return root, write_tuning_report(root, plan, tuned, words), tuned

    def _plan(self) -> "tuple[TuningPlan, Check]":
        """Return the checked plan of the tuning, and the check of each trial's options."""
        from ddpg.config.presets import default_options, hints_for, preset_for
        from ddpg.runs.env_factory import full_id
        from ddpg.runs.episode_limits import default_evaluation_interval, episode_limit
        from ddpg.studies.search_space import read_space, training_check
        from ddpg.studies.study import Group
        from ddpg.studies.tuning_plan import plan_of

        name, algorithm, kind, env = inspect_environment(self.source)
        if self.algorithm is not None:
            kind, algorithm = own_options(self.algorithm, kind, name), self.algorithm
        preset = preset_for(name, kind)
        total = self.total_timesteps or preset.total_timesteps
        usual, values = (default_options(kind, name, total, recipe) for recipe in (None, self.recipe))
        if self.config is not None:
            values |= from_toml(kind, read_toml(self.config), kind.__name__, hints_for(kind, name) | self.flag_hints())
        base = kind(**values).to_json()
        limit = episode_limit(self.source._replace(env_id=name))
        cells = Group(
            env_id=full_id(self.env, name),
            configuration="ground",
            algorithm=algorithm,
            seeds=list(range(self.seeds)),
            total_timesteps=total,
            evaluation_interval=self.evaluation_interval or default_evaluation_interval(limit, 1, total, share=10),
            evaluation_episodes=self.evaluation_episodes,
            final_episodes=0,
            n_envs=1,
            vectorization="sync",
            wrappers=list(self.wrap),
            env_kwargs=dict(self.source.kwargs),
            options=base,
        )
        in_environment = training_check(env, total, here=self.engine == "process")

        def check(config: "AgentConfig") -> None:
            in_environment(config)
            if self.algorithm is not None:
                check_own_options(self.algorithm, config)

        space = read_space(algorithm, base, self.space, check)
        return plan_of(cells, kind(**usual).to_json(), space, self.tuning_seed, self.prune), check

    def _command_words(self) -> list[str]:
        """Return the command with the flags that differ from their defaults."""
        words = ["ddpg", "tune", self.env]
        fields = {field.name: field for field in dataclasses.fields(self)}
        for name in self.flags():  # this command's own flags come first
            value, flag = getattr(self, name), flag_name(name)
            if name in ("env", "json", "progress_bar") or value == fields[name].default:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                for one in map(str, value if isinstance(value, tuple) else (value,)):
                    words += [f"{flag}={one}"] if one.startswith("-") else [flag, one]
        return words


def _failures(tuned: "TuningOutcome", wanted: int) -> CellsFailed | None:
    """Return the error if trials or cells of the comparison failed; ``wanted`` is ``--trials``."""
    more = f"failed trials are not repeated; for others give --trials of more than {wanted}"
    if tuned.stopped is not None:
        left = len(tuned.trials) < wanted
        then = "the same command tries what is left" if left else f"none of the {wanted} trials is left: {more}"
        return CellsFailed(f"{tuned.stopped}; when that is fixed, {then}")
    failed = [trial for trial in tuned.trials if trial.state == "failed"]
    if tuned.failed:
        cell, why = next(iter(tuned.failed.items()))
        counted = f"{len(tuned.failed)} cell{'s' * (len(tuned.failed) > 1)}"
        return CellsFailed(f"{counted} of the comparison failed, {cell} with: {why}; the same command tries again")
    if failed:
        return CellsFailed(
            f"{len(failed)} of {len(tuned.trials)} trials failed, {failed[0].number} with: {failed[0].reason}; the "
            f"results of the others are kept; {more}"
        )
    return None
