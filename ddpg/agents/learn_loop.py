"""The loop behind ``learn``: act, store, update; and what is carried from one call to the next.

Every episode of a single environment is seeded by the agent's seed and the step at which it begins, and so are those
of a vector where they begin together. What was learned up to such a place is all that the next steps depend on.

Other threads may use the agent meanwhile: each of its methods holds the agent's lock for itself. Nothing holds it while
an environment steps or a callback runs, so these may wait for other threads.

With ``overlap`` all updates that are owed when a step begins are made while it is under way, and learn from what was
stored before it. What happens is the same in whatever order the two end.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from ddpg.agents.base import derive_seed
from ddpg.agents.callbacks import Callback
from ddpg.agents.replay_memory import ReplayMemory
from ddpg.config.algorithm_options import AgentConfig
from ddpg.interaction.env_runner import EnvRunner, make_env_runner
from ddpg.interaction.transitions import StepResult, Transitions
from ddpg.policies.exploration import Exploration
from ddpg.policies.schedules import RATE_SCHEDULES, SCHEDULES
from ddpg.replay.buffer import ReplayBuffer

Result = TypeVar("Result")


class BackgroundThread:
    """A thread of its own, to be had by :func:`beside`."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._answers: queue.SimpleQueue = queue.SimpleQueue()

    def both(self, there: Callable[[], Result], here: Callable[[], Any]) -> Result:
        """Call ``there`` in the thread and ``here`` in this one, and wait for both.

        Returns:
            What ``there`` returned.

        Raises:
            BaseException: what ``here`` raised, once ``there`` has ended too; otherwise what ``there`` raised.
        """
        self._asked.put(there)
        del there
        try:
            here()
        finally:
            result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def serve(self) -> None:
        """Call what is asked for until that is nothing: the thread's life."""
        while (there := self._asked.get()) is not None:
            result = error = None
            try:
                result = there()
            except BaseException as raised:
                error = raised
            del there  # or it would keep what it knows until the next one
            self._answers.put((result, error))
            del result, error

    def end(self) -> None:
        """Let the thread end once it has nothing to do."""
        self._asked.put(None)


@contextlib.contextmanager
def background_thread() -> Iterator[BackgroundThread]:
    """Yield a thread to do things in.

    It is a daemon: where one of its things never ends, the process can.
    """
    made = BackgroundThread()
    threading.Thread(target=made.serve, name="ddpg-beside", daemon=True).start()
    try:
        yield made
    finally:
        made.end()


class LearningAgent(Protocol):
    """What the loop needs of an agent; see :class:`ddpg.agents.off_policy.OffPolicyAgent`."""

    env: Any
    config: AgentConfig
    seed: int
    num_timesteps: int
    num_dropped_transitions: int
    policy: Any
    behaviour: Exploration
    memory: ReplayMemory
    replay: ReplayBuffer

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose stored actions, and tell which of them were clipped."""

    def to_env(self, actions: np.ndarray) -> Any:
        """Translate stored actions to what the environments take."""

    def store(self, transitions: Transitions, clipped: int = 0) -> None:
        """Store transitions; ``clipped`` of their actions were clipped to their box."""

    def begin_episodes(self) -> None:
        """Take note that every environment was reset."""

    @property
    def compile_seconds(self) -> float | None:
        """Seconds that the updates took to compile; ``None`` before they were."""

    def update(self, n: int) -> dict[str, float]:
        """Make gradient updates."""

    def scale_learning_rates(self, factor: float) -> None:
        """Set the optimisers' step sizes to ``factor`` times the configured ones."""

    def schedule_learning_rates(self, left: float) -> None:
        """Set the optimisers' step sizes to what their schedules say."""


