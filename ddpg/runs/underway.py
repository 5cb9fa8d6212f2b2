"""A run under way: to its goal, or to where it is left, by a signal or because its environment failed."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Callback, ProgressBar
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.errors import EnvironmentFault, UsageError, file_faults
from ddpg.experience import env_calls
from ddpg.experience.faults import said
from ddpg.progress import significant
from ddpg.runs import directory
from ddpg.runs.environments import id_of, make_env
from ddpg.runs.ledger import Ledger
from ddpg.runs.logs import RunTracker
from ddpg.runs.meter import tags_of
from ddpg.runs.next_commands import command_for, how_to_go_on
from ddpg.runs.plotting import plot_learning_curve
from ddpg.runs.recorder import Recorder
from ddpg.runs.signals import Request
from ddpg.runs.stopping import StopAtRequest

LAST_EVALUATION = 10.0  # seconds that the one before may have taken for one to be made where a run is left


def run_to_goal(
    run: Path,
    document: dict[str, Any],
    agent: OffPolicyAgent,
    ledger: Ledger,
    request: Request,
    progress_bar: bool,
    track: str | None = None,
) -> None:
    """Let an agent learn until its goal, or until ``request``; save it either way, and close its environment.

    Args:
        run: the run directory, which this process owns.
        document: its ``config.json``.
        agent: who learns.
        ledger: what the run remembers besides.
        request: to end earlier; its ``left`` tells whether that was so.
        progress_bar: show one on stderr.
        track: the experiment tracker to log to, too: one of :data:`ddpg.runs.trackers.TRACKERS`.

    Raises:
        EnvironmentFault: the environment failed; names it, the step and the seed, and what was saved.
        FileFault: the disk refused.
        FloatingPointError: learning diverged.
    """
    request.resumable = lambda: how_to_go_on(run, document["env_id"])
    goal = document["total_timesteps"]

    def advice() -> str:
        return f"what was saved before is as it was; with that put right, {how_to_go_on(run, document['env_id'])}"

    with file_faults(advice), _environments(run, agent, document, request) as evaluation_env:
        name = id_of(evaluation_env)
        with contextlib.closing(Recorder(run, document, agent, evaluation_env, ledger)) as recorder:
            if track is not None:
                recorder.add_sink(RunTracker(track, tags_of(agent), document, f"{name}/{run.name}"))
            callbacks: list[Callback] = [StopAtRequest(request), recorder]
            if progress_bar:
                callbacks.append(ProgressBar(name.rpartition("/")[2]))
            try:
                if request.number is None and agent.num_timesteps < goal:
                    agent.learn(goal - agent.num_timesteps, callbacks)
                if agent.num_timesteps >= goal:
                    recorder.conclude(agent)
                else:
                    _leave(run, document, agent, recorder, request)
            # EOFError, ConnectionError: a process of a vector is gone.
            except (EnvironmentFault, KeyboardInterrupt, EOFError, ConnectionError) as error:
                if request.again:
                    raise
                # A signal to all processes may have ended those of a vector, and come here a little later.
                if not request.came(within=0.5):
                    raise _located(error, name, run, document, agent, recorder) from error
                _leave(run, document, agent, recorder, request)
        tidy(run, agent, name)


def tidy(run: Path, agent: OffPolicyAgent, env_id: str) -> None:
    """Do what is done last: let go of old checkpoints, and draw the learning curve."""
    directory.retain(run)
    plot_learning_curve(run, f"{type(agent).__name__} on {env_id}, seed {agent.seed}")


@contextlib.contextmanager
def _environments(run: Path, agent: OffPolicyAgent, document: dict[str, Any], request: Request) -> Iterator[gym.Env]:
    """Yield an environment to evaluate in; close it in the end, and the agent's.

    Raises:
        EnvironmentFault: one of them failed in ``close``, and nothing before.
    """
    evaluation_env = None
    try:
        evaluation_env = make_env(document["env_id"], document["wrappers"])
        yield evaluation_env
    except BaseException:
        _end(evaluation_env)
        _end(agent.env)
        raise
    faults = []
    for env in (evaluation_env, agent.env):
        try:
            env_calls.close(env)
        except (EnvironmentFault, KeyboardInterrupt) as error:
            faults.append(f"environment failed in close: {said(error)}" if not str(error) else str(error))
            _end(env)
    if faults and not request.left:
        raise EnvironmentFault(f"{faults[0]}; all {agent.num_timesteps:,} steps of the run are saved in {run}")


def _end(env: Any) -> None:
    """Close an environment after a failure, which this must not hide; processes of a vector are not waited for."""
    vector = isinstance(env, gym.vector.VectorEnv)
    if env is None or (vector and env.closed):
        return
    env_calls.close_quietly(env, **({"terminate": True} if vector else {}))
    if vector and not env.closed:  # it would be tried again
        for process in getattr(env, "processes", ()):
            process.terminate()
        env.closed = True


def _leave(run: Path, document: dict[str, Any], agent: OffPolicyAgent, recorder: Recorder, request: Request) -> None:
    """Save, say how to go on, and evaluate if that is quick."""
    request.left = True
    resume = functools.partial(command_for, "resume", run, document["env_id"])
    path, exactly = recorder.leave(agent)
    where = f"saved at {agent.num_timesteps:,} of {document['total_timesteps']:,} steps"
    before = [checkpoint.name for checkpoint in directory.checkpoints(run) if checkpoint.name != path.name][-1:]
    goes_back = before and agent.loop.exact
    if exactly:
        request.say(f"{where}; it goes on as if it had not been interrupted with: {resume()}")
    else:
        request.say(
            f"{where}, where episodes are under way, so that it goes on with new ones: {resume()}"
            + (f"; exactly as if not interrupted: {resume('--checkpoint', before[0])}" if goes_back else "")
        )
    try:
        summary = recorder.evaluate_aside(agent, LAST_EVALUATION)
    except (EnvironmentFault, KeyboardInterrupt) as error:
        request.say(f"no evaluation there: {said(error)}")
        return
    if summary:
        request.say(
            f"evaluation there: mean return {significant(summary['mean_return'])} of {summary['episodes']} episodes"
        )


def _located(
    error: BaseException, name: str, run: Path, document: dict[str, Any], agent: OffPolicyAgent, recorder: Recorder
) -> EnvironmentFault:
    """Return the fault with where it happened and what is kept: all that was learned before the step that failed."""
    step, seed = agent.num_timesteps, agent.seed
    try:
        recorder.leave(agent)
    except (UsageError, OSError) as other:
        kept = f"what was learned since could not be saved ({other})"
    else:
        kept = "what was learned is saved"
    if isinstance(error, EnvironmentFault):
        what = str(error)
    elif isinstance(error, KeyboardInterrupt):
        what = f"it raised {said(error)}, and no SIGINT has come"
    else:
        what = f"a process has ended ({type(error).__name__})"
    where = "" if name in what else f"{name}, "
    advice = how_to_go_on(run, document["env_id"])
    return EnvironmentFault(f"{where}after step {step}, seed {seed}: {what}; {kept}; {advice}")
