"""Map the flat [-1, 1] actions that DDPG learns to those of an environment, and back.

NumPy and gymnasium only.

| action space | flat action ``[A]`` |
|---|---|
| ``Box`` | its numbers, each rescaled to [-1, 1] |
| ``Tuple(Discrete(n), Tuple(Box, ...))`` | n scores, then the numbers of the n boxes, in that order |
| ``OneOf(Box, ...)`` | the same; the environment gets the chosen box only |

The last two are parameterised actions (Masson, Ranchod & Konidaris 2016, arXiv 1509.01644), laid out as
Hausknecht & Stone 2016 (arXiv 1511.04143) do: the environment takes the action with the largest score.

:func:`finite_outputs` checks a policy's outputs, so that no NaN reaches an environment.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError, brief, located
from ddpg.interaction import spaces
from ddpg.interaction.validation import validate_numeric


class Actions(Protocol):
    """A translation between flat actions ``[N, A]`` in [-1, 1] and those of N environments."""

    @property
    def space(self) -> gym_spaces.Space:
        """The environment's action space."""

    scores: int  # how many of the A numbers are scores of discrete actions: the first ones
    size: int  # A
    start: int  # the number of the first discrete action; 0 if there are none

    def to_env(self, actions: np.ndarray) -> Any:
        """Translate ``[N, A]`` to the actions of a vector of N environments; outside [-1, 1] counts as at the bound."""

    def to_flat(self, action: Any) -> np.ndarray:
        """Translate one action of one environment to ``[1, A]``; raises UsageError if the space does not contain it."""


def make_actions(space: gym_spaces.Space) -> Actions:
    """Return the translation for an action space.

    Raises:
        UsageError: if DDPG cannot act in the space.
    """
    if isinstance(space, (gym_spaces.Tuple, gym_spaces.OneOf)):
        return ParameterisedActions(space)
    return BoxActions(spaces.check_action_space(space))


def unbatch(actions: Any) -> Any:
    """Return the first environment's action from the result of :meth:`Actions.to_env`."""
    return tuple(map(unbatch, actions)) if isinstance(actions, tuple) else actions[0]


class BoxActions:
    """Affine map between a Box in env units and ``[-1, 1]^A``, per dimension, asymmetric bounds too."""

    scores = 0
    start = 0

    def __init__(self, space: gym_spaces.Box):
        spaces.check_action_space(space)
        self.space = space
        self.size = spaces.flat_size(space)
        # As rows, [1, A]: NumPy broadcasts no array then, which takes longer than the arithmetic.
        self._low, self._high = (bound.reshape(1, -1).astype(np.float64) for bound in (space.low, space.high))
        self._middle = (self._high + self._low) / 2
        self._half_range = (self._high - self._low) / 2
        self._one_dimensional = len(space.shape) == 1
        # Magnitudes of the bounds in half-ranges: rounding errors of an action at a bound grow with them.
        self._largest = np.maximum(np.abs(self._low), np.abs(self._high)) / self._half_range

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The box's bounds, each ``[A]`` float64."""
        return self._low[0], self._high[0]

    @property
    def scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """The factor, and the offset added afterwards, that map [-1, 1] to env units, each ``[A]`` float64."""
        return self._half_range[0], self._middle[0]

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Map ``[..., A]`` from [-1, 1] to env units, ``[..., *space.shape]`` in the space's dtype."""
        scaled = self._half_range * actions.astype(np.float64) + self._middle
        # Rounding keeps the order of numbers, so the result is within the rounded bounds in any float type.
        scaled = np.minimum(np.maximum(scaled, self._low), self._high).astype(self.space.dtype)
        is_flat = self._one_dimensional and actions.ndim == 2
        return scaled if is_flat else scaled.reshape(*actions.shape[:-1], *self.space.shape)

    def to_flat(self, action: Any) -> np.ndarray:
        """Map one action from env units to [-1, 1], ``[1, A]`` float32; computed in float64.

        Raises:
            UsageError: if the action has another shape, holds NaN, or is outside the box.
        """
        numbers = validate_numeric(action, "action")
        shapes = (self.space.shape, (self.size,))
        if numbers.shape not in (*shapes, *((1, *shape) for shape in shapes)):
            raise UsageError(
                f"action has shape {numbers.shape}; expected one action, {self.space.shape}, with a first axis "
                "where there are several"
            )
        return self.rows_to_flat(numbers.reshape(1, *self.space.shape))

    def rows_to_flat(self, actions: np.ndarray) -> np.ndarray:
        """Map N actions, ``[N, *space.shape]``, from env units to [-1, 1], ``[N, A]`` float32; computed in float64.

        Raises:
            UsageError: if one of them holds NaN, or is outside the box; the message names the first.
        """
        numbers = validate_numeric(actions, "actions")
        with np.errstate(over="ignore"):  # an overflow is infinite, and so outside the box
            flat = (numbers.reshape(-1, self.size).astype(np.float64) - self._middle) / self._half_range
        # The caller may have rounded an action at a bound to a narrower float type.
        narrow = numbers.dtype.kind == "f" and numbers.dtype.itemsize < 8
        rounding = 2 * np.finfo(np.float32 if narrow else np.float64).eps * self._largest
        inside = (np.abs(flat) <= 1 + 1e-5 + rounding).all(axis=1)
        if not inside.all():
            raise UsageError(
                f"action {numbers[inside.argmin()].tolist()} is outside the action space {brief(self.space)}; "
                "use the action that was sent to the environment, clipped to its bounds"
            )
        return np.minimum(np.maximum(flat, -1), 1).astype(np.float32)


