"""Callbacks with Stable-Baselines3's names: evaluate, save checkpoints, and log to CSV, TensorBoard or a tracker."""

import abc
import io
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Periodic
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config.name_hints import CHECKPOINT_CALLBACK, EVAL_CALLBACK, refuse_unknown
from ddpg.errors import UsageError, brief, file_faults
from ddpg.interaction.env_runner import Episode
from ddpg.interaction.validation import validate_bool, validate_int, validate_optional_int, validate_path
from ddpg.runs import run_config
from ddpg.runs.evaluation import Evaluation, evaluate, evaluation_seed, is_learning_env
from ddpg.runs.log_writers import CSVLogWriter, LogWriter, TensorBoardLogWriter, TrackerLogWriter, table_columns
from ddpg.runs.run_state import MetricsTracker, RunState, tags_of
from ddpg.runs.trackers import as_tracker

_ADVICE = "name another directory"


class EvalCallback(Periodic):
    """Evaluates every ``eval_freq`` steps in a separate environment, and saves the best policy.

    It restores the agent's random generators, so training is the same with and without it. Every evaluation uses the
    same episodes and, unless ``deterministic``, the same exploration noise. It passes the result to the other callbacks
    (``on_evaluation``): those that stop training, and the CSV, TensorBoard and tracker loggers.

    Args:
        eval_env: an environment or a vector of them, but not the one that the agent learns in. You close it.
        n_eval_episodes: episodes per evaluation.
        eval_freq: environment steps between evaluations, over all environments that the agent learns in.
        best_model_save_path: a directory; the checkpoint with the best mean return so far is saved there as
            ``best_model``, without the replay buffer. ``None``: it is not saved.
        deterministic: act without exploration noise.
        seed: seed of the first reset of each evaluation; ``None``: derived from the agent's seed.

    Attributes:
        evaluations: a pair ``(environment step, Evaluation)`` for each evaluation.
        best_mean_reward: the largest mean return so far (env units), −∞ before the first evaluation.
        last_mean_reward: the mean return of the last evaluation, −∞ before the first.

    Raises:
        UsageError: if a number is out of range, or a keyword is unknown.
    """

    def __init__(
        self,
        eval_env: gym.Env | gym.vector.VectorEnv,
        *,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        seed: int | None = None,
        **unknown: Any,
    ):
        known = ("n_eval_episodes", "eval_freq", "best_model_save_path", "deterministic", "seed")
        refuse_unknown("EvalCallback", unknown, EVAL_CALLBACK, known)
        super().__init__(eval_freq, "eval_freq")
        self._env, self._deterministic = eval_env, validate_bool(deterministic, "deterministic")
        self._episodes = validate_int(n_eval_episodes, "n_eval_episodes", at_least=1)
        self._best = (
            None
            if best_model_save_path is None
            else validate_path(best_model_save_path, "best_model_save_path") / "best_model"
        )
        self._seed = validate_optional_int(seed, "seed", at_least=0)
        self.evaluations: list[tuple[int, Evaluation]] = []
        self.best_mean_reward = self.last_mean_reward = float("-inf")

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Start counting steps.

        Raises:
            UsageError: if the environment is the one that the agent learns in.
        """
        if is_learning_env(agent, self._env):
            raise UsageError(
                "EvalCallback evaluates in an environment of its own, and this is the one that the agent learns in; "
                "make another one"
            )
        super().on_training_start(agent, total_timesteps)

    def act(self, agent: OffPolicyAgent) -> None:
        """Evaluate, save the best policy, and report to the other callbacks."""
        seed = evaluation_seed(agent.seed) if self._seed is None else self._seed
        exploration = agent.generators["exploration"].bit_generator
        before, exploration.state = exploration.state, type(exploration)(seed).state
        try:
            evaluation = evaluate(agent, self._env, self._episodes, seed, self._deterministic)
        finally:
            exploration.state = before
        self.evaluations.append((agent.num_timesteps, evaluation))
        self.last_mean_reward = evaluation.mean_return
        if self.last_mean_reward > self.best_mean_reward:
            self.best_mean_reward = self.last_mean_reward
            if self._best is not None:
                agent.save(self._best, replay=False)
        agent.report_evaluation(evaluation)


class CheckpointCallback(Periodic):
    """Saves the agent every ``save_freq`` steps in ``save_path/<steps>``: for ``DDPG.load(save_path + "/5000", env)``.

    Args:
        save_freq: environment steps between checkpoints, over all environments.
        save_path: a directory; it is created if needed.
        save_replay_buffer: save the replay buffer too, so that training can continue as if it had not stopped.

    Raises:
        UsageError: if ``save_freq`` is below 1, or a keyword is unknown.
    """

    def __init__(self, save_freq: int, save_path: str | Path, *, save_replay_buffer: bool = False, **unknown: Any):
        refuse_unknown(
            "CheckpointCallback", unknown, CHECKPOINT_CALLBACK, ("save_freq", "save_path", "save_replay_buffer")
        )
        super().__init__(save_freq, "save_freq")
        self._path = validate_path(save_path, "save_path")
        self._replay = validate_bool(save_replay_buffer, "save_replay_buffer")

    def act(self, agent: OffPolicyAgent) -> None:
        """Save the agent."""
        agent.save(self._path / str(agent.num_timesteps), replay=self._replay)


class LogCallback(Periodic):
    """Base of the loggers: writes training metrics every ``log_interval`` steps and at the end, episodes, evaluations.

    Evaluations come from :class:`ddpg.EvalCallback`; the seconds and the steps per second exclude their duration.

    Args:
        log_interval: environment steps between rows, over all environments.
    """

    _metrics: MetricsTracker

    def __init__(self, log_interval: int):
        super().__init__(log_interval, "log_interval")
        self._agent: OffPolicyAgent | None = None
        self._writer: LogWriter | None = None

    @abc.abstractmethod
    def _open(self, agent: OffPolicyAgent, tags: dict[str, str]) -> LogWriter:
        """Return the writer for metrics with these tags."""

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Open the files and start the clock."""
        super().on_training_start(agent, total_timesteps)
        if self._agent is agent:
            self._metrics.begin(agent)
        else:
            self._agent = agent
            self._metrics = MetricsTracker(RunState.begun(agent.metrics, agent.counts, agent.num_timesteps), agent)
        self._writer = self._open(agent, tags_of(agent))

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Write a finished episode."""
        self._metrics.add_episode(episode)
        if self._writer:
            self._writer.add_episode(agent.num_timesteps, episode)

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        """Keep the metrics for the next row."""
        self._metrics.add_update(metrics)

    def on_evaluation(self, agent: OffPolicyAgent, evaluation: Evaluation) -> None:
        """Write an evaluation.

        Raises:
            UsageError: if it is not one.
        """
        if not isinstance(evaluation, Evaluation):
            raise UsageError(f"evaluation={brief(evaluation)} must be an Evaluation; report what ddpg.evaluate returns")
        self._metrics.exclude(evaluation.seconds)
        if self._writer:
            self._writer.add_evaluation(agent.num_timesteps, evaluation.summary())
            self._writer.flush()

    def act(self, agent: OffPolicyAgent) -> None:
        """Write a row."""
        if self._writer:
            self._writer.add_metrics(agent.num_timesteps, self._metrics.row(agent))
            self._writer.flush()

    def on_training_end(self, agent: OffPolicyAgent) -> None:
        """Write the last row and close the files."""
        if self._writer is None:
            return
        try:
            if self._metrics.run_state.logged < agent.num_timesteps:
                self.act(agent)
        finally:
            self._metrics.end(agent)
            self._writer.close()
            self._writer = None


class CSVCallback(LogCallback):
    """Writes ``metrics.csv``, ``episodes.csv`` and ``evaluations.csv``, the tables of a run directory.

    Rows are appended to existing tables. Rows later than the agent's current step are removed first, so an agent at
    step 0 starts new tables.

    Args:
        directory: the directory of the tables; it is created if needed.
        log_interval: environment steps between rows of ``metrics.csv``.

    Raises:
        UsageError: if ``log_interval`` is below 1.
    """

    def __init__(self, directory: str | Path, log_interval: int = 1_000):
        super().__init__(log_interval)
        self._directory = validate_path(directory, "directory")

    def _open(self, agent: OffPolicyAgent, tags: dict[str, str]) -> LogWriter:
        if (self._directory / run_config.CONFIG).exists():
            raise UsageError(f"{self._directory} is the directory of a run, which has tables of its own; {_ADVICE}")
        with file_faults(_ADVICE):
            self._directory.mkdir(parents=True, exist_ok=True)
            for name, columns in table_columns(tags).items():
                _check_header(self._directory / f"{name}.csv", columns)
            return CSVLogWriter(self._directory, tags, dict.fromkeys(table_columns(tags), agent.num_timesteps))


class TensorBoardCallback(LogCallback):
    """Writes a TensorBoard event file, under Stable-Baselines3's tags (``rollout/ep_rew_mean``, ``eval/mean_reward``).

    Args:
        log_dir: the directory; it is created if needed. Existing event files in it are left unchanged.
        log_interval: environment steps between points.

    Raises:
        UsageError: if ``log_interval`` is below 1.
    """

    def __init__(self, log_dir: str | Path, log_interval: int = 1_000):
        super().__init__(log_interval)
        self._directory = validate_path(log_dir, "log_dir")

    def _open(self, agent: OffPolicyAgent, tags: dict[str, str]) -> LogWriter:
        with file_faults(_ADVICE):
            self._directory.mkdir(parents=True, exist_ok=True)
            return TensorBoardLogWriter(self._directory, tags, keep=None)


class TrackerCallback(LogCallback):
    """Logs to W&B, MLflow, Trackio, or anything with ``init``, ``log`` and ``finish``.

    In every ``learn``, ``TrackerCallback(wandb, project="pendulum")`` starts a run (``init(config=..., **options)``),
    logs numbers under Stable-Baselines3's tags (``log({tag: value}, step=...)``), and ends the run (``finish()``).
    A run that you have started yourself, that is, an object with ``log`` but without ``init``, is neither started nor
    ended.

    Args:
        tracker: ``"wandb"``, ``"mlflow"`` or ``"trackio"``, such a module, or an object.
        log_interval: environment steps between logs.
        options: keyword arguments of the tracker's ``init``; ``config`` defaults to the agent's configuration.

    Raises:
        UsageError: if the tracker has no ``log``, or has ``init`` without ``finish``; if there are ``options`` and the
            tracker has no ``init``; if ``log_interval`` is below 1.
    """

    def __init__(self, tracker: Any, log_interval: int = 1_000, **options: Any):
        super().__init__(log_interval)
        tracker = as_tracker(tracker, "tracker")
        begins = callable(getattr(tracker, "init", None))
        if begins and not callable(getattr(tracker, "finish", None)):
            raise UsageError(
                f"tracker={brief(tracker)} has no finish; give 'wandb', 'mlflow' or 'trackio', such a module, or a run "
                "that you began"
            )
        if options and not begins:
            raise UsageError(f"tracker={brief(tracker)} has no init to pass {', '.join(options)} to")
        self._tracker, self._begins, self._options = tracker, begins, options

    def _open(self, agent: OffPolicyAgent, tags: dict[str, str]) -> LogWriter:
        if self._begins:
            self._tracker.init(**{"config": agent.config.to_json(), **self._options})
        return TrackerLogWriter(self._tracker, tags, self._begins)


def _check_header(path: Path, columns: list[str]) -> None:
    """Refuse an existing file that is not a table with these columns."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            header = file.readline(io.DEFAULT_BUFFER_SIZE).rstrip("\r\n")
        if header != ",".join(columns):
            raise UsageError(f"{path} is another table: its columns are not those of this agent; {_ADVICE}")
