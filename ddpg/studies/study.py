"""Read a study from TOML: environments, configurations and seeds, all checked before any cell starts."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ddpg.checkpoints.manifest import AlgorithmName, Name, Option
from ddpg.checkpoints.safe_json import one_of
from ddpg.config.algorithm_options import CONFIGS, AgentConfig
from ddpg.config.imports import imports_allowed, references_in, references_of
from ddpg.config.name_hints import STUDIES
from ddpg.config.options import MOST_ITEMS, Options, check_names, coerce, from_toml, option
from ddpg.config.presets import hints_for, preset_for, random_steps_note, read_recipe
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError, brief, located
from ddpg.interaction.env_calls import close_quietly
from ddpg.interaction.spaces import algorithm_for
from ddpg.runs.env_factory import (
    VECTORIZATIONS,
    check_imports,
    check_vector,
    env_id_of,
    full_id,
    make_env,
)
from ddpg.runs.env_source import EnvSource, checked_kwargs, kwargs_of, words_of
from ddpg.runs.episode_limits import default_evaluation_interval, episode_limit
from ddpg.studies.search_space import training_check
from ddpg.workers.worker_options import COLLECTORS, check_collector, check_options

_NAME = r"[A-Za-z0-9][\w.+=-]*"  # allowed names of a configuration, which are also folder names
_LONGEST_NAME = 255  # maximum bytes of a folder's name on most file systems
MAX_CELLS = 100_000  # maximum cells of a study or a tuning; each has a folder, and all are listed in memory
_DEFAULT_CONFIGURATIONS: dict[str, Any] = {"preset": {}}  # for a study that names no configurations


class Files(NamedTuple):
    """Names of the files in a study's folder, beside the folders of its configurations."""

    cells: str = "study.json"
    copy: str = "study.toml"
    results: str = "results.csv"
    table: str = "table.csv"
    comparison: str = "comparison.csv"
    text: str = "table.md"
    figure: str = "curves.png"


FILES = Files()


@dataclasses.dataclass(frozen=True)
class Settings(Options):
    """Training settings of cells, for a whole study or for one of its environments."""

    seeds: tuple[int, ...] = option((0,), "the seeds; in TOML also their number, counted from 0")
    total_timesteps: int | None = option(None, "environment steps; none: as the preset", at_most=2**53)
    evaluation_interval: int | None = option(None, "steps between evaluations; none: as ddpg train", at_most=2**53)
    evaluation_episodes: int = option(10, "episodes per evaluation", at_most=100_000)
    final_episodes: int = option(0, "episodes of the evaluation after training; 0: no such evaluation")
    n_envs: int = option(1, "number of environments stepped together")
    vectorization: str = option("sync", "how several environments are stepped", VECTORIZATIONS)
    wrappers: tuple[str, ...] = option((), "gymnasium wrappers by name, with their arguments, the innermost first")
    env_kwargs: tuple[str, ...] = option((), "keyword arguments of the environment, each NAME=VALUE; in TOML a table")
    collector: str = option("local", "who steps the environment", COLLECTORS)
    workers: int | None = option(None, "number of workers, for process and ray")

    def __post_init__(self):
        super().__post_init__()
        for name in ("total_timesteps", "evaluation_interval", "evaluation_episodes"):
            value = getattr(self, name)
            self._check(value is None or value >= 1, name, "at least 1")
        self._check(self.final_episodes >= 0, "final_episodes", "at least 0")
        self._check(
            bool(self.seeds) and min(self.seeds) >= 0 and len({*self.seeds}) == len(self.seeds),
            "seeds",
            "different whole numbers, at least 0, or how many",
        )
        check_vector(self.n_envs, self.vectorization, self.wrappers, kwargs_of(self.env_kwargs))


