"""A callback that evaluates an agent while it learns and writes its run directory: tables, events, checkpoints."""

import contextlib
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Callback
from ddpg.agents.off_policy import OffPolicyAgent, capture
from ddpg.checkpoints import checkpoint, target_dir
from ddpg.errors import FileFault, UsageError
from ddpg.interaction.env_calls import env_name
from ddpg.interaction.env_runner import Episode
from ddpg.progress import format_number, print_to_stderr
from ddpg.runs import run_directory
from ddpg.runs.evaluation import Evaluation, choice_seed, evaluate, evaluation_seed
from ddpg.runs.lock import directory_id
from ddpg.runs.log_writers import CSVLogWriter, DiagnosticsLogWriter, LogWriter, TensorBoardLogWriter
from ddpg.runs.run_state import MetricsTracker, RunState, tags_of

RUN_STATE = "run"  # the name of the run state's group of arrays in a checkpoint
CHOICE_EPISODES = 20  # episodes per policy when two are compared; the later policy is kept if it is not worse
LONG_EVALUATION = 30.0  # seconds; one that takes longer without a time limit on its episodes is told of
ROWS = 200  # approximate number of rows in metrics.csv, whatever the length of the run


class RunRecorder(Callback):
    """Evaluates an agent while it learns, and writes its run directory.

    It evaluates and saves only at a point where every environment is reset afterwards. The seed of the next episodes
    then depends only on the run's seed and the step, so a run that is resumed from this checkpoint equals an
    uninterrupted one to the last bit. With a single environment that point is the end of the episode that is running
    when the evaluation is due (the episode is cut off if it lasts for another interval); a vector is reset at once.
    Workers do not reset their environments, and offline learning has no episodes, so there it evaluates and saves as
    soon as the evaluation is due.

    Args:
        run, document: the run directory, and the contents of its ``config.json``.
        agent: the agent that learns.
        env: the environment to evaluate in.
        run_state: the state of the run in the checkpoint; later rows of the tables are dropped.
        interrupted: asked in each step of an evaluation; once it is true, the evaluation ends unrecorded, and learning
            ends.
    """

    def __init__(
        self,
        run: Path,
        document: dict[str, Any],
        agent: OffPolicyAgent,
        env: gym.Env,
        run_state: RunState,
        interrupted: Callable[[], bool] = lambda: False,
    ):
        self._run, self._folder, self._directory = run, run / "checkpoints", directory_id(run)
        self._best = _best_of(run)
        self._offline, self._offline_until = self._folder / "offline", document["offline_timesteps"]
        self._interval = document["evaluation_interval"]
        self._episodes = document["evaluation_episodes"]
        self._goal, self._diagnose = document["total_timesteps"], document["diagnose"]
        self._log_interval = max(1, self._goal // ROWS)
        self._env, self._interrupted = env, interrupted
        self._has_warned = False
        self._seed = evaluation_seed(document["seed"])
        self._run_state, self._metrics = run_state, MetricsTracker(run_state, agent)
        self._resets_anywhere = isinstance(agent.env, gym.vector.VectorEnv) or not agent.loop.exact
        self._first_step = agent.num_timesteps
        self._episode_ended_at = -1
        self._evaluation_seconds = 0.0
        self._open(agent)

    def _open(self, agent: OffPolicyAgent) -> None:
        """Open the files, and drop the rows that are later than the checkpoint from which the run is resumed."""
        run_state, tags = self._run_state, tags_of(agent)
        keep = {"metrics": run_state.logged, "episodes": agent.num_timesteps, "evaluations": run_state.evaluated}
        kept = {True: run_state.evaluated, False: run_state.logged}
        self._writers: list[LogWriter] = []
        with contextlib.ExitStack() as self._files:
            self._tables = CSVLogWriter(self._run, tags, keep)
            self.add_writer(self._tables)
            for path in self._tables.changed_since(run_state.tables):
                warnings.warn(
                    f"{path}: rows up to step {agent.num_timesteps} are not those that were written; the file was "
                    "edited or damaged. It is left as it is, because the run computes nothing from it",
                    stacklevel=2,
                )
            self.add_writer(
                TensorBoardLogWriter(self._run, tags, lambda step, tag: step <= kept[tag.startswith("eval/")])
            )
            if self._diagnose:
                self.add_writer(DiagnosticsLogWriter(self._run, agent, self._goal, run_state.logged))
            self._recover_best(agent)
            self._files = self._files.pop_all()

    def add_writer(self, writer: LogWriter) -> None:
        """Also log to ``writer`` from now on, and close it at the end."""
        self._writers.append(self._files.enter_context(contextlib.closing(writer)))

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Start the clock; if an evaluation was due when the run was stopped, make it now."""
        self._metrics.begin(agent)
        self._save_offline(agent)
        if agent.num_timesteps >= self._due:
            self._evaluate(agent)

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Write a finished episode."""
        self._metrics.add_episode(episode)
        self._episode_ended_at = agent.num_timesteps
        for writer in self._writers:
            writer.add_episode(agent.num_timesteps, episode)

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        """Keep the metrics for the next row."""
        self._metrics.add_update(metrics)

    def on_step(self, agent: OffPolicyAgent) -> None:
        """Log when the log interval is over; evaluate when an evaluation is due and every environment can be reset."""
        now = agent.num_timesteps
        self._save_offline(agent)
        if now - self._run_state.logged >= self._log_interval:
            self._log(agent)
        if agent.loop.outside_episodes:
            self._episode_ended_at = now
        if self._can_evaluate(now) and not agent.loop.stopping:
            self._evaluate(agent)

    def _can_evaluate(self, now: int) -> bool:
        """Whether an evaluation is due and every environment can be reset."""
        if now < self._due:
            return False
        return self._resets_anywhere or now == self._episode_ended_at or now >= self._due + self._interval

    @property
    def _due(self) -> int:
        """The step of the next evaluation: the next multiple of the interval."""
        return (self._run_state.evaluated // self._interval + 1) * self._interval

    def conclude(self, agent: OffPolicyAgent) -> bool:
        """Log, evaluate and save at the end of the run, unless this step has been evaluated already.

        Returns:
            Whether it has been evaluated now; not if the evaluation was interrupted.
        """
        if self._run_state.evaluated < agent.num_timesteps:
            self._evaluate(agent)
        return self._run_state.evaluated >= agent.num_timesteps

    def leave(self, agent: OffPolicyAgent) -> tuple[Path, bool]:
        """Save before the goal, without writing a row that an uninterrupted run would not have.

        Returns:
            The checkpoint, and whether the run can be resumed from it exactly.
        """
        now = agent.num_timesteps
        if now > self._first_step:
            self._save(agent)
        anew = now in (self._first_step, self._run_state.evaluated) or now >= self._goal or self._can_evaluate(now)
        between = now == self._episode_ended_at and (agent.loop.outside_episodes or not self._resets_anywhere)
        exactly = anew or between
        return self._folder / str(now), exactly and agent.loop.exact

    def evaluate_unrecorded(self, agent: OffPolicyAgent, at_most: float) -> dict[str, Any] | None:
        """Return an unrecorded evaluation, or ``None`` if it or the last one took longer than ``at_most`` seconds."""
        if self._evaluation_seconds > at_most:
            return None
        end = time.perf_counter() + at_most
        evaluation = _evaluate_interruptibly(
            lambda: time.perf_counter() > end, agent, self._env, self._episodes, self._seed
        )
        return None if evaluation is None else evaluation.summary()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _log(self, agent: OffPolicyAgent) -> None:
        row = self._metrics.row(agent)
        start = time.perf_counter()
        for writer in self._writers:
            writer.add_metrics(agent.num_timesteps, row)
            writer.flush()
        if self._diagnose:  # the diagnostics took time that does not count as training
            self._metrics.exclude(time.perf_counter() - start)

    def _evaluate(self, agent: OffPolicyAgent) -> None:
        """Evaluate and save, outside the training time; an interrupted evaluation ends learning, and is made later."""
        run_state, now = self._run_state, agent.num_timesteps
        if run_state.logged < now:
            self._log(agent)
        start = time.perf_counter()

        def interrupted() -> bool:
            if not self._has_warned and time.perf_counter() - start > LONG_EVALUATION:
                self._warn_of_long_evaluation(now)
            return self._interrupted()

        evaluation = _evaluate_interruptibly(interrupted, agent, self._env, self._episodes, self._seed)
        # The choice comes before anything is recorded: if it fails, a resumed run makes the evaluation and the choice.
        if evaluation is None or (now >= self._goal and not self._save_better(agent, interrupted)):
            self._evaluation_seconds = math.inf
            agent.stop()
            return
        summary = evaluation.summary()
        self._evaluation_seconds = time.perf_counter() - start
        for writer in self._writers:
            writer.add_evaluation(now, summary)
        run_state.evaluated = now
        if is_best := summary["mean_return"] > run_state.best:
            run_state.best, run_state.best_at = summary["mean_return"], now
        agent.report_evaluation(evaluation)
        agent.abandon_episode()
        self._metrics.exclude(time.perf_counter() - start)
        start = time.perf_counter()
        self._save(agent)
        if is_best:
            _save_best(self._best, agent)
        self._metrics.exclude(time.perf_counter() - start)

    def _warn_of_long_evaluation(self, now: int) -> None:
        """Say once, if its episodes may be endless, that an evaluation takes long."""
        self._has_warned = True
        if self._env.spec is None or self._env.spec.max_episode_steps is None:
            name = env_name(self._env)
            print_to_stderr(
                f"the evaluation after {now:,} steps has taken {LONG_EVALUATION:.0f} s so far, and {name} has no time "
                "limit: if its episodes do not end by themselves, stop the run (Ctrl-C) and give it one, "
                "--env-kwargs max_episode_steps=N"
            )

    def _recover_best(self, agent: OffPolicyAgent) -> None:
        """Save the best agent now if it is missing (:func:`recover_best`).

        If the run goes back to an earlier checkpoint, the saved best agent may come from a later step; the next
        evaluation then replaces it.
        """
        recover_best(self._run, agent, self._run_state)
        run_state, now, kept = self._run_state, agent.num_timesteps, _step_of(self._best)
        if run_state.best_at not in (-1, now) and kept is not None and kept > now:
            warnings.warn(
                f"{self._best} is of step {kept}, after step {now}, from where the run goes on; it has replaced the "
                f"best checkpoint until step {now}, which was of step {run_state.best_at}. From the next evaluation on "
                "it will be the best of the evaluations that follow",
                stacklevel=2,
            )
            run_state.best, run_state.best_at = -math.inf, -1

    def _save_offline(self, agent: OffPolicyAgent) -> None:
        """Save the agent at the step at which learning from the data set alone ends."""
        if agent.num_timesteps == self._offline_until:
            self._check_directory()
            agent.save(self._offline, replay=False)

    def _save_better(self, agent: OffPolicyAgent, interrupted: Callable[[], bool]) -> bool:
        """Save the better policy of a fine-tuned run: the last one, or the one before the first environment step.

        Both are evaluated on the same episodes, which no evaluation during the run uses. The best of the run's own
        evaluations would be a biased choice: the maximum of many noisy returns favours a lucky one.

        Returns:
            Whether this was not interrupted; also true of a run that is not fine-tuned.
        """
        if self._offline_until is None or agent.num_timesteps <= self._offline_until or not self._offline.exists():
            return True
        before, returns = type(agent).load(self._offline, config=agent.config), []
        try:
            for one in (before, agent):
                arguments = self._env, CHOICE_EPISODES, choice_seed(agent.seed)
                if (evaluation := _evaluate_interruptibly(interrupted, one, *arguments)) is None:
                    return False
                returns.append(evaluation.mean_return)
            self._check_directory()
            better = before if returns[0] > returns[1] else agent
            better.save(self._folder / "better", replay=False)
        finally:
            before.close()
        first, last = map(format_number, returns)
        print_to_stderr(
            f"mean return of {CHOICE_EPISODES} episodes: {first} after {self._offline_until:,} updates from data, "
            f"{last} after {agent.num_timesteps - self._offline_until:,} more steps; checkpoint better holds the better"
        )
        return True

    def _check_directory(self) -> None:
        """Refuse to write if the run directory was renamed or removed since training began."""
        if directory_id(self._run) != self._directory:
            raise FileFault(
                f"{self._run} was renamed or removed while it was being trained, so nothing more is saved; resume it "
                "from its last checkpoint with ddpg resume and its new path"
            )

    def _save(self, agent: OffPolicyAgent) -> None:
        """Write a checkpoint from which the run can be resumed, and delete old ones."""
        self._check_directory()
        for writer in self._writers:
            writer.flush()
        self._run_state.tables = self._tables.digests()
        manifest, groups = capture(agent, replay=True)
        seconds, compile_seconds = self._metrics.seconds(), self._metrics.compile_seconds(agent)
        groups[RUN_STATE] = self._run_state.arrays(agent.counts, seconds, compile_seconds)
        checkpoint.write(self._folder / str(agent.num_timesteps), manifest, groups)
        run_directory.prune_checkpoints(self._run)


def recover_best(run: Path, agent: OffPolicyAgent, run_state: RunState) -> bool:
    """Save the agent of a run as its best if that is missing: its saving failed, or the run was killed before it.

    ``agent`` and ``run_state`` are those of the checkpoint from which the run goes on.

    Returns:
        Whether it was missing.
    """
    missing = run_state.best_at == agent.num_timesteps != _step_of(_best_of(run))
    if missing:
        _save_best(_best_of(run), agent)
    return missing


def _best_of(run: Path) -> Path:
    return run / "checkpoints" / "best"


def _step_of(path: Path) -> int | None:
    """Return the step of the agent in a checkpoint, or ``None`` if there is none or it is damaged."""
    try:
        return checkpoint.read(path)[0]["num_timesteps"]
    except UsageError:
        return None


def _save_best(path: Path, agent: OffPolicyAgent) -> None:
    if path.exists() and _step_of(path) is None:
        target_dir.remove_staging(path)  # saving would not replace a damaged checkpoint
    agent.save(path, replay=False)


class _Interrupted(Exception):
    """An evaluation is to end before its episodes do."""


class _InterruptiblePolicy:
    """An agent to be evaluated, whose ``predict`` raises :class:`_Interrupted` once ``interrupted()`` is true."""

    def __init__(self, agent: OffPolicyAgent, interrupted: Callable[[], bool]):
        self._agent, self._interrupted = agent, interrupted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def predict(self, observation: Any, deterministic: bool) -> Any:
        """Act as the agent does."""
        if self._interrupted():
            raise _Interrupted
        return self._agent.predict(observation, deterministic=deterministic)


def _evaluate_interruptibly(
    interrupted: Callable[[], bool], agent: OffPolicyAgent, *arguments: Any
) -> Evaluation | None:
    """Return ``evaluate(agent, *arguments)``, or ``None`` if ``interrupted()``, asked in each step, was true."""
    try:
        return evaluate(_InterruptiblePolicy(agent, interrupted), *arguments)
    except _Interrupted:
        return None
