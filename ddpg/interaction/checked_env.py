"""A wrapper for each environment of a vector, so that its failures reach the caller with their cause."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.env_calls import CLOSE_FAILED, call, close_quietly, unpacked_reset, unpacked_step
from ddpg.interaction.env_errors import format_error
from ddpg.interaction.validation import refuse_masked


class CheckedEnv(gym.Wrapper):
    """One environment of a vector; its failures reach the vector as an :class:`EnvironmentFault`.

    Needed because gymnasium's vectors concatenate observations before they can be checked, which loses masks; they end
    silently on ``sys.exit()``; and not every exception can be sent between processes.

    Args:
        env: the environment.
        in_worker: whether this process steps only this environment; another process handles Ctrl-C then.
    """

    def __init__(self, env: gym.Env, in_worker: bool = False):
        super().__init__(env)
        self._in_worker = in_worker

    def reset(self, **options: Any) -> Any:
        """Reset, as the environment does.

        Raises:
            EnvironmentFault: if it failed.
        """
        returned = self._call(self.env.reset, **options)
        with _as_fault():
            refuse_masked(unpacked_reset(returned), "observation")
        return returned

    def step(self, action: Any) -> Any:
        """Step, as the environment does.

        Raises:
            EnvironmentFault: if it failed.
        """
        returned = self._call(self.env.step, action)
        with _as_fault():
            values = unpacked_step(returned)
            for value, what in zip(values, ("observation", "reward", "terminated", "truncated"), strict=False):
                refuse_masked(value, what)
        return values

    def close(self) -> None:
        """Close, as the environment does.

        Raises:
            EnvironmentFault: if it failed.
            SystemExit: if it failed in a process of its own, with status
                :data:`~ddpg.interaction.env_calls.CLOSE_FAILED`.
        """
        try:
            self._call(self.env.close)
        except EnvironmentFault:
            if self._in_worker:
                raise SystemExit(CLOSE_FAILED) from None
            raise

    def _call(self, function: Callable, *arguments: Any, **options: Any) -> Any:
        try:
            return call(function, *arguments, fault=lambda error: EnvironmentFault(format_error(error)), **options)
        except KeyboardInterrupt as error:
            if self._in_worker:
                raise EnvironmentFault(format_error(error)) from error
            raise


class ProbedEnv(CheckedEnv):
    """An environment that is only inspected, such as for its spaces; ``close`` raises nothing."""

    def close(self) -> None:
        """Close, whatever the environment does then."""
        close_quietly(self.env)


@contextlib.contextmanager
def _as_fault() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise EnvironmentFault(str(error)) from None
