"""A training run from start to finish: environment, agent, run directory, evaluations, checkpoints."""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents import resource_limits
from ddpg.agents.learn_loop import OfflineLoop
from ddpg.agents.off_policy import OffPolicyAgent, agent_for, load_agent
from ddpg.algorithms.registry import algorithm_of
from ddpg.checkpoints import checkpoint, target_dir
from ddpg.config.algorithm_options import AgentConfig
from ddpg.config.imports import imports_allowed, references_of
from ddpg.config.presets import budget_note, offline_recipe, preset_for, recipe_options
from ddpg.errors import EnvironmentFault, UsageError, brief, file_faults
from ddpg.interaction import env_calls
from ddpg.interaction.env_runner import spaces_of
from ddpg.interaction.validation import (
    is_real,
    validate_bool,
    validate_int,
    validate_names,
    validate_path,
    validate_text,
)
from ddpg.progress import print_to_stderr
from ddpg.runs import dataset as datasets
from ddpg.runs import run_config, run_directory, run_loop, signals
from ddpg.runs.env_factory import (
    check_imports,
    check_vector,
    default_evaluation_interval,
    env_id_of,
    full_id,
    make_env,
    make_training_env,
)
from ddpg.runs.lock import run_lock
from ddpg.runs.recorder import RUN_STATE
from ddpg.runs.run_config import differences, versions_here
from ddpg.runs.run_state import RunState
from ddpg.runs.trackers import as_tracker
from ddpg.workers.remote_loop import learning_from_workers
from ddpg.workers.worker_options import check_collector, check_options


