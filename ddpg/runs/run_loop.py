"""Train an agent to its goal, or until a signal or a failing environment ends the run."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Callback, ProgressBar
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.errors import EnvironmentFault, OwnCodeFault, UsageError, file_faults, format_error
from ddpg.interaction import env_calls
from ddpg.interaction.env_runner import Episode
from ddpg.progress import format_number
from ddpg.runs import run_directory
from ddpg.runs.commands import ResumeCommand
from ddpg.runs.env_factory import env_id_of, make_env
from ddpg.runs.env_source import EnvSource
from ddpg.runs.environment_notes import EnvironmentNotes
from ddpg.runs.log_writers import RunTracker
from ddpg.runs.recorder import RunRecorder
from ddpg.runs.run_state import RunState, tags_of
from ddpg.runs.signals import StopRequest

PATIENCE = 5.0  # seconds to wait for the end of the current episode
LONGEST_STEP = 1.0  # seconds that one step counts at most: a longer step was compiling


class GracefulStop(Callback):
    """On a stop request, ends learning at the end of the current episode, or earlier if that takes too long.

    The episodes of a vector or of workers do not end together, and offline learning has none: there it ends at once.
    """

    def __init__(self, request: StopRequest):
        self._request = request
        self._ended_at = -1
        self._last_step: float | None = None
        self._waited = 0.0

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Remember the step."""
        self._ended_at = agent.num_timesteps

    def on_step(self, agent: OffPolicyAgent) -> bool | None:
        """End learning if that was requested."""
        if self._request.number is None:
            return None
        ends = self._ended_at == agent.num_timesteps or self._ends_anywhere(agent) or self.is_overdue()
        return False if ends else None

    def is_overdue(self) -> bool:
        """Whether a stop was requested, and has waited long enough; called in each step, of evaluations too."""
        if self._request.number is None:
            return False
        now = time.monotonic()
        self._waited += min(now - (self._last_step or now), LONGEST_STEP)
        self._last_step = now
        return self._waited >= PATIENCE

    def _ends_anywhere(self, agent: OffPolicyAgent) -> bool:
        loop = agent.loop
        return isinstance(agent.env, gym.vector.VectorEnv) or not loop.exact or loop.outside_episodes


LAST_EVALUATION = 10.0  # seconds; a stopped run is evaluated once more only if its last evaluation took no longer


def run_to_goal(
    run: Path,
    document: dict[str, Any],
    agent: OffPolicyAgent,
    run_state: RunState,
    request: StopRequest,
    progress_bar: bool,
    track: str | None = None,
) -> None:
    """Train an agent until its goal, or until a stop request; save it in both cases, and close its environment.

    Args:
        run, document: the run directory, whose lock this process holds, and the contents of its ``config.json``.
        agent, run_state: the agent that learns, and the state of the run besides it.
        request: the request to stop early; its ``left`` is set if the run was stopped by it.
        progress_bar: show one on stderr.
        track: an additional experiment tracker to log to: one of :data:`ddpg.runs.trackers.TRACKERS`.

    Raises:
        EnvironmentFault, OwnCodeFault: if the environment or a function of the user's own failed; the message names it,
            the step, the seed, and what was saved.
        FileFault: if a file could not be written.
        FloatingPointError: if learning diverged.
    """
    resume = ResumeCommand(run, document, () if track is None else ("--track", track))
    request.resumable = resume.hint
    goal = document["total_timesteps"]

    def advice() -> str:
        return f"earlier checkpoints are intact; with that put right, {resume.hint()}"

    with file_faults(advice), _environments(run, agent, document, request) as evaluation_env:
        name = env_id_of(evaluation_env)
        stop = GracefulStop(request)
        recording = RunRecorder(run, document, agent, evaluation_env, run_state, stop.is_overdue)
        with contextlib.closing(recording) as recorder:
            if track is not None:
                again = f"with that put right, {resume.hint()}"
                recorder.add_writer(RunTracker(track, tags_of(agent), document, f"{name}/{run.name}", again))
            callbacks: list[Callback] = [stop, EnvironmentNotes(name), recorder]
            if progress_bar:
                callbacks.append(ProgressBar(name.rpartition("/")[2]))
            try:
                if request.number is None and agent.num_timesteps < goal:
                    agent.learn(goal - agent.num_timesteps, callbacks)
                if agent.num_timesteps < goal or not recorder.conclude(agent):
                    _save_and_stop(agent, recorder, request, resume)
            # EOFError and ConnectionError: a process of the vector has ended.
            except (EnvironmentFault, OwnCodeFault, KeyboardInterrupt, EOFError, ConnectionError) as error:
                if request.again:
                    raise
                # A signal to the whole process group may end the vector's processes before it arrives here.
                if not request.came(within=0.5):
                    raise _located_fault(error, name, agent, recorder, resume) from error
                _save_and_stop(agent, recorder, request, resume)
        finish_run(run, agent, name)


