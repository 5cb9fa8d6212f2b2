"""The loop behind ``learn``: act, store, update.

Exact resume: an episode of a single environment is seeded by the agent's seed and the step at which it begins, and so
are the episodes of a vector that begin together. Earlier episodes influence it only through the agent.

Threads: each method of the agent takes the agent's lock. The loop does not hold it while an environment steps or a
callback runs, so these may wait for other threads that use the agent.

With ``overlap``, the updates owed when a step begins are made while the environments step, from the transitions stored
before that step. The result does not depend on whether the step or the updates end first.

:class:`OfflineLoop` first makes updates from the replay memory alone, then steps the environment.
"""

import concurrent.futures
import contextlib
import math
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ddpg.agents.base import Agent, derive_seed
from ddpg.agents.callbacks import CallbackList
from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import users_level
from ddpg.interaction.env_runner import EnvRunner, make_env_runner
from ddpg.interaction.transitions import StepResult
from ddpg.policies.schedules import COOLDOWN, RATE_SCHEDULES, SCHEDULES

Result = TypeVar("Result")

ROUNDING = 1e-9  # tolerance for owed updates: above the rounding error of sums, below any meaningful part of an update


class BackgroundThread:
    """A thread that runs one function at a time, within the ``with`` block of this object.

    It is a daemon, so that a function which never ends does not keep the process alive.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()

    def __enter__(self) -> "BackgroundThread":
        threading.Thread(target=self._serve, name="ddpg-background", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._tasks.put(None)

    def run_both(self, background: Callable[[], Result], foreground: Callable[[], Any]) -> Result:
        """Call ``background`` in the thread and ``foreground`` in this one; return the former's result.

        Raises:
            BaseException: if one of them raised: the exception of ``foreground``, once ``background`` has ended too,
                otherwise that of ``background``.
        """
        future: concurrent.futures.Future[Result] = concurrent.futures.Future()
        self._tasks.put((background, future))
        del background
        try:
            foreground()
        finally:
            concurrent.futures.wait([future])
        return future.result()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            function, future = task
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del task, function, future  # otherwise they stay alive until the next task


class LearnLoop:
    """Steps environments and makes ``updates_per_step`` updates for each transition.

    Attributes:
        owed_updates: updates that are due for the steps so far but not made yet.
        exact: whether resuming from a checkpoint gives the same numbers as an uninterrupted run.
        outside_episodes: whether the last step belongs to no episode (offline learning), so that a run interrupted
            after it resumes as exactly as at the end of an episode.
        metrics: names of the loop's own measurements, taken with every call of updates.
    """

    exact: bool = True
    outside_episodes: bool = False
    metrics: tuple[str, ...] = ()

    def __init__(self):
        self.owed_updates = 0.0
        self._runner: EnvRunner | None = None
        self._stop_requested = False
        self._callbacks: CallbackList | None = None
        self._step_thread: BackgroundThread | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The loop's own counters, by name."""
        return {}

    def rows_of(self, agent: Any, steps: int) -> int:
        """Return how many rows of the replay memory hold ``steps`` steps of each environment."""
        return steps * getattr(agent.env, "num_envs", 1)

    def measured(self) -> dict[str, float]:
        """Return the current values of :attr:`metrics`."""
        return {}

    def stored_steps(self, start: int, goal: int) -> int:
        """Return how many of the timesteps from ``start`` to ``goal`` store a transition."""
        return goal - start

    def stop(self) -> None:
        """End :meth:`run` after the current step."""
        self._stop_requested = True

    @property
    def stopping(self) -> bool:
        """Whether :meth:`run` ends after the current step."""
        return self._stop_requested

    def abandon_episode(self) -> None:
        """Reset the environment before the next step: its episodes are over, or other code has stepped it."""
        self._runner = None

    def report_evaluation(self, agent: Agent, evaluation: Any) -> None:
        """Call ``on_evaluation`` of the callbacks, if :meth:`run` is in progress."""
        if self._callbacks is not None:
            self._callbacks.on_evaluation(agent, evaluation)

    def run(self, agent: Agent, goal: int, callbacks: CallbackList) -> None:
        """Act and learn until ``agent.num_timesteps`` is ``goal``, or until :meth:`stop`."""
        self._stop_requested = False
        self._check_steps_per_call(agent, goal)
        callbacks.on_training_start(agent, goal)
        self._callbacks = callbacks
        overlap = agent.config.overlap
        thread: contextlib.AbstractContextManager = BackgroundThread() if overlap else contextlib.nullcontext()
        try:
            with thread as self._step_thread:
                while agent.num_timesteps < goal and not self._stop_requested:
                    self._step(agent, goal, callbacks)
        finally:
            self._step_thread = None
            if _scheduled(agent.config):
                agent.scale_learning_rates(1.0)
            try:
                callbacks.on_training_end(agent)
            finally:
                self._callbacks = None

    def _steps_per_call(self, config: AgentConfig) -> float:
        """Return the steps for which a call of updates is made."""
        return config.updates_per_call / config.updates_per_step

    def _check_steps_per_call(self, agent: Agent, goal: int) -> None:
        """Warn of an ``updates_per_call`` above the default for which a call is as long as a whole cooldown."""
        config = agent.config
        steps, usual = self._steps_per_call(config), type(config).updates_per_call
        if _scheduled(config) and config.updates_per_call > usual and steps > COOLDOWN * goal:
            warnings.warn(
                f"updates_per_call={config.updates_per_call}: the learning rates change only every {steps:g} of "
                f"{goal} steps, and the last call has those of the run's end, 0 with 'linear' and 'cooldown'; lower it",
                stacklevel=users_level(),
            )

    def _start(self, agent: Agent) -> EnvRunner:
        # The step is part of the seed, so that a resumed agent does not see its first episodes again.
        seed = derive_seed(np.random.SeedSequence([agent.seed, agent.num_timesteps]))
        config = agent.config
        runner = make_env_runner(agent.env, seed, config.on_bad_transition, config.step_timeout)
        agent.begin_episodes()
        agent.behaviour.start(runner.count)
        return runner

    def _step(self, agent: Agent, goal: int, callbacks: CallbackList) -> None:
        # The runner is None at first, after the end of an episode, and if a callback has abandoned the episode.
        runner = self._runner = self._runner or self._start(agent)
        learning = self._should_learn(agent)
        try:
            step = self._act_and_store(agent, runner, goal, callbacks)
        except BaseException:  # also KeyboardInterrupt: the step was not stored, so its episode cannot continue
            self.abandon_episode()
            raise
        for index in step.dropped:
            agent.num_dropped_transitions += 1
            agent.behaviour.end_episode(index)
            agent.memory.end_episodes(index)
        if step.episodes and runner.single:
            self.abandon_episode()
        if learning:  # before the callbacks: one of them may save the agent
            self._owe_updates(agent, len(step.transitions))
        for episode in step.episodes:
            agent.behaviour.end_episode(episode.index)
            callbacks.on_episode_end(agent, episode)
        if learning:
            self._make_due_updates(agent, goal, callbacks)
        callbacks.on_step(agent)

    def _act_and_store(self, agent: Agent, runner: EnvRunner, goal: int, callbacks: CallbackList) -> StepResult:
        """Choose actions, step, and store the transitions; with ``overlap`` make owed updates during the step."""
        actions, clipped = agent.act(runner.observations)
        env_actions = agent.to_env(actions)
        if self._step_thread is not None and self.owed_updates >= 1:
            step = self._step_thread.run_both(
                lambda: runner.step(env_actions, actions), lambda: self._make_updates(agent, goal, callbacks)
            )
        else:
            step = runner.step(env_actions, actions)
        # An environment that was only reset ignored its action: such an action is neither stored nor counted.
        stepped = step.transitions.env_indices
        clipped = clipped if len(stepped) == len(clipped) else clipped[list(stepped)]
        agent.store(step.transitions, int(np.count_nonzero(clipped)))
        return step

    def _should_learn(self, agent: Agent) -> bool:
        """Whether updates are due for the next step."""
        starts = agent.config.learning_starts
        return agent.num_timesteps >= starts and self._is_filled(agent)

    def _is_filled(self, agent: Agent) -> bool:
        # A checkpoint without its replay buffer: fill the buffer first, with the loaded policy.
        return len(agent.replay) >= min(agent.config.learning_starts, agent.replay.capacity)

    def _owe_updates(self, agent: Agent, steps: int) -> None:
        """Add the updates due for ``steps``.

        A sum that differs from a whole number only by rounding error becomes that number: ten times 0.1 is one update.
        """
        per_step = agent.config.updates_per_step
        owed = self.owed_updates + steps * per_step
        whole = round(owed)
        self.owed_updates = float(whole) if abs(owed - whole) < min(ROUNDING, per_step / 4) else owed

    def _make_due_updates(self, agent: Agent, goal: int, callbacks: CallbackList) -> None:
        """Make the owed updates if they are enough for one call; with ``overlap`` they wait for the next step."""
        if self._step_thread is None and self.owed_updates >= agent.config.updates_per_call:
            self._make_updates(agent, goal, callbacks)

    def _make_updates(self, agent: Agent, goal: int, callbacks: CallbackList) -> None:
        """Make the owed updates."""
        config = agent.config
        count = int(self.owed_updates)
        self.owed_updates -= count
        if _scheduled(config):
            agent.schedule_learning_rates(max(0.0, 1 - agent.num_timesteps / goal))
        if agent.compile_seconds is None:
            callbacks.on_compile(agent)
        metrics = agent.update(count) | self.measured()
        callbacks.on_update(agent, metrics)


