"""``train`` and ``resume``: set up the environment, agent and run directory of a training run, and run it."""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents import resource_limits
from ddpg.agents.learn_loop import OfflineLoop
from ddpg.agents.off_policy import OffPolicyAgent, agent_for, fitting_env, load_agent
from ddpg.algorithms.registry import algorithm_named, algorithm_of, update_of
from ddpg.checkpoints import checkpoint
from ddpg.config.algorithm_options import AgentConfig
from ddpg.config.changeable_options import check_changeable
from ddpg.config.imports import imports_allowed, references_in, references_of
from ddpg.config.presets import budget_note, default_options, offline_recipe, preset_for
from ddpg.errors import EnvironmentFault, UsageError, brief, file_faults
from ddpg.interaction import env_calls
from ddpg.interaction.spaces import spaces_of
from ddpg.interaction.validation import (
    is_real,
    validate_bool,
    validate_int,
    validate_names,
    validate_optional_int,
    validate_path,
    validate_text,
)
from ddpg.progress import print_to_stderr
from ddpg.runs import dataset as datasets
from ddpg.runs import run_config, run_directory, run_loop, signals
from ddpg.runs.env_factory import (
    check_imports,
    check_vector,
    env_id_of,
    full_id,
    make_env,
    make_training_env,
)
from ddpg.runs.env_source import EnvSource, checked_kwargs
from ddpg.runs.environment_notes import image_note, value_range_note
from ddpg.runs.episode_limits import cut_episodes_note, default_evaluation_interval, episode_limit, episode_limit_note
from ddpg.runs.lock import run_lock
from ddpg.runs.recorder import RUN_STATE, recover_best
from ddpg.runs.run_state import RunState
from ddpg.runs.trackers import as_tracker
from ddpg.runs.versions import differences, versions_here
from ddpg.workers.remote_loop import learning_from_workers
from ddpg.workers.worker_options import check_collector, check_main_is_a_file, check_not_importing, check_options


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
    env_kwargs: Mapping[str, Any] | None = None,
    collector: str = "local",
    workers: int | None = None,
    ray_address: str | None = None,
    dataset: str | Path | None = None,
    offline_timesteps: int | None = None,
    diagnose: bool = False,
    progress_bar: bool = True,
    track: str | None = None,
) -> Path:
    """Train in ``env_id`` (DDPG, or DQN for discrete actions) and write everything to a new run directory.

    The first SIGINT, SIGTERM or SIGHUP saves the run and returns, if this is Python's main thread. Before the run
    directory exists, the signal raises ``KeyboardInterrupt`` instead.

    Args:
        env_id: as for ``gymnasium.make``, or ``module:Id``.
        config: the options; by default the environment's preset, or the recipe ``plus`` if it has no preset. A shorter
            run than the preset's then has fewer random steps (:meth:`ddpg.config.presets.Preset.options_for`).
        seed: the seed; ``None``: a random one, which ``config.json`` records.
        total_timesteps: environment steps, over all environments; the preset's by default.
        root: the directory that holds the run directories.
        evaluation_interval: steps between evaluations (and checkpoints); by default a twentieth of the run, or more:
            an evaluation cuts the episodes of a vector, and the episode of one environment that lasts for another
            interval, so the default is at least two full episodes of each environment of a vector, and the longest
            episode of one environment.
        evaluation_episodes: episodes per evaluation.
        n_envs: number of environments to act in at the same time; evaluations always use one.
        vectorization: how several environments run: ``"sync"``: in this process; ``"async"``: each in its own process,
            which imports the main module (so your script needs ``if __name__ == "__main__":``); ``"envpool"``:
            EnvPool's environments of that id, in threads, with evaluations in gymnasium's.
        wrappers: gymnasium wrappers in :data:`ddpg.runs.wrappers.WRAPPERS`, by name or with their arguments as in
            ``"FrameStackObservation(stack_size=4)"``, the innermost first.
        env_kwargs: keyword arguments of the environment's constructor, plain values that JSON can hold, and
            ``max_episode_steps``, the steps after which episodes are truncated, -1 for never.
        collector: what steps the environment: ``"local"``: this process; ``"process"``: worker processes on this
            machine (which import the main module, too); ``"ray"``: workers on a Ray cluster. See docs/scaling.md.
        workers: number of workers.
        ray_address: address of a Ray cluster; ``None``: start one on this machine, which ends with the run.
        dataset: transitions to learn from: an ``.npz`` file or ``"minari:NAME"`` (docs/offline.md). A timestep is then
            one update, and the environment is used only for evaluations. Without ``config`` DDPG uses the recipe
            ``td3_bc``.
        offline_timesteps: in a run with a data set, the number of timesteps that learn from the data alone; the
            remaining ones step the environment. ``None``: all.
        diagnose: write ``diagnostics.csv``: dormant units, norms, step sizes, Q against returns
            (docs/how_to/diagnose.md). Training is the same with and without it.
        progress_bar: show one on stderr.
        track: an additional experiment tracker to log to: ``"wandb"``, ``"mlflow"`` or ``"trackio"``.

    Returns:
        The run directory.

    Raises:
        UsageError: if an environment or an option cannot work; nothing is written then.
        EnvironmentFault: if the environment failed; the agent is saved first.
        FileFault: if a file could not be written.
    """
    check_not_importing("train")
    for what, value in (("env_id", env_id), ("vectorization", vectorization), ("collector", collector)):
        validate_text(value, what, "a name")
    seed = validate_optional_int(seed, "seed", 0)
    total_timesteps = validate_optional_int(total_timesteps, "total_timesteps", 1)
    evaluation_interval = validate_optional_int(evaluation_interval, "evaluation_interval", 1)
    evaluation_episodes = validate_int(evaluation_episodes, "evaluation_episodes", 1)
    offline_timesteps = validate_optional_int(offline_timesteps, "offline_timesteps", 0)
    progress_bar, config = validate_bool(progress_bar, "progress_bar"), _validate_config(config)
    diagnose = validate_bool(diagnose, "diagnose")
    wrappers, root = validate_names(wrappers, "wrappers"), validate_path(root, "root")
    source = EnvSource(env_id, wrappers, checked_kwargs({} if env_kwargs is None else env_kwargs))
    run_directory.check_root(root)
    if track is not None:
        as_tracker(track)  # refuses an unknown tracker before the environment is made
    n_envs = check_vector(n_envs, vectorization, wrappers, source.kwargs)
    datasets.check_offline(dataset, offline_timesteps, collector)
    check_collector(collector, workers, ray_address)
    if collector == "process":
        check_main_is_a_file("collector='process'")
    with (
        env_calls.own_directory(),
        signals.stop_on_signals() as request,
        contextlib.ExitStack() as collected,
        contextlib.ExitStack() as unused,
    ):
        env, name = _environment(source, n_envs, vectorization, request)
        unused.callback(run_loop.close_unused, env)
        kind = agent_for(spaces_of(env)[1], config)
        if total_timesteps is None:
            total_timesteps = preset_for(name, kind.config_class).total_timesteps
        _check_offline_ends(offline_timesteps, total_timesteps)
        if config is None:
            config = _usual_config(name, kind.config_class, total_timesteps, dataset, spaces_of(env))
        agent = kind(env, config, seed)
        if collector != "local":
            check_options(agent.config, n_envs)
        if dataset is not None:
            datasets.fill(agent, dataset)
            agent.loop = OfflineLoop(agent.loop, offline_timesteps)
        agent.check_learning(total_timesteps)
        resource_limits.check_counts(agent.config)
        if dataset is None and (short := budget_note(name, agent.config, total_timesteps)):
            print_to_stderr(short)
        limit = episode_limit(source._replace(env_id=name))
        for note in (value_range_note(limit, agent.config), image_note(env, agent.config)):
            if note:
                print_to_stderr(f"{name}: {note}")
        cuts = _cuts_episodes(collector, dataset, offline_timesteps)
        usual = default_evaluation_interval(limit, n_envs, total_timesteps, cuts=cuts)
        document = {
            "env_id": full_id(env_id, name),
            "algorithm": algorithm_of(agent.config),
            "seed": agent.seed,
            "total_timesteps": total_timesteps,
            "evaluation_interval": evaluation_interval or usual,
            "evaluation_episodes": evaluation_episodes,
            "n_envs": n_envs,
            "vectorization": vectorization,
            "wrappers": list(wrappers),
            "env_kwargs": source.kwargs,
            "collector": collector,
            "workers": None if workers is None else int(workers),
            "ray_address": ray_address,
            "dataset": None if dataset is None else str(dataset),
            "offline_timesteps": offline_timesteps,
            "diagnose": diagnose,
            "episode_limit": limit,
            "config": agent.config.to_json(),
            "versions": versions_here(),
            "command": _command(),
        }
        run_config.text_of(document)  # refuses values that config.json cannot hold, before anything is written
        if evaluation_interval is not None:
            _warn_of_cut_episodes(name, document)
        if request.number is not None:
            raise KeyboardInterrupt(request.resumable())
        collected.enter_context(_collector(agent, document))
        with file_faults("nothing was begun"):
            run = run_directory.create(root, name, document, agent.save)
        with run_lock(run):
            unused.pop_all()  # from here on run_to_goal closes it
            run_loop.run_to_goal(
                run, document, agent, RunState.begun(agent.metrics, agent.counts), request, progress_bar, track
            )
    return run


