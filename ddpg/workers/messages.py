"""Messages between the learner and its workers: plain values and arrays. NumPy and gymnasium only."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from ddpg.interaction.actions import Actions
from ddpg.interaction.transitions import Episode, Transitions
from ddpg.policies.exploration import Exploration
from ddpg.policies.numpy_program import NumpyProgram
from ddpg.replay.normalizers import ObservationNormalizer


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """What a worker is made of; it holds no TensorFlow.

    Attributes:
        make_env: makes the environment, in the worker.
        program: the policy; its weights come apart.
        normaliser: of observations, if any; its statistics come with the weights.
        behaviours: by worker, how it explores.
        actions: what stored actions mean to the environment.
        seed: of the run; a worker's own generators are of it, the worker's number and its epoch.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`ddpg.interaction.env_errors.FaultCounter`.
        length: environment steps of a rollout.
    """

    make_env: Callable[[], gym.Env]
    program: NumpyProgram
    normaliser: ObservationNormalizer | None
    behaviours: Sequence[Exploration]
    actions: Actions
    seed: Sequence[int]
    on_bad_transition: str
    length: int


class RolloutRequest(NamedTuple):
    """A rollout that is asked for: the ``sequence``-th, from 0, of a worker's ``epoch``.

    ``first_step`` is the number of its first environment step among all that were asked for: what schedules of
    exploration go by.
    """

    worker: int
    epoch: int
    sequence: int
    first_step: int


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T transitions in a row of one worker's environment, with the request that they answer.

    | field | shape | units |
    |---|---|---|
    | request | | |
    | version | | of the weights that acted |
    | transitions | T | images: observations as bytes; ``env_indices`` are the worker's number |
    | clipped | [T] | bool: the action left its box, and was clipped |
    | episodes | | those that ended, each with the number of transitions up to its end: 1 to T |
    | dropped | | steps that were no transition (``on_bad_transition``) |
    | abandoned | | numbers of transitions, 0 to T, after which an episode was given up for one of those |
    | under_way | | steps of the episode that goes on behind the last transition; 0: none |
    | seconds | | that it took the worker |
    """

    request: RolloutRequest
    version: int
    transitions: Transitions
    clipped: np.ndarray
    episodes: Sequence[tuple[int, Episode]]
    dropped: int
    abandoned: Sequence[int]
    under_way: int
    seconds: float

    def __len__(self) -> int:
        """Return T."""
        return len(self.transitions)


class WorkerReady(NamedTuple):
    """A worker has its environment and waits for requests."""

    worker: int
    epoch: int


class WorkerDied(NamedTuple):
    """A worker is gone, and what it was doing with it."""

    worker: int
    epoch: int
    why: str
    hung: bool = False


class EnvironmentFailed(NamedTuple):
    """A worker's environment failed (an :class:`~ddpg.errors.EnvironmentFault`): another one would, too."""

    worker: int
    epoch: int
    message: str


Event = WorkerReady | Rollout | WorkerDied | EnvironmentFailed
