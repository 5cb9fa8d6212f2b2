"""What the driver and its workers say to each other: plain values and arrays. NumPy and gymnasium only."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from ddpg.acting.exploration import Exploration
from ddpg.acting.program import NumpyProgram
from ddpg.experience.actions import Actions
from ddpg.experience.normalisers import ObservationNormaliser
from ddpg.experience.transitions import Episode


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What a worker is made of; it holds no TensorFlow.

    Attributes:
        make_env: makes the environment, in the worker.
        program: the policy; its weights come apart.
        normaliser: of observations, if any; its statistics come with the weights.
        behaviours: by worker, how it explores.
        actions: what stored actions mean to the environment.
        seed: of the run; a worker's own generators are of it, the worker's number and its epoch.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`ddpg.experience.faults.Tolerance`.
        length: environment steps of a rollout.
    """

    make_env: Callable[[], gym.Env]
    program: NumpyProgram
    normaliser: ObservationNormaliser | None
    behaviours: Sequence[Exploration]
    actions: Actions
    seed: Sequence[int]
    on_bad_transition: str
    length: int


class Request(NamedTuple):
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
    | observations, next_observations | [T, *observation shape] | env, float32; images: bytes |
    | actions | [T, A] | as stored: [-1, 1], or a number counted from 0 |
    | rewards | [T] | env, float32 |
    | terminated, truncated | [T] | bool |
    | clipped | [T] | bool: the action left its box, and was clipped |
    | episodes | | those that ended, each with the number of transitions up to its end: 1 to T |
    | dropped | | steps that were no transition (``on_bad_transition``) |
    | abandoned | | numbers of transitions, 0 to T, after which an episode was given up for one of those |
    | under_way | | steps of the episode that goes on behind the last transition; 0: none |
    | seconds | | that it took the worker |
    """

    request: Request
    version: int
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    clipped: np.ndarray
    episodes: Sequence[tuple[int, Episode]]
    dropped: int
    abandoned: Sequence[int]
    under_way: int
    seconds: float

    def __len__(self) -> int:
        """Return T."""
        return len(self.rewards)


class Ready(NamedTuple):
    """A worker has its environment and waits for requests."""

    worker: int
    epoch: int


class Died(NamedTuple):
    """A worker is gone, and what it was doing with it."""

    worker: int
    epoch: int
    why: str
    hung: bool = False


class Failed(NamedTuple):
    """A worker's environment failed (an :class:`~ddpg.errors.EnvironmentFault`): another one would, too."""

    worker: int
    epoch: int
    message: str


Event = Ready | Rollout | Died | Failed