class ParameterisedActions:
    """n discrete actions with a box of parameters each, as ``[-1, 1]^A``: n scores, then all parameters.

    A parameter box may be empty, ``Box(shape=(0,))``: an action without parameters.

    Attributes:
        slices: for each discrete action, which of the A numbers are its parameters.
    """

    def __init__(self, space: gym_spaces.Tuple | gym_spaces.OneOf):
        self.space = space
        self._one_of = isinstance(space, gym_spaces.OneOf)
        self.start, parts = (0, space.spaces) if isinstance(space, gym_spaces.OneOf) else _parameter_boxes(space)
        self.scores = len(parts)
        boxes = [_check_parameters(space, index, part) for index, part in enumerate(parts)]
        self._boxes = [None if box.shape == (0,) else BoxActions(box) for box in boxes]
        self._dtypes = [box.dtype for box in boxes]
        ends = self.scores + np.cumsum([0 if box is None else box.size for box in self._boxes])
        self.slices = [slice(*ends) for ends in zip([self.scores, *ends[:-1].tolist()], ends.tolist(), strict=True)]
        self.size = int(ends[-1])

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds, each ``[A]`` float64: -1 and 1 for the scores, then those of all boxes."""
        boxes = [box.bounds for box in self._boxes if box is not None]
        scores = np.ones(self.scores)
        low, high = zip((-scores, scores), *boxes, strict=True)
        return np.concatenate(low), np.concatenate(high)

    def to_env(self, actions: np.ndarray) -> tuple | list:
        """Translate ``[N, A]``: the largest score chooses, every parameter is rescaled to its box.

        Scores count as clipped to [-1, 1], so that an action makes the same choice before and after it is stored.
        Among equal scores the first wins.

        Returns:
            For a Tuple ``(choices [N], (parameters [N, ...], ...))``; for a OneOf a list of N pairs
            ``(choice, parameters)``.
        """
        scores = np.minimum(np.maximum(actions[:, : self.scores], -1), 1)
        choices = scores.argmax(axis=1) + self.start
        if self._one_of:
            return [(choice, self._parameters(choice, row)) for choice, row in zip(choices, actions, strict=True)]
        return choices, tuple(self._parameters(index, actions) for index in range(self.scores))

    def to_flat(self, action: Any) -> np.ndarray:
        """Translate one action to ``[1, A]`` float32: score 1 for the chosen action, -1 for the others.

        The parameters that a OneOf leaves out become 0, the middle of their boxes.

        Raises:
            UsageError: if it is not an action of the space.
        """
        if not (isinstance(action, (tuple, list)) and len(action) == 2):
            raise UsageError(
                f"action {brief(action)} is not one of {brief(self.space)}; expected (choice, parameters); the arrays "
                "of a data set cannot hold them, so give agent.remember a list of such pairs"
            )
        choice = self._choice(action[0])
        flat = np.zeros((1, self.size), np.float32)
        flat[0, : self.scores] = -1
        flat[0, choice] = 1
        if not self._one_of and not isinstance(action[1], (tuple, list)):
            raise UsageError(f"parameters {brief(action[1])} are not a tuple; expected {self.scores} arrays of them")
        given = {choice: action[1]} if self._one_of else dict(enumerate(action[1]))
        if not self._one_of and len(given) != self.scores:
            raise UsageError(f"action {brief(action)} has {len(given)} parameter arrays; expected {self.scores}")
        for index, parameters in given.items():
            if (box := self._boxes[index]) is not None:
                flat[:, self.slices[index]] = box.to_flat(parameters)
        return flat

    def _choice(self, value: Any) -> int:
        choice = validate_numeric(value, "choice")
        if (
            choice.shape != ()
            or not np.issubdtype(choice.dtype, np.integer)
            or not 0 <= int(choice) - self.start < self.scores
        ):
            raise UsageError(
                f"choice {brief(value)} is not one of the {self.scores} discrete actions of {brief(self.space)}; "
                f"expected an integer from {self.start} to {self.start + self.scores - 1}"
            )
        return int(choice) - self.start

    def _parameters(self, index: int, actions: np.ndarray) -> np.ndarray:
        box = self._boxes[index]
        if box is None:
            return np.zeros((*actions.shape[:-1], 0), self._dtypes[index])
        return box.to_env(actions[..., self.slices[index]])


class DiscreteActions:
    """Discrete actions as ``[N, 1]``, counted from 0 whatever the space's ``start``."""

    scores = 0
    size = 1

    def __init__(self, space: gym_spaces.Discrete):
        self.space, self.start = space, int(space.start)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Map ``[N, 1]`` to ``[N]`` in the space's dtype and from its ``start``."""
        return actions[:, 0].astype(self.space.dtype) + self.space.start

    def to_flat(self, action: Any) -> np.ndarray:
        """Map one action of the environment to ``[1, 1]`` float32.

        Raises:
            UsageError: if it is not an action of the space.
        """
        whole = _is_integer(action)
        if not (whole and self._has(int(action))):
            # Of others, such as 0.5 or a one-hot row, this would make other actions than were taken.
            converts = not whole and _is_whole(action) and self._has(int(np.asarray(action).item()))
            advice = ", as of actions.reshape(-1).astype(int)" if converts else ""
            raise UsageError(
                f"action {brief(action)} is outside the action space {self.space}; expected one integer, {self.start} "
                f"to {self.start + int(self.space.n) - 1}{advice}"
            )
        return np.asarray([[int(action) - self.start]], np.float32)

    def _has(self, action: int) -> bool:
        return 0 <= action - self.start < int(self.space.n)


