"""Learn from the rollouts of workers: the learn loop for environments that are stepped in other processes."""

import contextlib
import math
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ddpg.agents.callbacks import CallbackList
from ddpg.agents.learn_loop import ROUNDING, LearnLoop
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import EnvironmentFault, UsageError, brief, format_error
from ddpg.interaction.validation import validate_int
from ddpg.policies.exploration import Exploration
from ddpg.policies.schedules import raised
from ddpg.replay.normalizers import ObservationNormalizer
from ddpg.workers.pool import MIN_TIMEOUT, RolloutTimeout, Transport, WorkerPool
from ddpg.workers.worker import Rollout, WorkerSpec
from ddpg.workers.worker_options import check_collector, check_main_is_a_file, check_not_importing, check_options

NOISE_SPREAD = 2.0  # worker 0 multiplies the configured noise by this factor, the last worker divides by it
ALPHA = 7.0  # α in worker i's share of random actions, ε^(1 + α·i/(N − 1)) (Horgan et al. 2018, Ape-X, section 4.1)


def worker_spec_of(
    agent: OffPolicyAgent, make_env: Callable[[], gym.Env], workers: int, length: int, first_step: int
) -> WorkerSpec:
    """Return the description from which the workers of an agent are built.

    Args:
        agent: the learner.
        make_env: makes an environment like the agent's; it is pickled.
        workers: N.
        length: environment steps of a rollout.
        first_step: the agent's step at which collecting begins; it is part of the seed, so that a resumed run draws new
            random numbers.

    Raises:
        UsageError: if an option is set that workers do not support, a layer has no NumPy counterpart, or ``make_env``
            cannot be pickled.
    """
    check_options(agent.config, getattr(agent.env, "num_envs", 1))
    policy = agent.exploring_policy.in_numpy()
    if policy is None:
        raise UsageError(
            "workers act in NumPy, and this policy has an op that NumPy has no counterpart for; take other layers, or "
            "collector='local'"
        )
    try:
        pickle.dumps(make_env)
    except Exception as error:
        raise UsageError(
            f"make_env={make_env!r} cannot be sent to a worker ({format_error(error)}); give a function of a module, "
            "or functools.partial of one"
        ) from None
    shape = agent.observation_space.shape
    return WorkerSpec(
        make_env=make_env,
        spaces=(agent.observation_space, agent.action_space),
        program=policy.program,
        normaliser=None if agent.memory.observations is None else ObservationNormalizer(shape),
        behaviours=[worker_exploration(agent, worker, workers) for worker in range(workers)],
        actions=agent.actions,
        seed=(agent.seed, first_step),
        on_bad_transition=agent.config.on_bad_transition,
        length=length,
    )


def current_weights(agent: OffPolicyAgent) -> list[np.ndarray]:
    """Return the arrays that workers need to act: the policy's weights, and the observation statistics, if any."""
    policy = agent.exploring_policy.in_numpy()
    assert policy is not None
    statistics = {} if agent.memory.observations is None else agent.memory.observations.state()
    return [*policy.program.parameters(), *statistics.values()]


def worker_exploration(agent: OffPolicyAgent, worker: int, workers: int) -> Exploration:
    """Return the exploration of a worker: worker 0 explores most, and each further worker geometrically less.

    A single worker explores as the agent does. Otherwise the action noise falls from :data:`NOISE_SPREAD` times the
    configured noise to the configured noise divided by it, and the share of random actions from ε to
    ε^(1 + :data:`ALPHA`).
    """
    share = worker / (workers - 1) if workers > 1 else None
    config: Any = agent.config
    if share is not None and isinstance(config, DDPGConfig):
        factor = NOISE_SPREAD ** (1 - 2 * share)
        config = config.replace(noise_scale=factor * config.noise_scale, noise_final=factor * config.noise_final)
    behaviour = agent.make_behaviour(np.random.default_rng(0), config)
    behaviour.epsilon = partial(raised, behaviour.epsilon, 1 + ALPHA * (share or 0.0))
    return behaviour


ROLLOUT_LENGTH = 100  # environment steps of a rollout
_WAIT = 1.0  # seconds to wait for a rollout, before callbacks may act
MAX_SILENCE = 3600.0  # seconds without any rollout, after which learning ends with an error


class _PendingRows(NamedTuple):
    """The rows of a rollout, from ``start`` on, that have not been stored yet."""

    rollout: Rollout
    start: int


