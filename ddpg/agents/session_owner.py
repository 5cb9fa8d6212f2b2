"""What lives in a private graph and session: variables by name, in the process that made them, until it is closed."""

import abc
import os
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, brief, did_you_mean
from ddpg.updates.session import LendingSession, assign
from ddpg.validation import unmasked, validate_bool

Self = TypeVar("Self", bound="SessionOwner")


class SessionOwner(abc.ABC):
    """Owner of a graph and its session, which are given back by :meth:`close`, or with the object.

    Attributes:
        graph: the TensorFlow graph.
        session: the session that holds its variables.
        global_variables: by name, everything that learning writes to; learning rates are options, and not among them.
    """

    graph: tf.Graph
    session: LendingSession
    global_variables: dict[str, tf.Variable]

    def _own(self, session: LendingSession) -> None:
        """Take over a session, made in this process."""
        self.session, self._process = session, os.getpid()
        # The session holds threads and device memory: give them back with the object.
        self._give_back = weakref.finalize(self, _close, session, self._process)

    # -- its end --------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return not self._give_back.alive

    def close(self) -> None:
        """Give back the session, its threads and its device memory; once is enough, and twice does no harm.

        The environment is yours, and stays open. ``with DDPG(env) as agent:`` closes at the end of the block.
        """
        self._give_back()

    def __enter__(self: Self) -> Self:
        self.check_usable()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def check_usable(self) -> None:
        """Refuse to work once closed, or in a fork of the process that made this: TensorFlow's threads are not in it.

        Raises:
            UsageError: it is one of the two.
        """
        if os.getpid() != self._process:
            raise UsageError(
                f"this agent was made in process {self._process}, and TensorFlow's threads do not exist in the fork "
                f"{os.getpid()}, where it would hang; start processes with multiprocessing.get_context('spawn'), and "
                "load a saved agent in each"
            )
        if self.closed:
            raise UsageError(
                "this agent is closed, and its weights are gone; use it before close(), or load a saved one"
            )

    def __reduce__(self):
        """Refuse pickling and copying: a session belongs to its process.

        Raises:
            UsageError: always.
        """
        name = type(self).__name__
        raise UsageError(
            f"a {name} cannot be pickled or copied; use save and load: agent.save(path), {name}.load(path, env)"
        )

    # -- its variables --------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, np.ndarray]:
        """Return all that gradient updates change, by name: copies.

        Weights, targets (moving averages), the optimisers' slots, statistics of normalised layers, and the update's
        own count of itself: what :meth:`set_parameters` needs for updates to go on as they would have. Learning rates
        are options; the replay memory, ``num_timesteps`` and random states are in checkpoints (``save``).

        Raises:
            UsageError: the agent is closed.
        """
        self.check_usable()
        return self.session.run(self.global_variables)

    def set_parameters(self, parameters: Mapping[str, Any], exact_match: bool = True) -> None:
        """Set variables to what :meth:`get_parameters` returned, here or of an agent with the same networks.

        Args:
            parameters: arrays by name, of the same shapes, finite; floats of another precision are converted.
            exact_match: every variable must be given; otherwise those that are not stay as they are.

        Raises:
            UsageError: an unknown or a missing name, another shape or kind of number, NaN, or the agent is closed.
                Nothing is set then.
        """
        self.check_usable()
        if not isinstance(parameters, Mapping):
            raise UsageError(f"parameters={brief(parameters)} must be a dict of arrays by name, as of get_parameters()")
        exact_match = validate_bool(exact_match, "exact_match")
        values = {name: unmasked(value, f"parameter {name!r}") for name, value in parameters.items()}
        for name, value in values.items():
            if name not in self.global_variables:
                raise UsageError(
                    f"the agent has no parameter {name!r}{did_you_mean(name, self.global_variables)}; "
                    "get_parameters() has their names"
                )
            dtype = self.global_variables[name].dtype.base_dtype.as_numpy_dtype
            if value.dtype != dtype and value.dtype.kind == np.dtype(dtype).kind:
                values[name] = value = value.astype(dtype)
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise UsageError(f"parameter {name!r} holds numbers that are not finite; give finite ones")
        wanted = {name: v for name, v in self.global_variables.items() if exact_match or name in values}
        advice = "give all that get_parameters() returns of the same networks, or exact_match=False for some"
        check_variables(wanted, values, "set_parameters", advice)
        self.assign(values)

    def assign(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables to arrays that :func:`check_variables` has found to fit."""
        assign(self.session.run, [self.global_variables[name] for name in values], [*values.values()])
        self.refresh_policy()

    @abc.abstractmethod
    def refresh_policy(self) -> None:
        """Take note that variables were set."""


def check_variables(variables: Mapping[str, Any], values: Mapping[str, np.ndarray], source: str, advice: str) -> None:
    """Refuse values that are not those of ``variables``, by name, shape and dtype.

    Args:
        variables: TensorFlow's, by name.
        values: arrays by name.
        source: what the values are of, for the message.
        advice: what to do about it.

    Raises:
        UsageError: some are missing, too many, or of another shape or dtype.
    """
    if variables.keys() != values.keys():
        missing, extra = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
        raise UsageError(
            f"{source} does not fit these networks: it lacks {missing[:3] or 'nothing'}, and has "
            f"{extra[:3] or 'nothing'} that they do not; {advice}"
        )
    for name, variable in variables.items():
        if values[name].shape != tuple(variable.shape):
            raise UsageError(
                f"{name} has shape {values[name].shape} in {source} and {tuple(variable.shape)} here; {advice}"
            )
        if values[name].dtype != variable.dtype.base_dtype.as_numpy_dtype:
            raise UsageError(
                f"{name} has dtype {values[name].dtype} in {source} and {variable.dtype.base_dtype.name} here; {advice}"
            )


def _close(session: tf.compat.v1.Session, process: int) -> None:
    if os.getpid() == process:  # in a fork, closing waits for threads that are not there
        session.close()
