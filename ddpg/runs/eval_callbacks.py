"""Periodic callbacks under Stable-Baselines3's names: evaluation and checkpoints."""

from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.callbacks import Periodic
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config.name_hints import CHECKPOINT_CALLBACK, EVAL_CALLBACK, refuse_unknown
from ddpg.errors import UsageError
from ddpg.interaction.validation import validate_bool, validate_int, validate_path
from ddpg.runs.evaluation import Evaluation, evaluate, evaluation_seed, is_learning_env


class EvalCallback(Periodic):
    """Evaluates every so many steps, in an environment of its own, and saves the best policy.

    It leaves the agent's random generators as they are: what is learned is the same with and without it. Every
    evaluation sees the same episodes, and where it explores the same noise. Other callbacks beside it are told
    (``on_evaluation``): those that stop learning, CSV, TensorBoard, trackers.

    Args:
        eval_env: an environment or a vector of them; not the one that the agent learns in. You close it.
        n_eval_episodes: episodes of an evaluation.
        eval_freq: environment steps between evaluations, over all environments that the agent learns in.
        best_model_save_path: a directory, in which ``best_model`` is the checkpoint of the best mean return so far,
            without the replay memory; ``None``: it is not saved.
        deterministic: without exploration noise.
        seed: of each evaluation's first reset; ``None``: one that belongs to the agent's.

    Attributes:
        evaluations: ``(environment step, Evaluation)`` of each.
        best_mean_reward: the largest mean return so far (env units), at first −∞; ``last_mean_reward``: the last.

    Raises:
        UsageError: if a number is out of its range, or a keyword is unknown.
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
        self._seed = seed if seed is None else validate_int(seed, "seed", at_least=0)
        self.evaluations: list[tuple[int, Evaluation]] = []
        self.best_mean_reward = self.last_mean_reward = float("-inf")

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Begin to count.

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
        """Evaluate, save, tell the others."""
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
    """Saves the agent every so many steps, as ``save_path/<steps>``: for ``DDPG.load(save_path + "/5000", env)``.

    Args:
        save_freq: environment steps between checkpoints, over all environments.
        save_path: a directory; it is made.
        save_replay_buffer: with the replay memory, so that learning can go on as if it had not stopped.

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
        """Save."""
        agent.save(self._path / str(agent.num_timesteps), replay=self._replay)