def resume(
    run: str | Path,
    *,
    config: AgentConfig | None = None,
    options: Mapping[str, Any] | None = None,
    total_timesteps: int | None = None,
    which: str = "latest",
    evaluation_interval: int | None = None,
    allow_import: Sequence[str] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    offline_timesteps: int | None = None,
    progress_bar: bool = True,
    track: str | None = None,
) -> Path:
    """Resume a run from its latest checkpoint, and train to its goal or to a new one.

    On the same machine, with the same versions, the run ends as if it had never been interrupted
    (docs/reliability.md). A run with workers goes on with new episodes instead. If the latest checkpoint is damaged,
    the one before it is used, with a warning. A run that has reached its goal, but lacks its picture or its checkpoint
    ``best``, gets them.

    Args:
        run: the run directory.
        config: options that replace the run's, also in its ``config.json``, from which every later ``resume`` takes
            them, whichever checkpoint it goes on from; needed if the run's options held your own callables.
        options: single options to change instead, by name: those that leave the meaning of what is saved as it is
            (:data:`ddpg.config.changeable_options.CHANGEABLE`). ``changes`` in ``config.json`` records them, with the
            step and the time; other changes too.
        total_timesteps: a new goal. A run that had reached its goal goes on with a new episode.
        which: ``"latest"``, or the timesteps of a checkpoint to go back to; later checkpoints are removed.
        evaluation_interval: a new number of steps between evaluations; ``None``: as before.
        allow_import: modules that the run may import, for an environment, an algorithm or an option that its
            ``config.json`` names as ``module:Name``.
        workers, ray_address: for a run with workers, values that replace the run's.
        offline_timesteps: for a run with a data set, the timestep from which on it steps the environment. It cannot be
            less than the steps learned from the data so far, and cannot change once the environment has been stepped.
        progress_bar: show one on stderr.
        track: an additional experiment tracker to log to: ``"wandb"``, ``"mlflow"`` or ``"trackio"``.

    Returns:
        The run directory.

    Raises:
        UsageError: if ``run`` is not a run directory, has no checkpoint, is being written by another process, or has
            reached its goal; if an option cannot be written to a file, ``offline_timesteps`` contradicts the steps that
            the run has made, or a module is not allowed.
        EnvironmentFault: if the environment failed; the agent is saved first.
        FileFault: if a file is damaged, or could not be written.
    """
    check_not_importing("resume")
    run = validate_path(run, "run")
    progress_bar, config = validate_bool(progress_bar, "progress_bar"), _validate_config(config)
    allow_import = validate_names(allow_import, "allow_import")
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise UsageError(f"options={brief(options)} must be a dict of options by name")
    if config is not None and options:
        raise UsageError(f"options={brief(options)} and config: give one of them, config.replace(**options) for both")
    if track is not None:
        as_tracker(track)
    if is_real(which):
        which = str(validate_int(which, "which", at_least=0))
    if not isinstance(which, str) or not (which == "latest" or which.isdecimal()):
        raise UsageError(
            f"checkpoint {brief(which)} is none to go on from: give 'latest' or the steps of one, such as '5000'; "
            "best, offline and better have no replay buffer, and can only be evaluated or exported"
        )
    run_directory.check_utf8(run, "run")
    document = run_directory.read_config(run)
    before = dict(document)
    own_goal, collector = document["total_timesteps"], document["collector"]
    for name, value, where, fits in (
        ("workers", workers, "workers", collector != "local"),
        ("ray_address", ray_address, "workers on Ray", collector == "ray"),
    ):
        if value is not None and not fits:
            raise UsageError(f"{name}={brief(value)} is for a run with {where}, and {run} has none; leave it out")
    changes = {
        "total_timesteps": validate_optional_int(total_timesteps, "total_timesteps", 1),
        "evaluation_interval": validate_optional_int(evaluation_interval, "evaluation_interval", 1),
        "workers": validate_optional_int(workers, "workers", 1),
        "ray_address": ray_address,
    }
    document |= {name: value for name, value in changes.items() if value is not None}
    offline_timesteps = validate_optional_int(offline_timesteps, "offline_timesteps", 0)
    if offline_timesteps is not None and document["dataset"] is None:
        raise UsageError(f"offline_timesteps={offline_timesteps} is for a run with a data set, and {run} has none")
    names = references_of(document) if config is None else [document["env_id"]]
    check_imports([*names, *references_in(options.values())], run, allow_import)
    with (
        env_calls.own_directory(),
        signals.stop_on_signals() as request,
        file_faults("nothing was begun"),
        run_lock(run),
        contextlib.ExitStack() as collected,
        contextlib.ExitStack() as unused,
    ):
        check_collector(document["collector"], document["workers"], document["ray_address"])
        run_directory.remove_unfinished(run)
        source = EnvSource.of_run(document)
        env, env_id = _environment(source, document["n_envs"], document["vectorization"], request)
        unused.callback(run_loop.close_unused, env)
        path = _newest_readable(run, which)
        with imports_allowed(allow_import):
            config = config or _changed_config(document, options)
            agent = load_agent(path, env, config=config or _replaced_config(path, document))
        if offline_timesteps is not None:
            _check_learned_offline(run, document["offline_timesteps"], offline_timesteps, agent.num_timesteps)
            _check_offline_ends(offline_timesteps, document["total_timesteps"])
            document["offline_timesteps"] = offline_timesteps
        if document["dataset"] is not None:
            agent.loop = OfflineLoop(agent.loop, document["offline_timesteps"])
        collected.enter_context(_collector(agent, document))
        run_state = _read_run_state(path, agent)
        document |= {"algorithm": algorithm_of(agent.config), "config": agent.config.to_json()}
        if agent.num_timesteps >= document["total_timesteps"] and run_state.evaluated >= agent.num_timesteps:
            # The process may have been killed before it finished the run, or could not write these files.
            newest = path == run_directory.checkpoints(run)[-1]
            files = ["checkpoints/best"] if newest and recover_best(run, agent, run_state) else []
            files += [run_directory.PICTURE] if run_loop.finish_run(run, agent, env_id) else []
            if files and document["total_timesteps"] == own_goal:
                print_to_stderr(
                    f"{run} has reached its {agent.num_timesteps} steps, and only {' and '.join(files)} was missing or "
                    "older; it is written now"
                )
                return run
            raise UsageError(_goal_reached_message(run, agent.num_timesteps, document["total_timesteps"], own_goal))
        if agent.num_timesteps and not len(agent.replay):
            warnings.warn(f"{run}: the checkpoint has no replay memory; it is refilled first", stacklevel=2)
        _note_changes(run, env_id, document)
        document["changes"] = run_config.with_changes(before, document, agent.num_timesteps)
        for name, (old, new) in run_config.changed_settings(before, document).items():
            if name in document["config"]:
                print_to_stderr(f"{run}: from step {agent.num_timesteps:,} on {name} is {new}, and was {old}")
        run_config.text_of(document)  # refuses values that config.json cannot hold, before checkpoints are removed
        run_directory.remove_later(run, agent.num_timesteps)
        run_config.write(run, document)
        _warn_of_cut_episodes(env_id, document)
        unused.pop_all()  # from here on run_to_goal closes it
        run_loop.run_to_goal(run, document, agent, run_state, request, progress_bar, track)
    return run