class RemoteLoop(LearnLoop):
    """Stores the transitions of workers and makes the updates due for them, as many per step as without workers.

    A rollout is processed in parts. A part ends where an episode ends or is abandoned, where learning starts, at the
    goal, and where enough updates are due to fill a call. So callbacks, tables and checkpoints work as without workers.
    Rows left over at the goal are kept for the next ``learn``.

    Args:
        agent: the learner; this loop replaces its loop and takes over the updates still due.
        pool: the workers.

    Attributes:
        pool: as given.
        learned_steps: number of accepted transitions that have been stored.
        broadcasts: number of times that weights were published.
        broadcast_seconds: time that the learner has spent on publishing weights.
    """

    exact = False
    metrics = ("policy_lag",)

    def __init__(self, agent: OffPolicyAgent, pool: WorkerPool):
        super().__init__()
        self.pool = pool
        self.owed_updates = agent.loop.owed_updates
        agent.begin_episodes()  # from now on, environment indices in the replay buffer are worker numbers
        self.learned_steps = self.broadcasts = 0
        self.broadcast_seconds = 0.0
        self._agent = agent
        self._rest: _PendingRows | None = None
        self._published: dict[int, int] = {}  # by version, the number of updates at its publication
        self._epochs: dict[int, int] = {}
        self._lag, self._silence = 0.0, 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Counters of lost work, from :class:`ddpg.workers.pool.RolloutCounts`."""
        counts = self.pool.counts
        return {
            "worker_deaths": counts.deaths,
            "worker_hangs": counts.hangs,
            "lost_rollouts": counts.lost,
            "lost_episodes": counts.lost_episodes,
            "refused_rollouts": counts.refused,
        }

    def measured(self) -> dict[str, float]:
        """Return ``policy_lag``: updates made since the weights that chose the actions of the last transitions.

        For weights that are more than 100 versions old, it counts from the oldest version still recorded.
        """
        return {"policy_lag": self._lag}

    def rows_of(self, agent: Any, steps: int) -> int:
        """Return how many rows hold ``steps`` steps of each worker, whose rollouts are stored one after another."""
        return (steps + self.pool.length) * self.pool.workers

    def abandon_episode(self) -> None:
        """Do nothing: the workers' unfinished episodes go on, because only the workers step these environments."""

    def run(self, agent: Any, goal: int, callbacks: CallbackList) -> None:
        """Learn from rollouts until the agent has taken ``goal`` steps in total, or :meth:`stop`."""
        self._silence = 0.0
        super().run(agent, goal, callbacks)

    def _step(self, agent: Any, goal: int, callbacks: CallbackList) -> None:
        rest = self._rest or self._next_rollout()
        if rest is not None:
            self._learn_from(agent, rest, goal, callbacks)
        callbacks.on_step(agent)

    def _next_rollout(self) -> _PendingRows | None:
        """Publish the weights if they have changed; return the next rollout, or ``None`` after a second."""
        updates = self._agent.num_updates
        if updates not in self._published.values():
            start = time.perf_counter()
            self._published[self.pool.publish(current_weights(self._agent))] = updates
            self.broadcast_seconds += time.perf_counter() - start
            self.broadcasts += 1
        rollout = self.pool.collect(_WAIT)
        if rollout is None:
            self._silence += _WAIT  # not by the clock, which goes on while this process and its workers are stopped
            if self._silence > MAX_SILENCE:
                raise EnvironmentFault(
                    f"no worker has answered for {MAX_SILENCE:.0f} s; {self.pool.ready} of them are ready: check "
                    "whether the environment hangs, and whether the cluster has room for workers"
                )
            return None
        self._silence = 0.0
        worker, epoch, *_ = rollout.request
        restarted = self._epochs.get(worker, epoch) != epoch
        if restarted or 0 in rollout.abandoned:  # this rollout does not continue the worker's stored episode
            self._agent.memory.end_episodes(worker)
        self._epochs[worker] = epoch
        self._agent.num_dropped_transitions += rollout.dropped
        for version in [version for version in self._published if version < rollout.version - 100]:
            del self._published[version]
        return _PendingRows(rollout, 0) if len(rollout) else None

    def _learn_from(self, agent: Any, rest: _PendingRows, goal: int, callbacks: CallbackList) -> None:
        """Store the next part of a rollout, and make the updates due for it."""
        rollout, start = rest
        config, now = agent.config, agent.num_timesteps
        missing = config.updates_per_call - self.owed_updates
        unfilled = max(1, math.ceil((missing - ROUNDING) / config.updates_per_step))
        limits = [len(rollout) - start, goal - now, unfilled]
        ends = [*(at for at, _ in rollout.episodes), *rollout.abandoned]
        limits += [at - start for at in ends if at > start]
        limits += [config.learning_starts - now] * (now < config.learning_starts)
        learning = self._should_learn(agent)
        end = start + min(limits)
        rows = slice(start, end)
        agent.store(rollout.transitions[rows], int(rollout.clipped[rows].sum()))
        if end in rollout.abandoned:
            agent.memory.end_episodes(rollout.request.worker)
        self.learned_steps += end - start
        self._rest = _PendingRows(rollout, end) if end < len(rollout) else None
        if learning:  # before the callbacks, because one of them may save the agent with its owed updates
            self._owe_updates(agent, end - start)
        for at, episode in rollout.episodes:
            if at == end:
                callbacks.on_episode_end(agent, episode._replace(index=rollout.request.worker))
        since = self._published.get(rollout.version, min(self._published.values()))  # old versions have been dropped
        self._lag = float(agent.num_updates - since)
        if learning:
            self._make_due_updates(agent, goal, callbacks)