def _is_integer(action: Any) -> bool:
    """Return whether an action is an integer, of Python or NumPy and of any width."""
    if isinstance(action, np.ndarray):
        return action.shape == () and action.dtype.kind in "iu"
    return isinstance(action, (int, np.integer))


def _is_whole(action: Any) -> bool:
    """Return whether an action is a single whole number, of any type and shape."""
    try:
        return np.asarray(action, np.float64).item().is_integer()
    except (TypeError, ValueError, OverflowError):
        return False


def _parameter_boxes(space: gym_spaces.Tuple) -> tuple[int, Sequence[gym_spaces.Space]]:
    """Return the number of the first discrete action, and the space of each one's parameters."""
    match space.spaces:
        case [gym_spaces.Discrete() as choice, gym_spaces.Tuple() as parameters] if len(parameters) == choice.n:
            return int(choice.start), parameters.spaces
    raise UsageError(
        f"action space {brief(space)} is not parameterised as DDPG knows it; expected Tuple(Discrete(n), Tuple(Box, "
        "...)) with one Box of parameters for each of the n actions (shape (0,) for none), or OneOf(Box, ...): "
        "translate it in a gymnasium.ActionWrapper"
    )


def _check_parameters(space: gym_spaces.Space, index: int, box: gym_spaces.Space) -> gym_spaces.Box:
    if isinstance(box, gym_spaces.Box) and box.shape == (0,):
        return box
    with located(f"parameters of action {index} in {brief(space)}"):
        return spaces.check_action_space(box)


