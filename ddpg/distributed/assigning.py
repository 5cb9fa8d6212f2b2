"""What an agent's workers are made of, and how each of them explores."""

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.acting.exploration import Exploration
from ddpg.acting.policy import program_of
from ddpg.acting.schedules import raised
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config import DDPGConfig
from ddpg.distributed.choosing import check_options
from ddpg.distributed.messages import Assignment
from ddpg.errors import UsageError
from ddpg.experience.faults import said
from ddpg.experience.normalisers import ObservationNormaliser

SPREAD = 2.0  # the first worker's noise is that many times the configured one, the last one's as many times smaller
ALPHA = 7.0  # of the share of random actions: ε^(1 + α·i/(N − 1)) (Horgan et al. 2018, Ape-X, section 4.1)


def assignment_of(
    agent: OffPolicyAgent, make_env: Callable[[], gym.Env], workers: int, length: int, first_step: int
) -> Assignment:
    """Return what the workers of an agent are made of.

    Args:
        agent: who learns.
        make_env: makes an environment like the agent's; it is pickled.
        workers: N.
        length: environment steps of a rollout.
        first_step: where collecting begins; workers of a run that goes on draw other numbers than its first ones.

    Raises:
        UsageError: options that workers cannot keep, layers that NumPy has no counterpart for, or a ``make_env`` that
            cannot be sent.
    """
    check_options(agent.config, getattr(agent.env, "num_envs", 1))
    program = program_of(agent.policy)
    if program is None:
        raise UsageError(
            "workers act in NumPy, and this policy has an op that NumPy has no counterpart for; take other layers, or "
            "collector='local'"
        )
    try:
        pickle.dumps(make_env)
    except Exception as error:
        raise UsageError(
            f"make_env={make_env!r} cannot be sent to a worker ({said(error)}); give a function of a module, or "
            "functools.partial of one"
        ) from None
    shape = agent.observation_space.shape
    return Assignment(
        make_env=make_env,
        program=program,
        normaliser=None if agent.memory.observations is None else ObservationNormaliser(shape),
        behaviours=[behaviour_of(agent, worker, workers) for worker in range(workers)],
        actions=agent.actions,
        seed=(agent.seed, first_step),
        on_bad_transition=agent.config.on_bad_transition,
        length=length,
    )


def weights_of(agent: OffPolicyAgent) -> list[np.ndarray]:
    """Return what workers act with as it is now: the program's variables, and the statistics of observations if any."""
    program = program_of(agent.policy)
    assert program is not None
    statistics = {} if agent.memory.observations is None else agent.memory.observations.state()
    return [*program.parameters(), *statistics.values()]


def behaviour_of(agent: OffPolicyAgent, worker: int, workers: int) -> Exploration:
    """Return how a worker explores: from the most, worker 0, to the least, geometrically; one alone as the agent does.

    Noise on actions is between :data:`SPREAD` times the configured one and its :data:`SPREAD`-th part; a share ε of
    random actions is between ε and ε^(1 + :data:`ALPHA`).
    """
    share = worker / (workers - 1) if workers > 1 else None
    config: Any = agent.config
    if share is not None and isinstance(config, DDPGConfig):
        factor = SPREAD ** (1 - 2 * share)
        config = config.replace(noise_scale=factor * config.noise_scale, noise_final=factor * config.noise_final)
    behaviour = agent.make_behaviour(np.random.default_rng(0), config)
    behaviour.epsilon = partial(raised, behaviour.epsilon, 1 + ALPHA * (share or 0.0))
    return behaviour