def finish_run(run: Path, agent: OffPolicyAgent, env_id: str) -> bool:
    """Finish a run: delete old checkpoints, and plot the learning curve; return whether that changed the picture."""
    from ddpg.runs.plotting import plot_learning_curve  # imported late, because Matplotlib would delay the start

    run_directory.prune_checkpoints(run)
    picture = run / run_directory.PICTURE
    before = picture.read_bytes() if picture.exists() else None
    plot_learning_curve(run, f"{type(agent).__name__} on {env_id}, seed {agent.seed}")
    return picture.read_bytes() != before


@contextlib.contextmanager
def _environments(
    run: Path, agent: OffPolicyAgent, document: dict[str, Any], request: StopRequest
) -> Iterator[gym.Env]:
    """Yield an environment to evaluate in; at the end close it and the agent's environment.

    Raises:
        EnvironmentFault: if one of them failed in ``close``, and nothing failed before.
    """
    evaluation_env = None
    try:
        evaluation_env = make_env(EnvSource.of_run(document))
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
            faults.append(f"environment failed in close: {format_error(error)}" if not str(error) else str(error))
            _end(env)
    if faults and not request.left:
        raise EnvironmentFault(f"{faults[0]}; all {agent.num_timesteps:,} steps of the run are saved in {run}")


def close_unused(env: gym.Env | gym.vector.VectorEnv) -> None:
    """Close an environment that no run uses after all, without raising an error; end the processes of a vector."""
    env_calls.close_quietly(env)
    if isinstance(env, gym.vector.VectorEnv):
        env_calls.terminate_processes(env)  # those that did not end by themselves
        env.closed = True


def _end(env: Any) -> None:
    """Close an environment after a failure, without raising a second error or waiting for a vector's processes."""
    if env is None:
        return
    env_calls.terminate_processes(env)
    env_calls.close_quietly(env)
    if isinstance(env, gym.vector.VectorEnv):
        env.closed = True  # otherwise gymnasium's __del__ would try to close it again


def _save_and_stop(agent: OffPolicyAgent, recorder: RunRecorder, request: StopRequest, resume: ResumeCommand) -> None:
    """Save, print how to resume, and evaluate if that is quick."""
    request.left = True
    path, exactly = recorder.leave(agent)
    where = f"saved at {agent.num_timesteps:,} of {resume.document['total_timesteps']:,} steps"
    if exactly:
        request.say(f"{where}; it goes on as if it had not been interrupted with: {resume.text()}")
    else:
        going_back = _exact_resume_hint(agent, resume, path)
        request.say(f"{where}, in the middle of episodes, so it is resumed with new ones: {resume.text()}{going_back}")
    try:
        summary = recorder.evaluate_unrecorded(agent, LAST_EVALUATION)
    except (EnvironmentFault, KeyboardInterrupt) as error:
        request.say(f"no evaluation there: {format_error(error)}")
        return
    if summary:
        request.say(
            f"evaluation there: mean return {format_number(summary['mean_return'])} of {summary['episodes']} episodes"
        )


def _exact_resume_hint(agent: OffPolicyAgent, resume: ResumeCommand, path: Path) -> str:
    """Return words with the command that resumes a run exactly, from the checkpoint before ``path``, if any."""
    before = [one.name for one in run_directory.checkpoints(resume.run) if one.name != path.name][-1:]
    if not (before and agent.loop.exact):
        return ""
    return f"; exactly as if not interrupted: {resume.text('--checkpoint', before[0])}"


def _located_fault(
    error: BaseException, name: str, agent: OffPolicyAgent, recorder: RunRecorder, resume: ResumeCommand
) -> UsageError:
    """Save the agent, and return the fault with the step and the seed at which it happened."""
    step, seed, going_back = agent.num_timesteps, agent.seed, ""
    try:
        path, exactly = recorder.leave(agent)
    except (UsageError, OSError) as other:
        kept = f"what was learned since could not be saved ({other})"
    else:
        kept = "what was learned is saved"
        going_back = "" if exactly else _exact_resume_hint(agent, resume, path)
    kind = type(error) if isinstance(error, OwnCodeFault) else EnvironmentFault
    if isinstance(error, UsageError):
        what = str(error)
    elif isinstance(error, KeyboardInterrupt):
        what = f"it raised {format_error(error)}, and no SIGINT has come"
    else:
        what = f"a process has ended ({type(error).__name__})"
    where = "" if name in what else f"{name}, "
    return kind(f"{where}after step {step}, seed {seed}: {what}; {kept}; {resume.hint()}{going_back}")
