"""Callbacks of ``learn``: the base class, a progress bar, and stopping criteria with Stable-Baselines3's names."""

import abc
import collections
import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ddpg import progress
from ddpg.config.name_hints import STOP_CALLBACK, refuse_unknown
from ddpg.errors import UsageError, brief
from ddpg.interaction.env_runner import Episode
from ddpg.interaction.validation import LARGEST_INT, is_real, validate_int


class Callback:
    """Base class: override the methods you need. ``agent`` is the learning :class:`ddpg.DDPG` or :class:`ddpg.DQN`."""

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Learning begins; ``total_timesteps`` is where ``agent.num_timesteps`` will end."""

    def on_step(self, agent) -> bool | None:
        """One step of every environment, or part of a worker's rollout, is done. Returning ``False`` ends learning."""

    def on_episode_end(self, agent, episode: Episode) -> None:
        """An episode ended."""

    def on_compile(self, agent) -> None:
        """The first gradient updates are about to be built and compiled, which takes seconds."""

    def on_update(self, agent, metrics: dict[str, float]) -> None:
        """Gradient updates were made; ``metrics`` are their means."""

    def on_evaluation(self, agent, evaluation) -> bool | None:
        """The policy was evaluated (a :class:`ddpg.runs.evaluation.Evaluation`). Returning ``False`` ends learning.

        :class:`ddpg.EvalCallback` triggers it; your own callback can do so by calling ``agent.report_evaluation``.
        """

    def on_training_end(self, agent) -> None:
        """Learning ended, also by an interrupt or an error."""


def asks_to_stop(answer: Any) -> bool:
    """Return whether a callback returned ``False``, of Python or NumPy."""
    return isinstance(answer, (bool, np.bool_)) and not answer


class CallbackList(Callback):
    """Several callbacks as one, called in order; one that returns ``False`` stops the agent before the next is called.

    Args:
        callbacks: :class:`Callback` objects, or functions ``f(agent)``, or lists of them.

    Raises:
        UsageError: if an element is neither.
    """

    def __init__(self, callbacks: Any = ()):
        self.callbacks = as_callbacks(callbacks)
        self._started: list[Callback] = []

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Call this method of each callback; if one raises an exception, end those before it."""
        try:
            for callback in self.callbacks:
                callback.on_training_start(agent, total_timesteps)
                self._started.append(callback)
        except BaseException:
            self.on_training_end(agent)
            raise

    def on_step(self, agent) -> None:
        """Call this method of each callback; stop the agent if one returns ``False``."""
        for callback in self.callbacks:
            if asks_to_stop(callback.on_step(agent)):
                agent.stop()

    def on_episode_end(self, agent, episode: Episode) -> None:
        """Call this method of each callback."""
        for callback in self.callbacks:
            callback.on_episode_end(agent, episode)

    def on_compile(self, agent) -> None:
        """Call this method of each callback."""
        for callback in self.callbacks:
            callback.on_compile(agent)

    def on_update(self, agent, metrics: dict[str, float]) -> None:
        """Call this method of each callback."""
        for callback in self.callbacks:
            callback.on_update(agent, metrics)

    def on_evaluation(self, agent, evaluation) -> None:
        """Call this method of each callback; stop the agent if one returns ``False``."""
        for callback in self.callbacks:
            if asks_to_stop(callback.on_evaluation(agent, evaluation)):
                agent.stop()

    def on_training_end(self, agent) -> None:
        """Call this method of each callback that has started, also if one of them raises an exception."""
        started, self._started = self._started, []
        with contextlib.ExitStack() as calls:
            for callback in reversed(started):  # the last one added is called first
                calls.callback(callback.on_training_end, agent)


class Periodic(Callback, abc.ABC):
    """Calls :meth:`act` every ``interval`` environment steps, over all environments of a vector.

    Raises:
        UsageError: if the interval, which messages name ``what``, is less than one step.
    """

    def __init__(self, interval: int, what: str):
        self._interval = validate_int(interval, what, at_least=1)
        self._last_step = 0

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Start counting from the agent's current step."""
        self._last_step = agent.num_timesteps

    def on_step(self, agent) -> bool | None:
        """Call :meth:`act` if a multiple of the interval was reached."""
        past, self._last_step = self._last_step, agent.num_timesteps
        return self.act(agent) if self._last_step // self._interval > past // self._interval else None

    @abc.abstractmethod
    def act(self, agent) -> bool | None:
        """Do the work; returning ``False`` ends learning."""