@dataclasses.dataclass(frozen=True)
class EnvironmentSettings(Settings):
    """Training settings and configurations of the cells of one environment."""

    configurations: tuple[str, ...] = option((), "names of the configurations to train there; all by default")

    def __post_init__(self):
        super().__post_init__()
        self._check(len({*self.configurations}) == len(self.configurations), "configurations", "different names")


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The cells of one configuration in one environment; they differ only in their seed.

    Attributes:
        env_id: the environment's id with its version, and with a ``module:`` prefix if the study has one.
        algorithm: the name of the algorithm to which the options belong.
        options: all options, as in a run's ``config.json``.
    """

    env_id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    configuration: Annotated[str, msgspec.Meta(pattern=rf"^{_NAME}\Z")]
    algorithm: AlgorithmName
    seeds: list[Annotated[int, msgspec.Meta(ge=0)]]
    total_timesteps: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    evaluation_interval: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    evaluation_episodes: Annotated[int, msgspec.Meta(ge=1)]
    final_episodes: Annotated[int, msgspec.Meta(ge=0)]
    n_envs: Annotated[int, msgspec.Meta(ge=1)]
    vectorization: one_of(*VECTORIZATIONS)  # type: ignore[valid-type]
    wrappers: list[str]
    env_kwargs: dict[Name, Any] = {}
    collector: one_of(*COLLECTORS) = "local"  # type: ignore[valid-type]
    workers: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    options: dict[Name, Option]

    @property
    def source(self) -> EnvSource:
        """What the environment is made from."""
        return EnvSource(self.env_id, self.wrappers, self.env_kwargs)

    @property
    def references(self) -> list[str]:
        """The names ``module:Name`` that the cells import: of the environment, the algorithm and custom options."""
        return references_of({"env_id": self.env_id, "algorithm": self.algorithm, "config": self.options})

    @property
    def name(self) -> str:
        """The environment's id without ``module:``."""
        return self.env_id.rpartition(":")[2]

    def budget_note(self, what: str) -> str:
        """Return a one-line warning if more than a quarter of each run is random, or the empty string."""
        starts = self.options["learning_starts"]
        assert isinstance(starts, int)
        return random_steps_note(what, starts, self.total_timesteps, "learning_starts = {} in its options")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a study: a group and a seed."""

    group: Group
    seed: int

    def __str__(self) -> str:
        return f"{self.group.name} {self.group.configuration} seed {self.seed}"


def cells_of(groups: Sequence[Group]) -> list[Cell]:
    """Return the cells in order of their seeds, so that early results cover every configuration."""
    longest = max((len(group.seeds) for group in groups), default=0)
    return [Cell(group, group.seeds[index]) for index in range(longest) for group in groups if index < len(group.seeds)]


OptionsOf = Callable[[str, type[AgentConfig], str], type[AgentConfig]]
CheckOwn = Callable[[str, AgentConfig], None]


def _without_own_algorithms(name: str, usual: type[AgentConfig], env_id: str) -> type[AgentConfig]:
    raise UsageError(f"algorithm={name!r} is one of your own; give options_of, which returns the class of its options")


def read_study(
    path: str | Path,
    allow_import: Sequence[str] = (),
    options_of: OptionsOf = _without_own_algorithms,
    check_own: CheckOwn = lambda name, config: None,
) -> list[Group]:
    """Read and check the TOML file of a study (docs/studies.md).

    Args:
        path: the file.
        allow_import: modules that the study may import, for environments, algorithms and options that the file names
            as ``module:Name``.
        options_of: returns the options class of a custom algorithm, given its name, the options class of the built-in
            algorithm, and the environment's id. The caller provides it, because algorithms import TensorFlow.
        check_own: refuses options, with a ``UsageError``, that a custom algorithm does not use, given its name.

    Raises:
        UsageError: if a field is unknown or has an invalid value, an environment or recipe does not exist, options do
            not fit the environment, a module may not be imported, or there is nothing to train.
    """
    path = Path(path)
    values = read_toml(path)
    environments, configurations = values.pop("environments", ()), values.pop("configurations", _DEFAULT_CONFIGURATIONS)
    fields = [field.name for field in dataclasses.fields(Settings)]
    check_names([*fields, "environments", "configurations"], values, f"{path}", STUDIES)
    with located(f"{path}"):
        common = _settings(values)
        _check_configurations(configurations)
        tables = _environment_tables(environments)
        given = (table.values() for table in configurations.values() if isinstance(table, dict))
        check_imports([*tables, *references_in(itertools.chain(*given))], "it", allow_import)
        _check_unique([env_id.rpartition(":")[2] for env_id in tables])
        found: list[list[Group]] = []
        for env_id, table in tables.items():
            with imports_allowed(allow_import):
                own = options_of, check_own
                found.append([*_groups(path, env_id, common | table, configurations, *own)])
            if sum(len(group.seeds) for groups in found for group in groups) > MAX_CELLS:
                raise UsageError(f"more than {MAX_CELLS} cells; give fewer seeds, or divide it into several studies")
        _check_unique([groups[0].name for groups in found if groups])
    groups = [group for groups in found for group in groups]
    if not groups:
        raise UsageError(f"{path} has no cell to train; name environments, such as environments = ['Pendulum-v1']")
    return groups


def _check_unique(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"environment {name!r} is there twice, from different modules or without its version; name one of them"
            )


def _groups(
    path: Path,
    env_id: str,
    values: dict[str, Any],
    configurations: Mapping[str, Any],
    options_of: OptionsOf,
    check_own: CheckOwn,
) -> Iterator[Group]:
    """Yield the groups of an environment."""
    with located(f"environment {env_id!r}"):
        settings = EnvironmentSettings(**from_toml(EnvironmentSettings, _settings(values), "it"))
        check_names([*configurations], settings.configurations, "the table of configurations")
        kwargs = kwargs_of(settings.env_kwargs)
    env = make_env(EnvSource(env_id, settings.wrappers, kwargs))
    own_id = env_id_of(env)
    env_id, usual = full_id(env_id, own_id), algorithm_for(env.action_space)
    close_quietly(env)
    # The engine, and so the machine, is not known.
    check_in_environment = training_check(env, 0, here=False, in_processes=settings.vectorization == "async")
    limit = episode_limit(EnvSource(own_id, settings.wrappers, kwargs))
    for part in own_id.split("/"):
        _check_length("environment", part)
    for name in settings.configurations or configurations:
        with located(f"configuration {name!r} in {env_id}"):
            base, changes = _recipe(configurations[name], path.parent)
            algorithm = changes.pop("algorithm", usual)
            kind = CONFIGS[usual] if algorithm == usual else options_of(algorithm, CONFIGS[usual], env_id)
            preset = preset_for(own_id, kind)
            total = settings.total_timesteps or preset.total_timesteps
            collector, workers = _collector_of(settings, changes)
            given = (preset.options_for(kind, total) if base is None else base) | changes
            config = kind(**from_toml(kind, given, kind.__name__, hints_for(kind, own_id)))
            if algorithm != usual:
                check_own(algorithm, config)
            check_collector(collector, workers, None)
            if collector != "local":
                check_options(config, settings.n_envs)
            check_in_environment(config)
            usual_interval = default_evaluation_interval(limit, settings.n_envs, total, cuts=collector == "local")
        yield Group(
            env_id=env_id,
            configuration=name,
            algorithm=algorithm,
            seeds=list(settings.seeds),
            total_timesteps=total,
            evaluation_interval=settings.evaluation_interval or usual_interval,
            evaluation_episodes=settings.evaluation_episodes,
            final_episodes=settings.final_episodes,
            n_envs=settings.n_envs,
            vectorization=settings.vectorization,
            wrappers=list(settings.wrappers),
            env_kwargs=kwargs,
            collector=collector,
            workers=workers,
            options=config.to_json(),
        )


def _collector_of(settings: Settings, changes: dict[str, Any]) -> tuple[str, int | None]:
    """Remove collector and workers from a configuration's changes; return them, or the study's if it sets none."""
    own: dict[str, Any] = {name: changes.pop(name) for name in ("collector", "workers") if name in changes}
    if not own:
        return settings.collector, settings.workers
    own = {"collector": settings.collector} | own  # the study's collector, unless the configuration sets one
    found = Settings(**from_toml(Settings, own, "it"))
    return found.collector, found.workers


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the short forms of TOML expanded, such as a number of seeds."""
    count = values.get("seeds", ())
    if isinstance(count, int) and not isinstance(count, bool):
        if not 1 <= count <= MOST_ITEMS:
            alone = f"; for seed {count} alone write seeds = [{count}]" if count >= 0 else ""
            raise UsageError(
                f"seeds={brief(count)} must be 1 to {MOST_ITEMS}, a number of seeds, counted from 0{alone}"
            )
        values = values | {"seeds": range(count)}
    else:
        try:
            coerce(Settings, "seeds", count)
        except UsageError:
            raise UsageError(
                f"seeds={brief(count)} must be how many, such as 3 for seeds 0, 1 and 2, or a list of whole numbers, "
                f"such as [3] for seed 3 alone; at most {MOST_ITEMS}"
            ) from None
    for name in ("wrappers", "configurations"):
        if isinstance(values.get(name), str):
            raise UsageError(f"{name}={values[name]!r} must be a list of names")
    if isinstance(kwargs := values.get("env_kwargs"), dict):
        return values | {"env_kwargs": words_of(checked_kwargs(kwargs))}
    return values


