"""Reuse the variables that a network creates with ``tf.Variable``, as Keras layers do, whenever it is applied again.

``get_variable`` finds a variable again by its name. ``tf.Variable`` always makes a new one, so a network of Keras
layers would train different weights from those that it acts with. Here the n-th variable that an application creates is
replaced by the n-th variable of the first application.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ddpg.errors import UsageError


class CreatedVariables:
    """The variables that a network, its ``owner`` in messages, creates with ``tf.Variable``, in order."""

    def __init__(self, owner: str):
        self._owner = owner
        self._variables: list[tf.Variable] = []
        self._by_name = 0  # depth of get_variable calls, whose variables are found by name

    def found_by_name(self, custom_getter: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call a custom getter of ``get_variable``, without counting its variables, which are found by name."""
        self._by_name += 1
        try:
            return custom_getter(*arguments, **options)
        finally:
            self._by_name -= 1

    @contextlib.contextmanager
    def recorded(self, scope: str, note: Callable[[tf.Variable], Any]) -> Iterator[None]:
        """Record the variables that the first application creates in a scope, and call ``note`` with each."""

        def made(next_creator: Callable[..., Any], place: int, options: dict[str, Any]) -> tf.Variable:
            # Keras numbers its layers per process, but a checkpoint needs the same names in every process.
            kind = str(options.get("name") or "variable").rpartition("/")[2]
            with tf.compat.v1.name_scope(None):
                variable = next_creator(**{**options, "name": f"{scope}/created_{place}/{kind}"})
            self._variables.append(variable)
            note(variable)
            return variable

        with self._creating(made):
            yield

    @contextlib.contextmanager
    def again(self, replace: Callable[[tf.Variable], tf.Variable]) -> Iterator[None]:
        """Replace each created variable by ``replace(first)``, where ``first`` is its counterpart at the first time.

        Raises:
            UsageError: if fewer or more variables are created than by the first application.
        """
        count = 0

        def found(next_creator: Callable[..., Any], place: int, options: dict[str, Any]) -> tf.Variable:
            nonlocal count
            count = place + 1
            if place >= len(self._variables):
                raise self._refusal(f"made more than the {len(self._variables)} variables of the first time")
            return replace(self._variables[place])

        with self._creating(found):
            yield
        if count != len(self._variables):
            raise self._refusal(f"made {count} variables, and {len(self._variables)} the first time")

    @contextlib.contextmanager
    def _creating(self, create: Callable[[Callable[..., Any], int, dict[str, Any]], tf.Variable]) -> Iterator[None]:
        place = 0

        def creator(next_creator: Callable[..., Any], **options: Any) -> tf.Variable:
            nonlocal place
            if self._by_name:
                return next_creator(**options)
            place += 1
            return create(next_creator, place - 1, options)

        with tf.variable_creator_scope(creator):
            yield

    def _refusal(self, what: str) -> UsageError:
        return UsageError(
            f"applying the network of the {self._owner} again {what}: its target network and copies for acting need "
            "weights of their own. Make the layers inside the callable, in the same order at every call: def "
            "network(states): return tf.keras.layers.Dense(64, activation='relu')(states)"
        )