class StepFunction(Callback):
    """A function ``f(agent)`` as a callback: called after every step; ``False`` ends learning."""

    def __init__(self, function: Callable[[Any], bool | None]):
        self._function = function

    def on_step(self, agent) -> bool | None:
        """Call the function."""
        return self._function(agent)


def as_callbacks(callbacks: Any) -> list[Callback]:
    """Return callbacks, given one, a function, or a nested list of them; raise UsageError for anything else."""
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = [callbacks]
    if not isinstance(callbacks, Iterable) or isinstance(callbacks, (str, bytes, np.ndarray)):
        raise UsageError(
            f"callbacks={brief(callbacks)}: expected ddpg.Callback objects or functions f(agent), or a list"
        )
    return [
        CallbackList(callback) if isinstance(callback, (list, tuple)) else _as_callback(callback)
        for callback in callbacks
    ]


def _as_callback(callback: Any) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if callable(callback) and not isinstance(callback, type):
        return StepFunction(callback)
    raise UsageError(
        f"callback {brief(callback)} is neither a ddpg.Callback object nor a function f(agent)"
        + ("; it is a class: pass an object of it" if isinstance(callback, type) else "")
    )


class ProgressBar(Callback):
    """A bar on stderr: steps done, mean return and successes of the last ten episodes, time left, steps/s."""

    def __init__(self, description: str = "training"):
        self._description = description
        self._episodes: collections.deque[Episode] = collections.deque(maxlen=10)
        self._bar: Any = None

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Draw the bar."""
        self._bar = progress.tqdm_bar(
            total=total_timesteps, initial=agent.num_timesteps, desc=self._description, unit="step"
        )
        self._set_text("")

    def on_step(self, agent) -> None:
        """Advance the bar."""
        if self._bar is not None:
            self._bar.total = max(self._bar.total, agent.num_timesteps)  # a vector's last step may pass the goal
            self._bar.update(agent.num_timesteps - self._bar.n)

    def on_episode_end(self, agent, episode: Episode) -> None:
        """Show the mean return, and the success rate if all of the last episodes have reported success or failure."""
        self._episodes.append(episode)
        if self._bar is not None:
            self._set_text(self._episode_text())

    def on_compile(self, agent) -> None:
        """Show that the update is being compiled, since the bar does not move meanwhile."""
        if self._bar is not None:
            self._set_text("compiling the update ")
            self._bar.refresh()

    def on_update(self, agent, metrics: dict[str, float]) -> None:
        """Show the episodes' statistics again after compiling."""
        if self._bar is not None and self._compiling:
            self._set_text(self._episode_text())
            self._bar.refresh()

    def _episode_text(self) -> str:
        if not self._episodes:
            return ""
        successes = [episode.success for episode in self._episodes if episode.success is not None]
        mean = float(np.mean([episode.episode_return for episode in self._episodes]))
        text = f"return {progress.format_number(mean)} "
        word = "ok" if progress.is_narrow(self._bar) else "success"
        return text + (f"{word} {np.mean(successes):.0%} " if len(successes) == len(self._episodes) else "")

    def _set_text(self, text: str) -> None:
        # The text comes before the times, because tqdm cuts off the end if the line is too long.
        self._compiling = text.startswith("compiling")
        narrow = progress.is_narrow(self._bar)
        before, times = ("", "") if narrow else ("{percentage:3.0f}%", "{elapsed}")
        after = times + "<{remaining}" + ("" if narrow else ", {rate_fmt}")
        self._bar.unit_scale = narrow  # 1.23M
        self._bar.bar_format = "{desc}: " + before + "|{bar}| {n_fmt}/{total_fmt} " + text + f"[{after}]"

    def on_training_end(self, agent) -> None:
        """Leave the finished bar on the screen."""
        if self._bar is not None:
            self._bar.close()


