"""A training run from start to finish: environment, agent, run directory, evaluations, checkpoints."""

import contextlib
import importlib.metadata
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Callback, ProgressBar
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.agents.registry import agent_for, load_agent
from ddpg.config import AgentConfig
from ddpg.errors import UsageError
from ddpg.experience.values import as_whole
from ddpg.runs import directory
from ddpg.runs.environments import check_import, id_of, make_env
from ddpg.runs.ownership import owned
from ddpg.runs.plotting import plot_learning_curve
from ddpg.runs.presets import preset_config, preset_for
from ddpg.runs.recorder import Recorder
from ddpg.storage import checkpoint, place


def train(
    env_id: str,
    config: AgentConfig | None = None,
    *,
    seed: int | None = None,
    total_timesteps: int | None = None,
    root: str | Path = "runs",
    evaluation_interval: int | None = None,
    evaluation_episodes: int = 10,
    progress_bar: bool = True,
) -> Path:
    """Train in ``env_id`` (DDPG, or DQN where actions are discrete) and leave everything in a new run directory.

    Args:
        env_id: as for ``gymnasium.make``, or ``module:Id``.
        config: the options; the environment's preset by default.
        seed: ``None``: a random one, noted in ``config.json``.
        total_timesteps: environment steps; the preset's by default.
        root: where run directories are kept.
        evaluation_interval: steps between evaluations (and checkpoints); a twentieth of the run by default.
        evaluation_episodes: episodes of each.
        progress_bar: show one on stderr.

    Returns:
        The run directory.

    Raises:
        UsageError: an environment or an option that cannot work; nothing is written then.
        EnvironmentFault: the environment failed.
    """
    for value, what, at_least in (
        (seed, "seed", 0),
        (total_timesteps, "total_timesteps", 1),
        (evaluation_interval, "evaluation_interval", 1),
        (evaluation_episodes, "evaluation_episodes", 1),
    ):
        if value is not None or what == "evaluation_episodes":
            as_whole(value, what, at_least)
    directory.check_root(root)
    env = make_env(env_id)
    name = id_of(env)
    total_timesteps = preset_for(name).total_timesteps if total_timesteps is None else int(total_timesteps)
    kind = agent_for(env.action_space)
    agent = kind(env, config or preset_config(name, kind.config_class), seed)
    agent.check_learning(total_timesteps)
    run = directory.create(root, name)
    document = {
        "env_id": env_id,
        "algorithm": kind.__name__,
        "seed": agent.seed,
        "total_timesteps": total_timesteps,
        "evaluation_interval": int(evaluation_interval or 0) or max(1, total_timesteps // 20),
        "evaluation_episodes": int(evaluation_episodes),
        "config": agent.config.to_json(),
        "versions": _versions(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
    with owned(run):
        directory.write_config(run, document)
        _run(agent, env, run, document, progress_bar)
    return run


def resume(
    run: str | Path,
    *,
    config: AgentConfig | None = None,
    total_timesteps: int | None = None,
    which: str = "latest",
    allow_import: Sequence[str] = (),
    progress_bar: bool = True,
) -> Path:
    """Go on with a run from its latest checkpoint, to its goal or to a new one.

    On the same machine, with the same versions, the run ends as if it had never been interrupted
    (docs/reliability.md). A damaged checkpoint is passed over for the one before it, with a warning.

    Args:
        run: the run directory.
        config: instead of the run's, and noted in it: needed where that held callables of one's own.
        total_timesteps: a new goal.
        which: ``"latest"``, or the timesteps of a checkpoint to go back to; later ones are removed.
        allow_import: modules that an environment named ``module:Id`` in the run's file may import.
        progress_bar: show one on stderr.

    Returns:
        The run directory.

    Raises:
        UsageError: not a run directory, one that another process is writing, no checkpoint, options that files cannot
            hold, a module that is not allowed, or the goal was reached already.
    """
    run = Path(run)
    document = directory.read_config(run)
    if total_timesteps is not None:
        document["total_timesteps"] = total_timesteps
    check_import(document["env_id"], run, allow_import)
    with owned(run):
        env = make_env(document["env_id"])
        agent = _load(run, env, which, config)
        document["config"] = agent.config.to_json()
        if agent.num_timesteps >= document["total_timesteps"]:
            raise UsageError(
                f"{run} has reached its {document['total_timesteps']} steps; give --total-timesteps to train longer"
            )
        if agent.num_timesteps and not len(agent.replay):
            warnings.warn(f"{run}: the checkpoint has no replay memory; it is refilled first", stacklevel=2)
        for path in directory.checkpoints(run):
            if int(path.name) > agent.num_timesteps:
                place.remove(path)
        directory.write_config(run, document)
        _run(agent, env, run, document, progress_bar)
    return run


def _load(run: Path, env: gym.Env, which: str, config: AgentConfig | None) -> OffPolicyAgent:
    """Return the agent of the newest checkpoint that is whole."""
    paths = directory.checkpoints(run)[::-1]
    if which != "latest" or not paths:
        paths = [checkpoint.find(run, which)]
    for path in paths[:-1]:
        try:
            checkpoint.read(path)
        except UsageError as error:
            warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=3)
        else:
            return load_agent(path, env, config=config)
    return load_agent(paths[-1], env, config=config)


def _run(agent: OffPolicyAgent, env: gym.Env, run: Path, document: dict[str, Any], progress_bar: bool) -> None:
    recorder = Recorder(run, document, agent)
    callbacks: list[Callback] = [recorder]
    if progress_bar:
        callbacks.append(ProgressBar(id_of(env)))
    try:
        with _stop_on_interrupt(agent):
            agent.learn(document["total_timesteps"] - agent.num_timesteps, callbacks)
        # Where the run ended, evaluated: at its goal, or where it was interrupted.
        recorder.conclude(agent)
    finally:
        recorder.close()
        env.close()
    plot_learning_curve(run, f"{type(agent).__name__} on {id_of(env)}, seed {agent.seed}")


@contextlib.contextmanager
def _stop_on_interrupt(agent: OffPolicyAgent) -> Iterator[None]:
    """Let the first Ctrl-C (or SIGTERM) end learning after the current step; a second one acts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number, frame) -> None:
        restore()
        agent.stop()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


def _versions() -> dict[str, str]:
    packages = ("ddpg-paths", "tensorflow", "tflearn", "gymnasium", "numpy")
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