def _note_changes(run: Path, env_id: str, document: dict[str, Any]) -> None:
    """Warn if versions or the environment's time limit are not as they were, and note those of now in ``document``."""
    here = versions_here()
    if differ := differences(document["versions"], here):
        warnings.warn(f"{run}: {differ}; it goes on, but not to the same bits as without the break", stacklevel=3)
    document["versions"] = here
    limit = episode_limit(EnvSource.of_run(document)._replace(env_id=env_id))
    if note := episode_limit_note(limit, document["episode_limit"]):
        warnings.warn(f"{run}: {note}", stacklevel=3)
    document["episode_limit"] = limit


def _check_offline_ends(offline_timesteps: int | None, total_timesteps: int) -> None:
    """Refuse ``offline_timesteps`` that a run would not reach."""
    if offline_timesteps is not None and offline_timesteps > total_timesteps:
        raise UsageError(
            f"offline_timesteps={offline_timesteps} is more than total_timesteps={total_timesteps}, the whole run; "
            "give more of these, or leave it out to learn from the data alone"
        )


def _check_learned_offline(run: Path, until: int | None, asked: int, steps: int) -> None:
    """Refuse a new ``offline_timesteps`` under which steps that the run has made would have been of the other kind.

    ``until`` is the run's ``offline_timesteps``, ``asked`` the new one.
    """
    learned, ended = (steps, False) if until is None else (min(steps, until), steps > until)
    if asked == learned or (asked > learned and not ended):
        return
    raise UsageError(
        f"offline_timesteps={asked}: {run} has learned {learned} steps from its data"
        + (f" and then stepped the environment; give {learned}" if ended else f"; give {learned} or more")
        + ", or leave it out"
    )