class LearnLoop:
    """Steps environments and owes updates for the steps.

    Attributes:
        owed_updates: updates that the steps so far have earned and that are not made yet.
        exact: whether learning that goes on from a checkpoint does what it would have done without the break.
        metrics: names of what it measures of its own with every call of updates.
    """

    exact: bool = True
    metrics: tuple[str, ...] = ()

    def __init__(self):
        self.owed_updates = 0.0
        self._interaction: EnvRunner | None = None
        self._stop_requested = False
        self._callbacks: Callback | None = None
        self._beside: BackgroundThread | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What it counted of its own."""
        return {}

    def measured(self) -> dict[str, float]:
        """Return the numbers of :attr:`metrics` now."""
        return {}

    def stop(self) -> None:
        """End :meth:`run` after the current step."""
        self._stop_requested = True

    @property
    def stopping(self) -> bool:
        """Whether :meth:`run` ends after the current step."""
        return self._stop_requested

    def abandon_episode(self) -> None:
        """Begin new episodes with the next step: these are over, or somebody else has used the environment."""
        self._interaction = None

    def report_evaluation(self, agent: LearningAgent, evaluation: Any) -> None:
        """Tell the callbacks of :meth:`run`, if it is under way, of an evaluation."""
        if self._callbacks is not None and self._callbacks.on_evaluation(agent, evaluation) is False:
            self.stop()

    def run(self, agent: LearningAgent, goal: int, callbacks: Callback) -> None:
        """Act and learn until the agent has taken ``goal`` steps in its life, or :meth:`stop`."""
        self._stop_requested = False
        callbacks.on_training_start(agent, goal)
        self._callbacks = callbacks
        try:
            with self._thread(agent.config):
                while agent.num_timesteps < goal and not self._stop_requested:
                    self._step(agent, goal, callbacks)
        finally:
            if _scheduled(agent.config):
                agent.scale_learning_rates(1.0)
            callbacks.on_training_end(agent)
            self._callbacks = None

    @contextlib.contextmanager
    def _thread(self, config: AgentConfig) -> Iterator[None]:
        """Have a thread for environments' steps where ``overlap`` asks for one."""
        if not config.overlap:
            yield
            return
        try:
            with background_thread() as self._beside:
                yield
        finally:
            self._beside = None

    def _start(self, agent: LearningAgent) -> EnvRunner:
        # Of the step too: an agent that goes on does not see its first episodes over again.
        seed = derive_seed(np.random.SeedSequence([agent.seed, agent.num_timesteps]))
        config = agent.config
        interaction = make_env_runner(agent.env, seed, config.on_bad_transition, config.step_timeout)
        agent.begin_episodes()
        agent.behaviour.start(interaction.count)
        return interaction

    def _step(self, agent: LearningAgent, goal: int, callbacks: Callback) -> None:
        # None at first, after an episode's end, and where a callback has abandoned the episode.
        interaction = self._interaction = self._interaction or self._start(agent)
        learning = self._learns_from_here(agent)
        try:
            step = self._act_and_store(agent, interaction, goal, callbacks)
        except BaseException:  # an interrupt too: what was stepped is not stored, so nothing may follow it
            self.abandon_episode()
            raise
        for index in step.dropped:
            agent.num_dropped_transitions += 1
            agent.behaviour.end_episode(index)
            agent.memory.end_episodes(index)
        if step.episodes and interaction.single:
            self.abandon_episode()
        for episode in step.episodes:
            agent.behaviour.end_episode(episode.index)
            callbacks.on_episode_end(agent, episode)
        if learning:
            self._earn(agent, len(step.transitions), goal, callbacks)
        if callbacks.on_step(agent) is False:
            self.stop()

    def _act_and_store(
        self, agent: LearningAgent, interaction: EnvRunner, goal: int, callbacks: Callback
    ) -> StepResult:
        """Choose actions, step, and store the transitions; with ``overlap`` make owed updates during the step."""
        actions, clipped = agent.act(interaction.observations)
        env_actions = agent.to_env(actions)
        if self._beside is not None and self.owed_updates >= 1:
            step = self._beside.both(
                lambda: interaction.step(env_actions, actions), lambda: self._learn(agent, goal, callbacks)
            )
        else:
            step = interaction.step(env_actions, actions)
        # An environment that was only reset ignored its action: such an action is neither stored nor counted.
        agent.store(step.transitions, int(clipped[list(step.transitions.env_indices)].sum()))
        return step

    def _learns_from_here(self, agent: LearningAgent) -> bool:
        """Whether the next step earns updates."""
        starts = agent.config.learning_starts
        # A memory that was not saved is refilled first, by the policy that was.
        refilled = len(agent.replay) >= min(starts, agent.replay.capacity)
        return agent.num_timesteps >= starts and refilled

    def _earn(self, agent: LearningAgent, steps: int, goal: int, callbacks: Callback) -> None:
        """Owe updates for ``steps``, and make what is owed once it fills a call; or beside the next step."""
        self.owed_updates += steps * agent.config.updates_per_step
        if self._beside is None and self.owed_updates >= agent.config.updates_per_call:
            self._learn(agent, goal, callbacks)

    def _learn(self, agent: LearningAgent, goal: int, callbacks: Callback) -> None:
        """Make the updates that are owed."""
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