@contextlib.contextmanager
def learning_from_workers(
    agent: OffPolicyAgent,
    make_env: Callable[[], gym.Env],
    collector: str = "process",
    workers: int = 2,
    *,
    length: int = ROLLOUT_LENGTH,
    rollout_timeout: float = MIN_TIMEOUT,
    ray_address: str | None = None,
) -> Iterator[RemoteLoop]:
    """Let ``agent.learn`` learn from workers within the ``with`` block; the workers end with the block.

    Args:
        agent: the learner.
        make_env: makes an environment like the agent's, in a worker: a module-level function, or a partial of one.
        collector: ``"process"``: processes on this machine, which import the main module (so a script needs
            ``if __name__ == "__main__":``); ``"ray"``: actors on a Ray cluster.
        workers: number of workers; with Ray the maximum number, also limited by the cluster's CPUs.
        length: environment steps of a rollout; from about 100 on, the cost of messages is negligible.
        rollout_timeout: seconds; a worker is replaced if a rollout takes longer than this, and also longer than
            :data:`ddpg.workers.pool.TIMEOUT_FACTOR` times the longest rollout so far.
        ray_address: address of a running Ray cluster; ``None``: the cluster to which this process is connected, or a
            new one on this machine, which ends with the block.

    Yields:
        The agent's loop, with its counters.

    Raises:
        UsageError: if the collector is unknown or ``"local"``, ``make_env`` is no function, an option is set that
            workers do not support, Ray is not installed, or a worker process imports the script that calls this.
    """
    check_not_importing("learning_from_workers")
    if isinstance(collector, str) and collector == "local":
        raise UsageError("collector='local' has no workers; call learn() without this block")
    check_collector(collector, workers, ray_address)
    if collector == "process":
        check_main_is_a_file("collector='process'")
    if not callable(make_env):
        raise UsageError(
            f"make_env={brief(make_env)} must be a function that returns an environment, such as "
            "functools.partial(gymnasium.make, 'Pendulum-v1')"
        )
    workers, length = int(workers), validate_int(length, "length", at_least=1)
    first_step = agent.num_timesteps
    timeout = RolloutTimeout(rollout_timeout)
    spec = worker_spec_of(agent, make_env, workers, length, first_step)
    before = agent.loop
    transport = _make_transport(collector, spec, ray_address)
    loop = RemoteLoop(agent, WorkerPool(transport, workers, length, first_step, rollout_timeout=timeout))
    agent.loop = loop
    try:
        yield loop
    finally:
        agent.loop = before
        before.owed_updates = loop.owed_updates
        # From now on environment indices in the replay buffer are the agent's own again, so their new transitions must
        # not be linked to earlier ones.
        agent.begin_episodes()
        before.abandon_episode()
        loop.pool.close()


def _make_transport(collector: str, spec: WorkerSpec, ray_address: str | None) -> Transport:
    if collector == "process":
        from ddpg.workers.processes import ProcessTransport

        return ProcessTransport(spec)
    from ddpg.workers.ray_workers import RayTransport

    return RayTransport(spec, ray_address)
