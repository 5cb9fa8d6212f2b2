"""The worker, which steps one environment with a NumPy policy and its own exploration on request of the learner.

Requests and rollouts are plain values and arrays; TensorFlow is not imported.
"""

import copy
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, format_error
from ddpg.interaction.actions import Actions
from ddpg.interaction.env_calls import call, close_quietly
from ddpg.interaction.env_runner import make_env_runner
from ddpg.interaction.spaces import same_space, spaces_of
from ddpg.interaction.transitions import Episode, Transitions
from ddpg.policies.exploration import Exploration, single_threaded_blas
from ddpg.policies.numpy_program import NumpyProgram
from ddpg.replay.minibatch import stored_dtype
from ddpg.replay.normalizers import ObservationNormalizer

CLOSE_LIMIT = 5.0  # seconds in which the workers, at the end, finish a step and close their environments


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """Everything needed to build a worker in another process; it holds no TensorFlow.

    Attributes:
        make_env: makes the environment, in the worker.
        spaces: the observation and action space that the environment must have.
        program: the policy; its weights are sent separately.
        normaliser: the observation normaliser, if any; its statistics are sent with the weights.
        behaviours: the exploration of each worker.
        actions: converts the networks' actions to the environment's.
        seed: the seed of the run; a worker seeds its generators with it, its number and its epoch.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`ddpg.interaction.transitions.FaultCounter`.
        length: environment steps of a rollout.
    """

    make_env: Callable[[], gym.Env]
    spaces: tuple[gym.Space, gym.Space]
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
        worker: the worker's number.
        epoch: how many workers of this number have been replaced before.
        sequence: number of the request within the epoch, from 0.
        first_step: global number of the rollout's first environment step; exploration schedules depend on it.
    """

    worker: int
    epoch: int
    sequence: int
    first_step: int


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T consecutive transitions of one worker's environment, in answer to a request.

    | field | shape | units |
    |---|---|---|
    | request | | |
    | version | | version of the weights that chose the actions |
    | transitions | T | images: observations as bytes; ``env_indices`` are the worker's number |
    | clipped | [T] | bool: the action was outside the action box, and was clipped |
    | episodes | | finished episodes, each with the number of transitions up to its end: 1 to T |
    | dropped | | number of steps dropped as bad transitions (``on_bad_transition``) |
    | abandoned | | for each dropped step, the number of transitions before it, 0 to T; it cuts an episode short |
    | unfinished_steps | | steps so far of the episode that goes on after the last transition; 0: none |
    | seconds | | duration of the rollout in the worker |
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


class Worker:
    """Steps one environment on request; its episode continues from one rollout to the next.

    Args:
        spec: the description from which it is built.
        number: its number, from 0.
        epoch: how many workers of this number have been replaced before; each epoch has its own random numbers.

    Attributes:
        version: version of its current weights; -1: none yet.

    Raises:
        UsageError: if the environment is a vector, or has other spaces than ``spec``.
        EnvironmentFault: if the environment cannot be made, or fails.
    """

    def __init__(self, spec: WorkerSpec, number: int, epoch: int):
        self.version = -1
        self._spec = spec
        # Copies: arrays from Ray's object store are read-only.
        self._program, self._normaliser, self._behaviour = copy.deepcopy(
            (spec.program, spec.normaliser, spec.behaviours[number])
        )
        seeds = np.random.SeedSequence([*spec.seed, number, epoch]).spawn(2)
        self._behaviour.rng = np.random.default_rng(seeds[0])
        self._env = _made(spec)
        reset_seed = int(seeds[1].generate_state(1)[0] >> 1)
        self._runner = make_env_runner(self._env, reset_seed, spec.on_bad_transition)
        self._behaviour.start(1)
        self._unfinished_steps = 0

    def load(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Use these weights from now on; they come from :func:`ddpg.workers.remote_loop.current_weights`."""
        count = len(self._program.parameters())
        self._program.load(arrays[:count])
        if self._normaliser is not None:
            names = ("count", "mean", "squares")
            self._normaliser.restore(dict(zip(names, arrays[count:], strict=True)))
        self.version = version

    def close(self) -> None:
        """Close the environment, which may have started a simulator; its errors are ignored."""
        close_quietly(self._env)

    def rollout(self, request: RolloutRequest, ends: Callable[[], bool] = lambda: False) -> Rollout:
        """Step the environment ``spec.length`` times, or until ``ends()``, asked in each step, is true.

        Raises:
            EnvironmentFault: if the environment fails.
        """
        start = time.monotonic()
        runner, behaviour = self._runner, self._behaviour
        rows: list[Transitions] = []
        clipped: list[bool] = []
        episodes: list[tuple[int, Episode]] = []
        abandoned: list[int] = []
        dropped = 0
        for step in range(request.first_step, request.first_step + self._spec.length):
            if ends():
                break
            actions, was_clipped = behaviour.act(self._policy, runner.observations, step)
            result = runner.step(self._spec.actions.to_env(actions), actions)
            if result.dropped:
                dropped, self._unfinished_steps = dropped + 1, 0
                behaviour.end_episode(0)
                abandoned.append(len(rows))
                continue
            rows.append(result.transitions)
            clipped.extend(was_clipped)
            self._unfinished_steps += 1
            for episode in result.episodes:
                self._unfinished_steps = 0
                behaviour.end_episode(0)
                episodes.append((len(rows), episode))
        return Rollout(
            request,
            self.version,
            self._joined(rows, request.worker),
            clipped=np.array(clipped, bool),
            episodes=episodes,
            dropped=dropped,
            abandoned=abandoned,
            unfinished_steps=self._unfinished_steps,
            seconds=time.monotonic() - start,
        )

    def _joined(self, rows: Sequence[Transitions], worker: int) -> Transitions:
        """Return transitions as one value, with observations as they are stored."""
        space = self._env.observation_space
        shape, stored = space.shape or (), stored_dtype(space)

        def column(name: str, shape: tuple[int, ...], dtype) -> np.ndarray:
            parts = [np.zeros((0, *shape), dtype), *(getattr(row, name) for row in rows)]
            return np.concatenate(parts, dtype=dtype, casting="unsafe")

        return Transitions(
            observations=column("observations", shape, stored),
            actions=column("actions", (self._spec.actions.size,), np.float32),
            rewards=column("rewards", (), np.float32),
            next_observations=column("next_observations", shape, stored),
            terminated=column("terminated", (), bool),
            truncated=column("truncated", (), bool),
            env_indices=[worker] * len(rows),
        )

    def _policy(self, observations: np.ndarray) -> np.ndarray:
        with single_threaded_blas():  # even for one observation: a convolution is a large product
            return self._program(observations if self._normaliser is None else self._normaliser(observations))