def train(
    env_id: str,
    config: AgentConfig | None = None,
    *,
    seed: int | None = None,
    total_timesteps: int | None = None,
    root: str | Path = "runs",
    evaluation_interval: int | None = None,
    evaluation_episodes: int = 10,
    n_envs: int = 1,
    vectorization: str = "sync",
    wrappers: Sequence[str] = (),
    collector: str = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    dataset: str | Path | None = None,
    offline_timesteps: int | None = None,
    diagnose: bool = False,
    progress_bar: bool = True,
    track: str | None = None,
) -> Path:
    """Train in ``env_id`` (DDPG, or DQN where actions are discrete) and leave everything in a new run directory.

    The first SIGINT or SIGTERM saves the run and returns, where this is Python's main thread; before there is a run
    it is a ``KeyboardInterrupt``.

    Args:
        env_id: as for ``gymnasium.make``, or ``module:Id``.
        config: the options; by default the environment's preset, or the recipe ``plus`` where it has none, of which a
            run shorter than usual has fewer random steps (:meth:`ddpg.config.presets.Preset.options_for`).
        seed: ``None``: a random one, noted in ``config.json``.
        total_timesteps: environment steps, over all environments; the preset's by default.
        root: where run directories are kept.
        evaluation_interval: steps between evaluations (and checkpoints); a twentieth of the run by default, and of a
            vector, whose episodes are cut there, no less than two episodes of each environment.
        evaluation_episodes: episodes of each.
        n_envs: environments to act in at the same time; evaluations are in one.
        vectorization: of several: ``"sync"``, in this process, or ``"async"``, in a process each, which imports the
            main module (so a script of one's own says ``if __name__ == "__main__":``), or ``"envpool"``, EnvPool's
            environments of that id in threads; evaluations are in gymnasium's.
        wrappers: of gymnasium, by name, the innermost first: those of :data:`ddpg.runs.env_factory.WRAPPERS`.
        collector: who steps the environment: ``"local"``, this process; ``"process"``, workers that are processes of
            this machine (which import the main module, too); ``"ray"``, workers on a Ray cluster. docs/scaling.md.
        workers: how many of them.
        ray_address: of a Ray cluster; none: one on this machine, which ends with the run.
        dataset: transitions to learn from, an ``.npz`` file or ``"minari:NAME"`` (docs/offline.md). A timestep is one
            update then, and the environment is for evaluations alone. Without ``config`` DDPG has the options of the
            recipe ``td3_bc``.
        offline_timesteps: of a run with a data set, how many timesteps are such; the others step the environment.
            ``None``: all.
        diagnose: write ``diagnostics.csv``: dormant units, norms, step sizes, Q against returns
            (docs/how_to/diagnose.md). What is learned is the same with and without it.
        progress_bar: show one on stderr.
        track: an experiment tracker to log to, too: ``"wandb"``, ``"mlflow"`` or ``"trackio"``.

    Returns:
        The run directory.

    Raises:
        UsageError: if an environment or an option cannot work; nothing is written then.
        EnvironmentFault: if the environment failed; what was learned until then is saved.
        FileFault: if a file could not be written.
    """
    _check_counts(seed, total_timesteps, evaluation_interval, evaluation_episodes)
    _check_names(env_id=env_id, vectorization=vectorization, collector=collector)
    progress_bar, config = validate_bool(progress_bar, "progress_bar"), _validate_config(config)
    diagnose = validate_bool(diagnose, "diagnose")
    wrappers, root = validate_names(wrappers, "wrappers"), validate_path(root, "root")
    run_directory.check_root(root)
    if track is not None:
        as_tracker(track)  # refused before anything is made
    n_envs = check_vector(n_envs, vectorization, wrappers)
    check_collector(collector, workers, ray_address)
    _check_offline(dataset, offline_timesteps, collector)
    with env_calls.own_directory(), signals.stop_on_signals() as request, contextlib.ExitStack() as collected:
        env, name = _environment(env_id, n_envs, vectorization, wrappers, request)
        kind = agent_for(spaces_of(env)[1], config)
        preset = preset_for(name, kind.config_class)
        total_timesteps = preset.total_timesteps if total_timesteps is None else int(total_timesteps)
        if config is None:
            config = kind.config_class(**_usual_options(name, kind.config_class, total_timesteps, dataset))
            buffer, too_much = resource_limits.buffer_that_fits(config.buffer_size, *spaces_of(env))
            config = config.replace(buffer_size=buffer)
            if too_much:
                print_to_stderr(too_much)
        agent = kind(env, config, seed)
        if collector != "local":
            check_options(agent.config, n_envs)
        if dataset is not None:
            datasets.fill(agent, dataset)
        agent.check_learning(total_timesteps)
        resource_limits.check_counts(agent.config)
        if dataset is None and (short := budget_note(name, agent.config, total_timesteps)):
            print_to_stderr(short)
        usual = default_evaluation_interval(name, n_envs, total_timesteps, collector)
        document = {
            "env_id": full_id(env_id, name),
            "algorithm": algorithm_of(agent.config),
            "seed": agent.seed,
            "total_timesteps": total_timesteps,
            "evaluation_interval": int(evaluation_interval or usual),
            "evaluation_episodes": int(evaluation_episodes),
            "n_envs": n_envs,
            "vectorization": vectorization,
            "wrappers": list(wrappers),
            "collector": collector,
            "workers": None if workers is None else int(workers),
            "ray_address": ray_address,
            "dataset": None if dataset is None else str(dataset),
            "offline_timesteps": None if offline_timesteps is None else int(offline_timesteps),
            "diagnose": diagnose,
            "config": agent.config.to_json(),
            "versions": versions_here(),
            "command": _command(),
        }
        run_config.text_of(document)  # refuses what cannot be written, before anything is
        if request.number is not None:
            raise KeyboardInterrupt(request.resumable())
        collected.enter_context(_collector(agent, document))
        with file_faults("nothing was begun"):
            run = run_directory.create(root, name, document, agent.save)
        with run_lock(run):
            run_loop.run_to_goal(
                run, document, agent, RunState.begun(agent.metrics, agent.counts), request, progress_bar, track
            )
    return run