def _cuts_episodes(collector: str, dataset: Any, offline_timesteps: int | None) -> bool:
    """Return whether a run has episodes that its evaluations can cut: neither workers nor a data set alone have."""
    return collector == "local" and (dataset is None or offline_timesteps is not None)


def _warn_of_cut_episodes(name: str, document: dict[str, Any]) -> None:
    """Say on stderr if a run's evaluations may cut off episodes of training."""
    offline = document["offline_timesteps"]
    if not _cuts_episodes(document["collector"], document["dataset"], offline):
        return
    timesteps = document["total_timesteps"] - (offline or 0)
    limit, interval = document["episode_limit"], document["evaluation_interval"]
    if note := cut_episodes_note(limit, document["n_envs"], interval, timesteps):
        print_to_stderr(f"{name}: {note}")


def _usual_config(
    name: str, kind: type[AgentConfig], total_timesteps: int, dataset: Any, spaces: tuple[gym.Space, gym.Space]
) -> AgentConfig:
    """Return the options of a run for which the caller gives none, with a buffer that fits into memory."""
    recipe = None if dataset is None else offline_recipe(kind)
    options = default_options(kind, name, total_timesteps, recipe)
    options, too_much = resource_limits.with_fitting_buffer(options, kind, spaces)
    if too_much:
        print_to_stderr(too_much)
    return kind(**options)


