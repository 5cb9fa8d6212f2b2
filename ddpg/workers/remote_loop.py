"""Learn from workers' rollouts: the learn loop with acting done elsewhere, and the specification of its workers."""

import contextlib
import math
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ddpg.agents.callbacks import Callback
from ddpg.agents.learn_loop import LearnLoop
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.env_errors import format_error
from ddpg.interaction.validation import validate_int
from ddpg.policies.exploration import Exploration
from ddpg.policies.network_policy import program_of
from ddpg.policies.schedules import raised
from ddpg.replay.normalizers import ObservationNormalizer
from ddpg.workers.messages import Rollout, WorkerSpec
from ddpg.workers.pool import LEAST, RolloutTimeout, Transport, WorkerPool
from ddpg.workers.worker_options import check_collector, check_options

SPREAD = 2.0  # the first worker's noise is that many times the configured one, the last one's as many times smaller
ALPHA = 7.0  # of the share of random actions: ε^(1 + α·i/(N − 1)) (Horgan et al. 2018, Ape-X, section 4.1)


def worker_spec_of(
    agent: OffPolicyAgent, make_env: Callable[[], gym.Env], workers: int, length: int, first_step: int
) -> WorkerSpec:
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
            f"make_env={make_env!r} cannot be sent to a worker ({format_error(error)}); give a function of a module, "
            "or "
            "functools.partial of one"
        ) from None
    shape = agent.observation_space.shape
    return WorkerSpec(
        make_env=make_env,
        program=program,
        normaliser=None if agent.memory.observations is None else ObservationNormalizer(shape),
        behaviours=[worker_exploration(agent, worker, workers) for worker in range(workers)],
        actions=agent.actions,
        seed=(agent.seed, first_step),
        on_bad_transition=agent.config.on_bad_transition,
        length=length,
    )


def current_weights(agent: OffPolicyAgent) -> list[np.ndarray]:
    """Return what workers act with as it is now: the program's variables, and the statistics of observations if any."""
    program = program_of(agent.policy)
    assert program is not None
    statistics = {} if agent.memory.observations is None else agent.memory.observations.state()
    return [*program.parameters(), *statistics.values()]


def worker_exploration(agent: OffPolicyAgent, worker: int, workers: int) -> Exploration:
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


LENGTH = 100  # environment steps of a rollout
LONGEST_SILENCE = 3600.0  # seconds without any rollout, after which the workers are given up


class _PendingRows(NamedTuple):
    """What of a rollout is yet to be learned from: its rows from ``start`` on."""

    rollout: Rollout
    start: int


