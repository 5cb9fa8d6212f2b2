"""The messages between learner and workers: plain values and arrays, so that a worker needs no TensorFlow."""

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
    """Everything needed to build a worker in another process; it holds no TensorFlow.

    Attributes:
        make_env: makes the environment, in the worker.
        program: the policy; its weights are sent separately.
        normaliser: of observations, if any; its statistics are sent with the weights.
        behaviours: the exploration of each worker.
        actions: converts stored actions to the environment's.
        seed: of the run; a worker seeds its generators with this, its number and its epoch.
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
    """A request for one rollout.

    Attributes:
        worker: its number.
        epoch: how many workers of this number were replaced before it.
        sequence: number of the request within the epoch, from 0.
        first_step: global number of the rollout's first environment step; exploration schedules depend on it.
    """

    worker: int
    epoch: int
    sequence: int
    first_step: int


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T consecutive transitions of one worker's environment, and the request that they answer.

    | field | shape | units |
    |---|---|---|
    | request | | |
    | version | | of the weights that acted |
    | transitions | T | images: observations as bytes; ``env_indices`` are the worker's number |
    | clipped | [T] | bool: the action was outside its box, and was clipped |
    | episodes | | those that ended, each with the number of transitions up to its end: 1 to T |
    | dropped | | number of steps dropped as bad transitions (``on_bad_transition``) |
    | abandoned | | after how many transitions, 0 to T, a dropped step cut an episode short |
    | unfinished_steps | | steps so far of the episode still running after the last transition; 0: none |
    | seconds | | how long the worker took |
    """

    request: RolloutRequest
    version: int
    transitions: Transitions
    clipped: np.ndarray
    episodes: Sequence[tuple[int, Episode]]
    dropped: int
    abandoned: Sequence[int]
    unfinished_steps: int
    seconds: float

    def __len__(self) -> int:
        """Return T."""
        return len(self.transitions)


class WorkerReady(NamedTuple):
    """A worker has made its environment and waits for requests."""

    worker: int
    epoch: int


class WorkerDied(NamedTuple):
    """A worker is gone, and its pending requests with it."""

    worker: int
    epoch: int
    why: str
    hung: bool = False


class EnvironmentFailed(NamedTuple):
    """A worker's environment failed (an :class:`~ddpg.errors.EnvironmentFault`); a new worker's would fail, too."""

    worker: int
    epoch: int
    message: str


Event = WorkerReady | Rollout | WorkerDied | EnvironmentFailed
