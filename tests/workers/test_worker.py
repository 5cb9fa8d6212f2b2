"""A worker's rollouts, compared with values worked out by hand."""

import dataclasses
import functools
import sys
from types import MappingProxyType

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from refusals import refuses

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.actions import make_actions
from ddpg.policies.exploration import BoxExploration
from ddpg.policies.noise import make_noise
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.replay.normalizers import ObservationNormalizer
from ddpg.workers.worker import RolloutRequest, Worker, WorkerSpec

WEIGHTS = [np.array([[0.0], [0.1]], np.float32)]  # a = step / 10


def worker_of(
    number=0,
    epoch=0,
    scale=0.0,
    random_steps=0,
    normaliser=None,
    on_bad_transition="raise",
    noise="gaussian",
    changes=MappingProxyType({}),
    **env,
):
    program = NumpyProgram([ProgramStep("MatMul", (0, 1), 2)], 3, {}, [1], [0], 2)
    program.load([np.zeros((2, 1), np.float32)])
    behaviours = [
        BoxExploration(
            np.random.default_rng(0),
            random_steps,
            functools.partial(constant, 0.0),
            size=1,
            make_noise=functools.partial(make_noise, noise, scale, 0.15, 1.0),
            scale=scale,
        )
        for _ in range(2)
    ]
    make_env = functools.partial(Counting, **env)
    actions = make_actions(Counting().action_space)
    spaces = make_env().observation_space, actions.space
    spec = WorkerSpec(make_env, spaces, program, normaliser, behaviours, actions, (5, 0), on_bad_transition, 4)
    return Worker(dataclasses.replace(spec, **changes), number, epoch)


def constant(value, step):
    return value


def test_a_rollout_holds_the_environments_transitions():
    worker = worker_of()
    worker.load(7, WEIGHTS)
    request = RolloutRequest(0, 0, 0, 0)
    rollout = worker.rollout(request)
    assert (rollout.request, rollout.version, len(rollout), rollout.dropped) == (request, 7, 4, 0)
    # Observations are [episode, step]; episodes are 3 steps long.
    assert rollout.transitions.observations.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    assert rollout.transitions.next_observations.tolist() == [[0, 1], [0, 2], [0, 3], [1, 1]]
    assert rollout.transitions.rewards.tolist() == [1, 2, 3, 1]
    assert rollout.transitions.terminated.tolist() == [False, False, True, False]
    assert not rollout.transitions.truncated.any()
    assert rollout.transitions.actions[:, 0].tolist() == pytest.approx([0, 0.1, 0.2, 0])
    [(at, episode)] = rollout.episodes
    assert (at, episode.episode_return, episode.length, rollout.unfinished_steps) == (3, 6, 3, 1)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"observation_space": gym.spaces.Box(-1, 1, (3,))}, "observation (3,) (2,) agent make_env"),
        ({"action_space": gym.spaces.Box(-2, 5, (1,))}, "action 5.0 4.0 agent make_env"),
    ],
)
def test_an_environment_with_other_spaces_is_refused(env, message):
    with refuses(UsageError, message):
        worker_of(changes={"make_env": functools.partial(Counting, **env)})


def test_an_unsuitable_make_env_is_refused():
    vector = functools.partial(gym.vector.SyncVectorEnv, [Counting] * 3)
    with refuses(UsageError, "vector 3"):
        worker_of(changes={"make_env": vector})
    with refuses(EnvironmentFault, "make_env sys.exit no licence"):
        worker_of(changes={"make_env": functools.partial(sys.exit, "no licence")})


def test_the_next_rollout_continues_the_episode():
    worker = worker_of(truncate=True)
    worker.load(0, WEIGHTS)
    worker.rollout(RolloutRequest(0, 0, 0, 0))
    rollout = worker.rollout(RolloutRequest(0, 0, 1, 4))
    assert rollout.transitions.observations.tolist() == [[1, 1], [1, 2], [2, 0], [2, 1]]
    assert rollout.transitions.truncated.tolist() == [False, True, False, False]
    [(at, episode)] = rollout.episodes
    assert (at, episode.episode_return, episode.length, rollout.unfinished_steps) == (2, 6, 3, 2)