class StopTrainingOnRewardThreshold(Callback):
    """Ends learning when an evaluation's mean return reaches a threshold; for use with :class:`ddpg.EvalCallback`.

    Args:
        reward_threshold: the mean return (env units).

    Raises:
        UsageError: if it is not a number, or one that no return reaches, such as NaN or infinity, or if a keyword is
            unknown.
    """

    def __init__(self, reward_threshold: float, **unknown: Any):
        refuse_unknown("StopTrainingOnRewardThreshold", unknown, STOP_CALLBACK, ("reward_threshold",))
        if not is_real(reward_threshold):
            raise UsageError(f"reward_threshold={brief(reward_threshold)} must be a number, a mean return in env units")
        whole = isinstance(reward_threshold, (int, np.integer))
        if abs(reward_threshold) > LARGEST_INT if whole else not reward_threshold < math.inf:
            raise UsageError(f"reward_threshold={brief(reward_threshold)} is reached by nothing; give a number")
        self._threshold = reward_threshold

    def on_evaluation(self, agent, evaluation) -> bool | None:
        """End learning if the threshold is reached."""
        return False if evaluation.mean_return >= self._threshold else None


class StopTrainingOnNoModelImprovement(Callback):
    """Ends learning after too many evaluations without a new best one; for use with :class:`ddpg.EvalCallback`.

    Args:
        max_no_improvement_evals: number of evaluations in a row without improvement that are tolerated.
        min_evals: number of evaluations at the start that are not counted.

    Raises:
        UsageError: if a number is below 0, or a keyword is unknown.
    """

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, **unknown: Any):
        refuse_unknown(
            "StopTrainingOnNoModelImprovement", unknown, STOP_CALLBACK, ("max_no_improvement_evals", "min_evals")
        )
        self._tolerated = validate_int(max_no_improvement_evals, "max_no_improvement_evals", at_least=0)
        self._min_evals = validate_int(min_evals, "min_evals", at_least=0)
        self._evaluations = self._not_improved = 0
        self._best = -math.inf

    def on_evaluation(self, agent, evaluation) -> bool | None:
        """Count evaluations without improvement; end learning if there are too many."""
        self._evaluations += 1
        improved = evaluation.mean_return > self._best
        self._best = max(self._best, evaluation.mean_return)
        if improved or self._evaluations <= self._min_evals:
            self._not_improved = 0
            return None
        self._not_improved += 1
        return False if self._not_improved > self._tolerated else None


class StopTrainingOnMaxEpisodes(Callback):
    """Ends learning after a number of episodes since ``learn`` began; N times as many for N environments.

    Args:
        max_episodes: episodes per environment, on average.

    Raises:
        UsageError: if it is less than one, or a keyword is unknown.
    """

    def __init__(self, max_episodes: int, **unknown: Any):
        refuse_unknown("StopTrainingOnMaxEpisodes", unknown, STOP_CALLBACK, ("max_episodes",))
        self._max_episodes = validate_int(max_episodes, "max_episodes", at_least=1)
        self._left = 0

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Start counting."""
        self._left = self._max_episodes * getattr(agent.env, "num_envs", 1)

    def on_episode_end(self, agent, episode: Episode) -> None:
        """Count the episode."""
        self._left -= 1

    def on_step(self, agent) -> bool | None:
        """End learning if the number is reached."""
        return False if self._left <= 0 else None