def resume(
    run: str | Path,
    *,
    config: AgentConfig | None = None,
    total_timesteps: int | None = None,
    which: str = "latest",
    allow_import: Sequence[str] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    offline_timesteps: int | None = None,
    progress_bar: bool = True,
    track: str | None = None,
) -> Path:
    """Go on with a run from its latest checkpoint, to its goal or to a new one.

    On the same machine, with the same versions, the run ends as if it had never been interrupted
    (docs/reliability.md), unless it has workers: it goes on with new episodes then. A damaged checkpoint is passed over
    for the one before it, with a warning.

    Args:
        run: the run directory.
        config: instead of the run's, and noted in it: needed where that held callables of one's own.
        total_timesteps: a new goal.
        which: ``"latest"``, or the timesteps of a checkpoint to go back to; later ones are removed.
        allow_import: modules that the run may import: of an environment, an algorithm, or an option that its file names
            as ``module:Name``.
        workers, ray_address: of a run with workers, others than it began with.
        offline_timesteps: of a run with a data set: from which timestep on it steps the environment; no less than it
            has learned from the data, and the same as before once it has stepped the environment.
        progress_bar: show one on stderr.
        track: an experiment tracker to log to, too: ``"wandb"``, ``"mlflow"`` or ``"trackio"``.

    Returns:
        The run directory.

    Raises:
        UsageError: if ``run`` is not a run directory, has no checkpoint, is being written by another process, or has
            reached its goal; if an option cannot be written to a file, ``offline_timesteps`` contradicts what the run
            has done, or a module is not allowed.
        EnvironmentFault: if the environment failed; what was learned until then is saved.
        FileFault: if a file is damaged, or could not be written.
    """
    run = validate_path(run, "run")
    progress_bar, config = validate_bool(progress_bar, "progress_bar"), _validate_config(config)
    allow_import = validate_names(allow_import, "allow_import")
    if track is not None:
        as_tracker(track)
    if is_real(which):
        which = str(validate_int(which, "which", at_least=0))
    if not isinstance(which, str) or not (which == "latest" or which.isdecimal()):
        raise UsageError(
            f"checkpoint {brief(which)} is none to go on from: give 'latest' or the steps of one, such as '5000'; best "
            "has no memory to learn from, and is evaluated or exported"
        )
    document = run_directory.read_config(run)
    if total_timesteps is not None:
        document["total_timesteps"] = validate_int(total_timesteps, "total_timesteps", 1)
    document |= {"workers": validate_int(workers, "workers", 1)} if workers is not None else {}
    document |= {"ray_address": ray_address} if ray_address is not None else {}
    if offline_timesteps is not None:
        validate_int(offline_timesteps, "offline_timesteps", 0)
        if document["dataset"] is None:
            raise UsageError(f"offline_timesteps={offline_timesteps} is for a run with a data set, and {run} has none")
    names = references_of(document) if config is None else [document["env_id"]]
    check_imports(names, run, allow_import)
    with (
        env_calls.own_directory(),
        signals.stop_on_signals() as request,
        file_faults("nothing was begun"),
        run_lock(run),
        contextlib.ExitStack() as collected,
    ):
        check_collector(document["collector"], document["workers"], document["ray_address"])
        run_directory.remove_unfinished(run)
        env_id, n_envs, wrappers = (document[name] for name in ("env_id", "n_envs", "wrappers"))
        env, env_id = _environment(env_id, n_envs, document["vectorization"], wrappers, request)
        path = _newest(run, which)
        with imports_allowed(allow_import):
            agent = load_agent(path, env, config=config)
        if offline_timesteps is not None:
            _check_learned_offline(run, document["offline_timesteps"], int(offline_timesteps), agent.num_timesteps)
            document["offline_timesteps"] = int(offline_timesteps)
        collected.enter_context(_collector(agent, document))
        run_state = _read_run_state(path, agent)
        document["config"] = agent.config.to_json()
        if agent.num_timesteps >= document["total_timesteps"] and run_state.evaluated >= agent.num_timesteps:
            run_loop.finish_run(run, agent, env_id)  # a kill may have come before it
            raise UsageError(_nothing_left(run, agent.num_timesteps, document["total_timesteps"]))
        if agent.num_timesteps and not len(agent.replay):
            warnings.warn(f"{run}: the checkpoint has no replay memory; it is refilled first", stacklevel=2)
        here = versions_here()
        if differ := differences(document["versions"], here):
            warnings.warn(f"{run}: {differ}; it goes on, but not to the same bits as without the break", stacklevel=2)
        document["versions"] = here
        run_config.text_of(document)  # refuses what cannot be written, before anything is removed
        for path in run_directory.checkpoints(run):
            if int(path.name) > agent.num_timesteps:
                target_dir.remove_staging(path)
        run_config.write(run, document)
        run_loop.run_to_goal(run, document, agent, run_state, request, progress_bar, track)
    return run


def _check_counts(seed: Any, total_timesteps: Any, evaluation_interval: Any, evaluation_episodes: Any) -> None:
    """Refuse what counts nothing; all but the last may be ``None``.

    Raises:
        UsageError: if one of them is not a whole number, or out of its range.
    """
    for value, what, at_least in (
        (seed, "seed", 0),
        (total_timesteps, "total_timesteps", 1),
        (evaluation_interval, "evaluation_interval", 1),
        (evaluation_episodes, "evaluation_episodes", 1),
    ):
        if value is not None or what == "evaluation_episodes":
            validate_int(value, what, at_least)


def _check_offline(dataset: Any, offline_timesteps: Any, collector: str) -> None:
    """Refuse a data set that cannot be one, before anything is made.

    Raises:
        UsageError: if there is no such data set, or it is given beside workers, or ``offline_timesteps`` without it.
    """
    if offline_timesteps is not None:
        validate_int(offline_timesteps, "offline_timesteps", 0)
        if dataset is None:
            raise UsageError(f"offline_timesteps={offline_timesteps} is for a run with a data set; give --dataset too")
    if dataset is not None:
        datasets.check_source(dataset)
        if collector != "local":
            raise UsageError(f"collector={collector!r} steps environments, and a data set is learned from; give one")