def test_each_worker_and_epoch_explores_differently():
    actions = []
    for number, epoch in ((0, 0), (0, 0), (1, 0), (0, 1)):
        worker = worker_of(number, epoch, scale=0.5)
        worker.load(0, WEIGHTS)
        actions.append(worker.rollout(RolloutRequest(number, epoch, 0, 0)).transitions.actions[:, 0].tolist())
    assert actions[0] == actions[1]
    assert len({tuple(row) for row in actions}) == 3


@pytest.mark.parametrize("env", [{"length": 2}, {"length": 9, "nan_at": 3, "on_bad_transition": "drop"}])
def test_noise_restarts_with_each_episode(env):
    """x = (1 - 0.15) x + z: the draws z of an endless episode determine the noise with restarts."""

    def noise_of(**env):
        worker = worker_of(scale=0.1, noise="ornstein_uhlenbeck", **env)
        worker.load(0, [np.zeros((2, 1), np.float32)])
        return [
            x
            for number in range(2)
            for (x,) in worker.rollout(RolloutRequest(0, 0, number, 0)).transitions.actions.tolist()
        ]

    endless = noise_of(length=1000)
    draws = [x - 0.85 * before for before, x in zip([0, *endless], endless, strict=False)]
    # Episodes of two steps, or of three of which the last is dropped: the noise of the steps that are kept.
    period, kept = (2, 2) if env["length"] == 2 else (3, 2)
    expected, x = [], 0.0
    for step, draw in enumerate(draws):
        x = draw + (0.85 * x if step % period else 0)
        if step % period < kept:
            expected.append(x)
    assert noise_of(**env) == pytest.approx(expected, abs=1e-6)


def test_random_steps_count_over_all_workers():
    worker = worker_of(random_steps=10)
    worker.load(0, WEIGHTS)
    assert abs(worker.rollout(RolloutRequest(0, 0, 0, 8)).transitions.actions[:2, 0] - [0, 0.1]).min() > 1e-3
    assert worker.rollout(RolloutRequest(0, 0, 1, 10)).transitions.actions[:, 0].tolist() == pytest.approx(
        [0.1, 0.2, 0, 0.1]
    )


def test_clipped_actions_are_flagged():
    worker = worker_of()
    worker.load(0, [np.array([[0.0], [1.0]], np.float32)])  # a = step
    rollout = worker.rollout(RolloutRequest(0, 0, 0, 0))
    assert rollout.transitions.actions[:, 0].tolist() == [0, 1, 1, 0]
    assert rollout.clipped.tolist() == [False, False, True, False]


def test_observation_statistics_come_with_the_weights():
    worker = worker_of(normaliser=ObservationNormalizer((2,)))
    statistics = [np.asarray(4), np.array([0.0, 1.0]), np.array([4.0, 1.0])]  # the steps' mean is 1, deviation 0.5
    worker.load(0, [*WEIGHTS, *statistics])
    rollout = worker.rollout(RolloutRequest(0, 0, 0, 0))
    assert rollout.transitions.actions[:, 0].tolist() == pytest.approx([-0.2, 0, 0.2, -0.2])
    assert rollout.transitions.observations[0].tolist() == [0, 0]  # not normalised


def test_a_bad_transition_is_dropped_with_its_episode():
    worker = worker_of(on_bad_transition="drop", nan_at=2)
    worker.load(0, WEIGHTS)
    rollout = worker.rollout(RolloutRequest(0, 0, 0, 0))
    # The second step of each episode is a bad transition.
    assert rollout.transitions.observations.tolist() == [[0, 0], [1, 0]]
    assert (rollout.dropped, rollout.unfinished_steps, len(rollout.episodes)) == (2, 0, 0)
    assert rollout.abandoned == [1, 2]


def test_a_fault_names_the_environment():
    worker = worker_of(nan_at=2)
    worker.load(0, WEIGHTS)
    with refuses(EnvironmentFault, "Counting step 2"):
        worker.rollout(RolloutRequest(0, 0, 0, 0))