def _scheduled(config: AgentConfig) -> bool:
    constant = (None, "constant", SCHEDULES["constant"])
    return any(getattr(config, name, None) not in constant for name in RATE_SCHEDULES)


class OfflineLoop(LearnLoop):
    """Learns offline for the agent's first ``offline_timesteps`` timesteps, and then online like :class:`LearnLoop`.

    Offline, a timestep is one update, whatever ``updates_per_step`` is, and no environment is stepped. So schedules,
    evaluations, checkpoints and the goal are all in timesteps, before the switch and after it. A call of updates ends
    at a multiple of ``updates_per_call``, so a resumed run makes the same calls as an uninterrupted one.

    The data set in memory takes the place of the ``learning_starts`` random steps: from the switch on, the policy acts
    and updates are made, whichever timestep it is.

    Args:
        loop: the agent's loop so far; this one takes over the updates that it still owes.
        offline_timesteps: how many of the agent's timesteps are offline; ``None``: all.
    """

    def __init__(self, loop: LearnLoop, offline_timesteps: int | None = None):
        super().__init__()
        self.owed_updates = loop.owed_updates
        self._online_from = math.inf if offline_timesteps is None else offline_timesteps

    def stored_steps(self, start: int, goal: int) -> int:
        """Return how many of the timesteps from ``start`` to ``goal`` step the environment."""
        return goal - int(min(goal, max(start, self._online_from)))

    def run(self, agent: Agent, goal: int, callbacks: CallbackList) -> None:
        """Learn until ``agent.num_timesteps`` is ``goal``, or until :meth:`stop`."""
        agent.behaviour.random_steps = 0
        super().run(agent, goal, callbacks)

    def _should_learn(self, agent: Agent) -> bool:
        return self._is_filled(agent) or agent.replay.num_recorded > 0

    def _steps_per_call(self, config: AgentConfig) -> float:
        return config.updates_per_call

    def _step(self, agent: Any, goal: int, callbacks: CallbackList) -> None:
        now, per_call = agent.num_timesteps, agent.config.updates_per_call
        self.outside_episodes = now < self._online_from
        if not self.outside_episodes:
            super()._step(agent, goal, callbacks)
            return
        count = int(min(per_call - now % per_call, goal - now, self._online_from - now))
        agent.num_timesteps += count
        self.owed_updates += count
        self._make_updates(agent, goal, callbacks)
        callbacks.on_step(agent)