def _validate_config(config: Any) -> AgentConfig | None:
    """Return ``config``, or refuse it if it is neither ``None`` nor the options of an agent."""
    if config is not None and not isinstance(config, AgentConfig):
        raise UsageError(f"config={brief(config)} must be a DDPGConfig or a DQNConfig, or None")
    return config


def _goal_reached_message(run: Path, steps: int, goal: int, own_goal: int) -> str:
    """Return the message that a run of ``steps`` steps has nothing left to do for ``goal``.

    A vector of environments may overshoot its run's own goal.
    """
    if goal in (steps, own_goal):
        return f"{run} has reached its {goal} steps; give --total-timesteps to train longer"
    return (
        f"total_timesteps={goal} is less than the {steps} steps that {run} has made; give "
        f"--total-timesteps of more than {steps}, or --checkpoint to go back to one before step {goal}"
    )


def _environment(
    source: EnvSource, n_envs: int, vectorization: str, request: signals.StopRequest
) -> tuple[gym.Env | gym.vector.VectorEnv, str]:
    """Return the environment to train in, and its id without a module."""
    one = make_env(source)
    if n_envs == 1:
        return one, env_id_of(one)
    env_calls.close_quietly(one)
    try:
        return make_training_env(source, n_envs, vectorization), env_id_of(one)
    except EnvironmentFault:
        if request.number is not None:  # the signal has also ended the vector's processes
            raise KeyboardInterrupt("nothing was begun") from None
        raise


