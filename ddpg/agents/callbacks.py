"""What can be hooked into ``DDPG.learn``."""

import collections
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ddpg import progress
from ddpg.errors import UsageError
from ddpg.experience.interaction import Episode


class Callback:
    """Base class: override what is needed. ``agent`` is the :class:`ddpg.DDPG` that learns."""

    def on_training_start(self, agent, total_timesteps: int) -> None:
        """Learning begins; ``total_timesteps`` is where ``agent.num_timesteps`` will end."""

    def on_step(self, agent) -> bool | None:
        """One step of every environment is done. Returning ``False`` ends learning after it."""

    def on_episode_end(self, agent, episode: Episode) -> None:
        """An episode ended."""

    def on_compile(self, agent) -> None:
        """The first gradient updates are due; before they are made they are built and compiled, in seconds."""

    def on_update(self, agent, metrics: dict[str, float]) -> None:
        """Gradient updates were made; ``metrics`` are their means."""

    def on_training_end(self, agent) -> None:
        """Learning ended, also by an interrupt or an error."""


class AfterStep(Callback):
    """A function ``f(agent)`` as a callback: called after every step; ``False`` ends learning."""

    def __init__(self, function: Callable[[Any], bool | None]):
        self._function = function

    def on_step(self, agent) -> bool | None:
        """Call it."""
        return self._function(agent)


def as_callbacks(callbacks: Any) -> list[Callback]:
    """Return callbacks of a callback, a function, or several of them.

    Raises:
        UsageError: something that is neither.
    """
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = [callbacks]
    if not isinstance(callbacks, Iterable) or isinstance(callbacks, (str, bytes)):
        raise UsageError(f"callbacks={callbacks!r}: expected ddpg.Callback objects or functions f(agent), or a list")
    return [_as_callback(callback) for callback in callbacks]


def _as_callback(callback: Any) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if callable(callback) and not isinstance(callback, type):
        return AfterStep(callback)
    raise UsageError(
        f"callback {callback!r} is neither a ddpg.Callback object nor a function f(agent)"
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
        self._bar = progress.bar(
            total=total_timesteps, initial=agent.num_timesteps, desc=self._description, unit="step"
        )
        self._say("")

    def on_step(self, agent) -> None:
        """Move it."""
        if self._bar is not None:
            self._bar.update(agent.num_timesteps - self._bar.n)

    def on_episode_end(self, agent, episode: Episode) -> None:
        """Show the mean return, and how many succeeded where the environment tells."""
        self._episodes.append(episode)
        if self._bar is not None:
            self._say(self._recent())

    def on_compile(self, agent) -> None:
        """Tell why nothing moves."""
        if self._bar is not None:
            self._say("compiling the update ")
            self._bar.refresh()

    def on_update(self, agent, metrics: dict[str, float]) -> None:
        """Tell of the episodes again, after the first."""
        if self._bar is not None and self._compiling:
            self._say(self._recent())
            self._bar.refresh()

    def _recent(self) -> str:
        if not self._episodes:
            return ""
        successes = [episode.success for episode in self._episodes if episode.success is not None]
        mean = float(np.mean([episode.episode_return for episode in self._episodes]))
        text = f"return {progress.significant(mean)} "
        return text + (f"success {np.mean(successes):.0%} " if successes else "")

    def _say(self, text: str) -> None:
        # Before the times: what does not fit is cut off at the end.
        self._compiling = text.startswith("compiling")
        self._bar.bar_format = (
            "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} " + text + "[{elapsed}<{remaining}, {rate_fmt}]"
        )

    def on_training_end(self, agent) -> None:
        """Leave the finished bar on the screen."""
        if self._bar is not None:
            self._bar.close()