class RemoteLoop(LearnLoop):
    """Stores what workers did, and makes the updates that it earns: as many a step as without workers.

    A rollout is learned from in pieces, each of which ends where its episode ends or is abandoned, where learning
    starts, where the goal is, and where the updates that it earns fill a call: so callbacks, tables and checkpoints see
    what they see without workers. What is left of a rollout at the goal is learned from by the next ``learn``, if there
    is one.

    Args:
        agent: who learns; its loop so far is replaced by this one, which goes on with the updates that it owes.
        pool: of the workers.

    Attributes:
        pool: as given.
        learned_steps: transitions that were learned from, of those that the pool has taken.
        broadcasts: how often weights were published.
        broadcast_seconds: how long that took the learner.
    """

    exact = False
    metrics = ("policy_lag",)

    def __init__(self, agent: OffPolicyAgent, pool: WorkerPool):
        super().__init__()
        self.pool = pool
        self.owed_updates = agent.loop.owed_updates
        agent.begin_episodes()  # the lanes of replay memory are the workers', from now on
        self.learned_steps = self.broadcasts = 0
        self.broadcast_seconds = 0.0
        self._agent = agent
        self._rest: _PendingRows | None = None
        self._published: dict[int, int] = {}  # by version, the updates that were made then
        self._epochs: dict[int, int] = {}
        self._lag, self._last_rollout = 0.0, 0.0

    @property
    def counts(self) -> dict[str, int]:
        """What was lost, of :class:`ddpg.workers.pool.RolloutCounts`."""
        counts = self.pool.counts
        return {
            "worker_deaths": counts.deaths,
            "worker_hangs": counts.hangs,
            "lost_rollouts": counts.lost,
            "lost_episodes": counts.lost_episodes,
            "refused_rollouts": counts.refused,
        }

    def measured(self) -> dict[str, float]:
        """Return ``policy_lag``: updates that were made since those weights which acted in the last transitions.

        Of weights more than 100 versions behind, what is known: since the oldest that is remembered.
        """
        return {"policy_lag": self._lag}

    def abandon_episode(self) -> None:
        """Do nothing: the episodes under way are in the workers' environments, which nobody else uses."""

    def run(self, agent: Any, goal: int, callbacks: Callback) -> None:
        """Learn from rollouts until the agent has taken ``goal`` steps in its life, or :meth:`stop`."""
        self._last_rollout = time.monotonic()
        super().run(agent, goal, callbacks)

    def _step(self, agent: Any, goal: int, callbacks: Callback) -> None:
        rest = self._rest or self._collected()
        if rest is not None:
            self._digest(agent, rest, goal, callbacks)
        if callbacks.on_step(agent) is False:
            self.stop()

    def _collected(self) -> _PendingRows | None:
        """Publish the weights if they are new, and return the next rollout, or nothing after a second."""
        updates = self._agent.num_updates
        if updates not in self._published.values():
            start = time.perf_counter()
            self._published[self.pool.publish(current_weights(self._agent))] = updates
            self.broadcast_seconds += time.perf_counter() - start
            self.broadcasts += 1
        rollout = self.pool.collect(1.0)
        if rollout is None:
            if time.monotonic() - self._last_rollout > LONGEST_SILENCE:
                raise EnvironmentFault(
                    f"no worker has answered for {LONGEST_SILENCE:.0f} s; {self.pool.ready} of them are there: see "
                    "whether the environment hangs, and whether the cluster has room for workers"
                )
            return None
        self._last_rollout = time.monotonic()
        worker, epoch, *_ = rollout.request
        broke_off = self._epochs.get(worker, epoch) != epoch
        if broke_off or 0 in rollout.abandoned:  # what it did before is not gone on with
            self._agent.memory.end_episodes(worker)
        self._epochs[worker] = epoch
        self._agent.num_dropped_transitions += rollout.dropped
        for version in [version for version in self._published if version < rollout.version - 100]:
            del self._published[version]
        return _PendingRows(rollout, 0) if len(rollout) else None

    def _digest(self, agent: Any, rest: _PendingRows, goal: int, callbacks: Callback) -> None:
        """Store a piece of a rollout, and make the updates that it earns."""
        rollout, start = rest
        config, now = agent.config, agent.num_timesteps
        unfilled = max(1, math.ceil((config.updates_per_call - self.owed_updates) / config.updates_per_step))
        limits = [len(rollout) - start, goal - now, unfilled]
        ends = [*(at for at, _ in rollout.episodes), *rollout.abandoned]
        limits += [at - start for at in ends if at > start]
        limits += [config.learning_starts - now] * (now < config.learning_starts)
        learning = self._learns_from_here(agent)
        end = start + min(limits)
        rows = slice(start, end)
        agent.store(rollout.transitions[rows], int(rollout.clipped[rows].sum()))
        if end in rollout.abandoned:
            agent.memory.end_episodes(rollout.request.worker)
        self.learned_steps += end - start
        self._rest = _PendingRows(rollout, end) if end < len(rollout) else None
        for at, episode in rollout.episodes:
            if at == end:
                callbacks.on_episode_end(agent, episode._replace(index=rollout.request.worker))
        since = self._published.get(rollout.version, min(self._published.values()))  # older ones are forgotten
        self._lag = float(agent.num_updates - since)
        if learning:
            self._earn(agent, end - start, goal, callbacks)


@contextlib.contextmanager
def learning_from_workers(
    agent: OffPolicyAgent,
    make_env: Callable[[], gym.Env],
    collector: str = "process",
    workers: int = 2,
    *,
    length: int = LENGTH,
    rollout_timeout: float = LEAST,
    ray_address: str | None = None,
) -> Iterator[RemoteLoop]:
    """Let ``agent.learn`` learn from workers within the block; end them behind it.

    Args:
        agent: who learns.
        make_env: makes an environment like the agent's, in a worker: a function of a module, or a partial of one.
        collector: ``"process"``: workers are processes of this machine, which import the main module (so a script of
            one's own says ``if __name__ == "__main__":``); ``"ray"``: actors of a Ray cluster.
        workers: how many; under Ray the most: as many of them are there as the cluster has CPUs for.
        length: environment steps of a rollout, at least 100 for the cost of a message not to be felt.
        rollout_timeout: seconds; a worker hangs, and is replaced, that takes longer for a rollout than this and than
            :data:`ddpg.workers.pool.FACTOR` times the longest one so far.
        ray_address: of a Ray cluster that is there; none: one that was initialised in this process, or one of this
            machine, which ends with the block.

    Yields:
        The agent's loop, with what is counted.

    Raises:
        UsageError: an unknown collector, options that workers cannot keep, no Ray.
    """
    check_collector(collector, workers, ray_address)
    validate_int(length, "length", at_least=1)
    if collector == "local":
        raise UsageError("collector='local' has no workers; call learn() as it is")
    first_step = agent.num_timesteps
    patience = RolloutTimeout(rollout_timeout)
    assignment = worker_spec_of(agent, make_env, workers, length, first_step)
    before = agent.loop
    transport = _make_transport(collector, assignment, ray_address)
    loop = RemoteLoop(agent, WorkerPool(transport, workers, length, first_step, patience=patience))
    agent.loop = loop
    try:
        yield loop
    finally:
        agent.loop = before
        before.owed_updates = loop.owed_updates
        # The lanes of replay memory are the agent's environments' again, which go on with nothing of before.
        agent.begin_episodes()
        before.abandon_episode()
        loop.pool.close()


def _make_transport(collector: str, assignment: WorkerSpec, ray_address: str | None) -> Transport:
    if collector == "process":
        from ddpg.workers.processes import ProcessTransport

        return ProcessTransport(assignment)
    from ddpg.workers.ray_workers import RayTransport

    return RayTransport(assignment, ray_address)