@contextlib.contextmanager
def _collector(agent: OffPolicyAgent, document: dict[str, Any]) -> Iterator[None]:
    """Let an agent learn from workers if ``config.json`` says so."""
    if document["collector"] == "local":
        yield
        return
    maker = functools.partial(make_env, EnvSource.of_run(document))
    with learning_from_workers(
        agent, maker, document["collector"], document["workers"], ray_address=document["ray_address"]
    ):
        yield


def _newest_readable(run: Path, which: str) -> Path:
    """Return the newest checkpoint that can be read, else the oldest; or the checkpoint that ``which`` names."""
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


def _changed_config(document: dict[str, Any], options: Mapping[str, Any]) -> AgentConfig | None:
    """Return a run's options with changes, or ``None`` if there are none.

    Raises:
        UsageError: if an option is unknown, cannot change, or its value is invalid.
    """
    if not options:
        return None
    kind = algorithm_named(document["algorithm"]).config
    own = kind.from_json(document["config"])
    config = own.replace(**options)
    old, new = own.to_json(), config.to_json()
    changed = [name for name in options if old[name] != new[name]]
    check_changeable(kind, changed)
    if (now := update_of(config)) is not (before := update_of(own)):
        raise UsageError(
            f"{', '.join(changed)} cannot change when this run is resumed: its saved variables are those of a "
            f"{before.__name__}, and the update would become a {now.__name__}; train a new run with it"
        )
    return config


def _replaced_config(path: Path, document: dict[str, Any]) -> AgentConfig | None:
    """Return the options in ``config.json`` if they are not the checkpoint's, else ``None``.

    They have been replaced since then, by a ``resume`` with a ``config`` that was interrupted before it saved anything,
    or the run goes back to an earlier checkpoint.
    """
    manifest, groups = checkpoint.read(path, only={"variables"})
    if manifest["config"] == document["config"]:
        return None
    config = algorithm_named(document["algorithm"]).config.from_json(document["config"])
    resource_limits.check_options(path, config, fitting_env(manifest, None), groups.get("variables", {}))
    return config


def _read_run_state(path: Path, agent: OffPolicyAgent) -> RunState:
    """Return the run state in a checkpoint, for the agent that was loaded from it."""
    manifest, groups = checkpoint.read(path, only={RUN_STATE})
    if RUN_STATE in groups:
        where, arrays = f"{path / RUN_STATE}.safetensors", groups[RUN_STATE]
        others = manifest["config"] != agent.config.to_json()
        if "sums" in arrays and arrays["sums"].size != len(agent.metrics):  # the user's own update has changed
            others = True
        return RunState.from_arrays(where, arrays, agent.metrics, agent.counts, anew=others)
    return RunState.begun(agent.metrics, agent.counts, agent.num_timesteps)


def _command() -> list[str]:
    """Return the words of the command line, with a replacement character for each byte that is not UTF-8."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return [os.fsencode(word).decode("utf-8", "replace") for word in words]