class FlattenParameterisedAction(gym.ActionWrapper):
    """Let an agent that acts in a ``Box`` act in an environment with parameterised actions.

    The action space becomes ``Box(-1, 1, (A,))``: a score for each discrete action, then all parameters,
    each rescaled to [-1, 1]; the environment gets the action with the largest score and its parameters
    (Hausknecht & Stone 2016, arXiv 1511.04143). :class:`ddpg.DDPG` does the same without a wrapper; this
    class is for other agents.

    Args:
        env: with a ``Tuple(Discrete(n), Tuple(Box, ...))`` or ``OneOf(Box, ...)`` action space.

    Attributes:
        num_clipped_actions: actions that left [-1, 1] and were clipped to it.

    Raises:
        UsageError: if the action space is of another kind.
    """

    def __init__(self, env: gym.Env):
        if not isinstance(env, gym.Env):
            raise UsageError(f"env={brief(env)} must be a gymnasium Env")
        super().__init__(env)
        if not isinstance(env.action_space, (gym_spaces.Tuple, gym_spaces.OneOf)):
            raise UsageError(
                f"action space {brief(env.action_space)} is not parameterised; expected Tuple(Discrete(n), Tuple(Box, "
                "...)) or OneOf(Box, ...): a Box needs no wrapper"
            )
        self._actions = ParameterisedActions(env.action_space)
        self.action_space = self._flat_space = gym_spaces.Box(-1.0, 1.0, (self._actions.size,), np.float32)
        self.num_clipped_actions = 0

    def action(self, action: np.ndarray):
        """Translate a flat action ``[A]`` to the environment's.

        Raises:
            UsageError: if the action has another shape, or holds NaN.
        """
        flat, single = spaces.as_batch(self._flat_space, action, "action")
        if not single:
            raise UsageError(f"action has shape {np.shape(action)}; expected {self.action_space.shape}")
        self.num_clipped_actions += int(np.abs(flat).max() > 1)
        return unbatch(self._actions.to_env(flat))

    def flatten(self, action) -> np.ndarray:
        """Translate an action of the environment to a flat one, ``[A]``.

        Raises:
            UsageError: if it is not an action of the environment.
        """
        return self._actions.to_flat(action)[0]


def finite_outputs(
    policy: Callable[[np.ndarray], np.ndarray],
    observations: np.ndarray,
    too_large: type[Exception] = UsageError,
    not_finite: type[Exception] = UsageError,
) -> np.ndarray:
    """Return ``policy(observations)``.

    Args:
        policy: from ``[B, *observation shape]`` to ``[B, n]``.
        observations: finite observations.
        too_large: the exception to raise if finite observations overflow in the layers.
        not_finite: the exception to raise if the output for zeros is not finite either.

    Raises:
        Exception: if an output is NaN or infinite; it names the observation and its largest number.
    """
    with np.errstate(all="ignore"):  # an overflow that reaches the outputs is reported below
        outputs = policy(observations)
        numbers = outputs.ravel()
        # The dot product is not finite if any number is not; much faster than isfinite of each.
        finite = np.dot(numbers, numbers) < np.inf or np.isfinite(outputs).all()
        if finite:
            return outputs
        row = int(np.argmin(np.isfinite(outputs).all(axis=1)))
        if not np.isfinite(policy(np.zeros_like(observations[:1]))).all():
            raise not_finite(
                f"the policy puts out {outputs[row].tolist()} for observation {row}, and nothing finite for zeros "
                "either: its weights are not finite, or too large; training has diverged: go back to an earlier "
                "checkpoint, and lower the learning rate or scale the rewards down"
            )
    observation = observations[row]
    place = np.unravel_index(np.abs(observation).argmax(), observation.shape)
    raise too_large(
        f"the policy puts out {outputs[row].tolist()} for observation {row}, whose largest number is "
        f"{observation[place]:.4g} at index {[int(index) for index in place]}: its layers overflow float32; give "
        "observations of the size it learned from, or scale them in the environment"
    )