class WorkerService:
    """A worker in a process or an actor of its own: failures of its environment are events, any exception is a bug.

    Args:
        spec, number, epoch: as for :class:`Worker`.
    """

    def __init__(self, spec: WorkerSpec, number: int, epoch: int):
        self._identity = number, epoch
        self._worker: Worker | EnvironmentFailed
        try:
            self._worker = Worker(spec, number, epoch)
        except (Exception, KeyboardInterrupt) as error:
            self._worker = EnvironmentFailed(number, epoch, format_error(error))

    def ready(self) -> WorkerReady | EnvironmentFailed:
        """Return :class:`WorkerReady`, or the reason why the environment could not be made."""
        return WorkerReady(*self._identity) if isinstance(self._worker, Worker) else self._worker

    def answer(self, request: RolloutRequest, newer: Callable[[int], Any], ends: Callable[[], bool]) -> Event:
        """Return a rollout with the newest weights, which ``newer`` returns unless they have the given version."""
        worker = self._worker
        if not isinstance(worker, Worker):
            return worker
        try:
            if (news := newer(worker.version)) is not None:
                worker.load(*news)
            return worker.rollout(request, ends)
        except (UsageError, KeyboardInterrupt) as error:  # SIGINT is ignored, so the environment itself raised it
            return EnvironmentFailed(*self._identity, format_error(error))

    def close(self) -> None:
        """Close the environment."""
        if isinstance(self._worker, Worker):
            self._worker.close()


def _made(spec: WorkerSpec) -> gym.Env:
    """Return the environment that ``make_env`` makes, after checking that it has the learner's spaces."""
    env = call(spec.make_env, fault=lambda error: EnvironmentFault(f"make_env failed: {format_error(error)}"))
    if isinstance(env, gym.vector.VectorEnv):
        raise UsageError(
            f"make_env made a vector of {env.num_envs} environments; expected one: take more workers instead"
        )
    for name, given, expected in zip(("observation", "action"), spaces_of(env), spec.spaces, strict=True):
        if not same_space(given, expected):
            raise UsageError(
                f"the environment's {name} space is {given}, the agent's is {expected}; give a make_env that makes "
                "environments like the agent's"
            )
    return env
