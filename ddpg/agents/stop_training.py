"""Callbacks that end learning, under the names that Stable-Baselines3 gave them."""

import math

from ddpg.agents.callbacks import Callback
from ddpg.errors import UsageError, brief
from ddpg.experience.interaction import Episode
from ddpg.validation import LARGEST_INT, is_real, validate_int


class StopTrainingOnRewardThreshold(Callback):
    """Ends learning when an evaluation's mean return reaches a threshold; beside :class:`ddpg.EvalCallback`.

    Args:
        reward_threshold: the mean return (env units).

    Raises:
        UsageError: no number.
    """

    def __init__(self, reward_threshold: float):
        if not is_real(reward_threshold):
            raise UsageError(f"reward_threshold={brief(reward_threshold)} must be a number, a mean return in env units")
        if math.isnan(reward_threshold) if isinstance(reward_threshold, float) else abs(reward_threshold) > LARGEST_INT:
            raise UsageError(f"reward_threshold={brief(reward_threshold)} is reached by nothing; give a number")
        self._threshold = reward_threshold

    def on_evaluation(self, agent, evaluation) -> bool | None:
        """End learning if it is reached."""
        return False if evaluation.mean_return >= self._threshold else None


class StopTrainingOnNoModelImprovement(Callback):
    """Ends learning after too many evaluations in a row without a new best one; beside :class:`ddpg.EvalCallback`.

    Args:
        max_no_improvement_evals: as many in a row are borne; one more ends learning.
        min_evals: so many evaluations at first do not count as being without improvement.

    Raises:
        UsageError: a number below 0.
    """

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0):
        self._bearable = validate_int(max_no_improvement_evals, "max_no_improvement_evals", at_least=0)
        self._min_evals = validate_int(min_evals, "min_evals", at_least=0)
        self._evaluations = self._without = 0
        self._best = -math.inf

    def on_evaluation(self, agent, evaluation) -> bool | None:
        """Count; end learning if it was one too many."""
        self._evaluations += 1
        improved = evaluation.mean_return > self._best
        self._best = max(self._best, evaluation.mean_return)
        if improved or self._evaluations <= self._min_evals:
            self._without = 0
            return None
        self._without += 1
        return False if self._without > self._bearable else None


class StopTrainingOnMaxEpisodes(Callback):
    """Ends learning after so many episodes, counted from its beginning; of N environments, N times as many in all.

    Args:
        max_episodes: episodes of each environment, in the mean.

    Raises:
        UsageError: fewer than one.
    """

    def __init__(self, max_episodes: int):
        self._max_episodes = validate_int(max_episodes, "max_episodes", at_least=1)
        self._left = 0

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Begin to count."""
        self._left = self._max_episodes * getattr(agent.env, "num_envs", 1)

    def on_episode_end(self, agent, episode: Episode) -> None:
        """Count."""
        self._left -= 1

    def on_step(self, agent) -> bool | None:
        """End learning if there were enough."""
        return False if self._left <= 0 else None