def _check_learned_offline(run: Path, until: int | None, asked: int, steps: int) -> None:
    """Refuse to change where learning from the data alone has ended.

    Args:
        run: the run directory.
        until: the run's ``offline_timesteps``.
        asked: what they shall be.
        steps: the timesteps that the run has made.

    Raises:
        UsageError: if some of the run's steps would have been of the other kind.
    """
    learned, ended = (steps, False) if until is None else (min(steps, until), steps > until)
    if asked == learned or (asked > learned and not ended):
        return
    raise UsageError(
        f"offline_timesteps={asked}: {run} has learned {learned} steps from its data"
        + (f" and then stepped the environment; give {learned}" if ended else f"; give {learned} or more")
        + ", or leave it out"
    )


def _usual_options(name: str, kind: type[AgentConfig], total_timesteps: int, dataset: Any) -> dict[str, Any]:
    """Return the options of a run whose caller gives none."""
    recipe = None if dataset is None else offline_recipe(kind)
    if recipe is not None:
        return recipe_options(recipe, kind, name)
    return preset_for(name, kind).options_for(kind, total_timesteps)


def _check_names(**names: Any) -> None:
    """Refuse arguments that are no strings.

    Raises:
        UsageError: if one of them is not a string.
    """
    for what, value in names.items():
        validate_text(value, what, "a name")


def _validate_config(config: Any) -> AgentConfig | None:
    """Return options of the caller's.

    Raises:
        UsageError: if ``config`` is neither ``None`` nor the options of an agent.
    """
    if config is not None and not isinstance(config, AgentConfig):
        raise UsageError(f"config={brief(config)} must be a DDPGConfig or a DQNConfig, or None")
    return config


def _nothing_left(run: Path, steps: int, goal: int) -> str:
    """Say why a run of ``steps`` steps does not go on to ``goal``."""
    if steps == goal:
        return f"{run} has reached its {goal} steps; give --total-timesteps to train longer"
    return (
        f"total_timesteps={goal} is less than the {steps} steps that {run} has made; give "
        f"--total-timesteps of more than {steps}, or --checkpoint to go back to one before step {goal}"
    )


def _environment(
    env_id: str, n_envs: int, vectorization: str, wrappers: Sequence[str], request: signals.StopRequest
) -> tuple[gym.Env | gym.vector.VectorEnv, str]:
    """Return the environment to train in, and its id without a module."""
    try:
        env = make_training_env(env_id, n_envs, vectorization, wrappers)
    except EnvironmentFault:
        if request.number is not None:  # its processes have been ended, too
            raise KeyboardInterrupt("nothing was begun") from None
        raise
    if isinstance(env, gym.Env):
        return env, env_id_of(env)
    one = make_env(env_id, wrappers)
    env_calls.close_quietly(one)
    return env, env_id_of(one)


@contextlib.contextmanager
def _collector(agent: OffPolicyAgent, document: dict[str, Any]) -> Iterator[None]:
    """Let an agent learn from workers, or from its data set first, if a run's description asks for that."""
    if document["dataset"] is not None:
        agent.loop = OfflineLoop(agent.loop, document["offline_timesteps"])
    if document["collector"] == "local":
        yield
        return
    maker = functools.partial(make_env, document["env_id"], document["wrappers"])
    with learning_from_workers(
        agent, maker, document["collector"], document["workers"], ray_address=document["ray_address"]
    ):
        yield


def _newest(run: Path, which: str) -> Path:
    """Return the newest checkpoint that is whole."""
    paths = run_directory.checkpoints(run)[::-1]
    if which != "latest" or not paths:
        paths = [checkpoint.find(run, which)]
    for path in paths[:-1]:
        try:
            checkpoint.read(path)
        except UsageError as error:
            warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=3)
        else:
            return path
    return paths[-1]


def _read_run_state(path: Path, agent: OffPolicyAgent) -> RunState:
    """Return what a checkpoint remembers of the run, for the agent that was loaded from it."""
    manifest, groups = checkpoint.read(path, only={RUN_STATE})
    if RUN_STATE in groups:
        where, others = f"{path / RUN_STATE}.safetensors", manifest["config"] != agent.config.to_json()
        return RunState.from_arrays(where, groups[RUN_STATE], agent.metrics, agent.counts, anew=others)
    return RunState.begun(agent.metrics, agent.counts, agent.num_timesteps)


def _command() -> list[str]:
    """Return the words of the command line, with a sign in the place of each byte that is no text."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]