def _environment_tables(environments: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of each environment, given as a list of ids or a table of tables."""
    if isinstance(environments, dict) and all(isinstance(table, dict) for table in environments.values()):
        return environments
    if isinstance(environments, (list, tuple)) and all(isinstance(name, str) for name in environments):
        return {name: {} for name in environments}
    raise UsageError(
        f"environments={environments!r} must be a list of ids, or a table of them, such as [environments.'Pendulum-v1']"
    )


def _check_configurations(configurations: Any) -> None:
    if not isinstance(configurations, dict):
        raise UsageError(f"configurations={configurations!r} must be a table, such as [configurations.slow]")
    if not configurations:
        raise UsageError(
            "the table of configurations is empty; add one, such as [configurations.slow], or leave the table out, and "
            "the preset is trained"
        )
    written: dict[str, str] = {}
    for name, value in configurations.items():
        if (other := written.setdefault(name.lower(), name)) != name:
            raise UsageError(
                f"configurations {other!r} and {name!r} differ only in case, and give a folder its name, which would "
                "be the same on macOS and Windows; rename one"
            )
        if not re.fullmatch(_NAME, name):
            raise UsageError(
                f"configuration {name!r} gives a folder its name; use letters, digits and . _ + = -, a letter or a "
                "digit first"
            )
        if name.lower() in FILES:
            raise UsageError(
                f"configuration {name!r} gives a folder its name, and the study writes a file of that name beside it; "
                "use another one"
            )
        _check_length("configuration", name)
        if not isinstance(value, (dict, str)):
            raise UsageError(f"configuration {name!r} is {value!r}; give a table of options, or the name of a recipe")


def _check_length(what: str, name: str) -> None:
    if (length := len(name.encode())) > _LONGEST_NAME:
        raise UsageError(
            f"{what} {brief(name)} has {length} bytes and gives a folder its name; use one of at most {_LONGEST_NAME}"
        )


def _recipe(configuration: dict[str, Any] | str, beside: Path) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the options of a configuration's recipe, or ``None`` without one, and the options that it sets itself."""
    changes = {"recipe": configuration} if isinstance(configuration, str) else {**configuration}
    recipe = changes.pop("recipe", None)
    if recipe is None:
        return None, changes
    if not isinstance(recipe, str):
        raise UsageError(f"recipe={recipe!r} must be the name of one")
    return read_recipe(recipe, beside), changes
