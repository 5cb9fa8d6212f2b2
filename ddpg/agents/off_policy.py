"""The base classes of DDPG and DQN: agents that store transitions, learn from them, and are saved and loaded."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from ddpg.agents import resource_limits, state
from ddpg.agents.base import Agent
from ddpg.agents.callbacks import Callback, CallbackList, ProgressBar, as_callbacks
from ddpg.agents.learn_loop import LearnLoop
from ddpg.agents.replay_memory import DEMONSTRATIONS
from ddpg.agents.tf_agent import exclusive
from ddpg.algorithms.registry import ALGORITHMS, algorithm_named, algorithm_of
from ddpg.checkpoints import checkpoint
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.imports import is_reference
from ddpg.config.name_hints import LEARN, refuse_unknown
from ddpg.errors import UsageError
from ddpg.interaction.env_runner import spaces_of
from ddpg.interaction.spaces import algorithm_for
from ddpg.interaction.transitions import Transitions, check_transition, check_transitions
from ddpg.interaction.validation import validate_bool, validate_float, validate_int, validate_path
from ddpg.policies.schedules import factor_of, interpolate


class ReplayAgent(Agent):
    """An agent that acts and stores transitions.

    Attributes:
        memory: the replay buffer with its sampler and running statistics.
        replay: the replay buffer itself.
        largest_reward: the largest reward stored so far, at least 1.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.largest_reward = 1.0

    @exclusive
    def observe(self, observation, action, reward, next_observation, terminated, truncated, env_index: int = 0) -> None:
        """Store one transition, in env units; for your own training loop, together with :meth:`update`.

        A transition continues the episode of the previous one of the same environment if its s equals that one's s′
        and that one did not end the episode. N-step returns, hindsight and reward scaling rely on this.

        Args:
            observation: s, the observation space's shape.
            action: a, as it was sent to the environment; the action space must contain it.
            reward: r.
            next_observation: s′; at the end of an episode the final observation, not that of the reset.
            terminated: s′ is terminal: its value is 0.
            truncated: the episode was cut short; s′ still has a value.
            env_index: the index of the environment, from 0, for a loop that steps several.

        Raises:
            UsageError: if a shape is wrong, a value is NaN, or the action is outside its space; nothing is stored then.
        """
        env_index = validate_int(env_index, "env_index", at_least=0)
        fields = observation, action, reward, next_observation, terminated, truncated
        self.store(check_transition(self.observation_space, self.actions.to_flat, *fields, env_index))

    @exclusive
    def store(self, transitions: Transitions, clipped: int = 0) -> None:
        """Store checked transitions and count them as steps; ``clipped`` of their actions were clipped to their box."""
        self._check_masks(transitions)
        self.memory.store(transitions)
        self.num_timesteps += len(transitions)
        # There may be no transition at all: every environment of a vector may have been reset in this step.
        self.largest_reward = float(transitions.rewards.max(initial=self.largest_reward))
        self._count_clipped(clipped)

    @exclusive
    def remember(self, observations, actions, rewards, next_observations, terminated, truncated) -> None:
        """Store N transitions from elsewhere, such as demonstrations or an earlier run, in env units.

        They get priorities and enter the running statistics and the largest reward, but are not steps of the agent:
        ``num_timesteps`` does not change. Consecutive transitions belong to one episode as long as s equals the
        previous s′ and the previous transition did not end it (for n-step returns and reward scaling). If there are
        more than ``buffer_size``, the last ones are kept.

        Args:
            observations: s, ``[N, *observation shape]``, or flat, ``[N, n]``.
            actions: a, as they were sent to the environment: a sequence of N members of the action space.
            rewards: r, ``[N]``.
            next_observations: s′, shaped like s; at the end of an episode the final observation.
            terminated: s′ is terminal, ``[N]``.
            truncated: the episode was cut short at s′, ``[N]``.

        Raises:
            UsageError: if a shape is wrong, a value is NaN, or an action is outside its space; nothing is stored then.
        """
        fields = observations, actions, rewards, next_observations, terminated, truncated
        transitions = check_transitions(self.observation_space, self.actions.to_flat, *fields, DEMONSTRATIONS)
        self._check_masks(transitions)
        ended = transitions.terminated | transitions.truncated
        jumps = transitions.observations[1:] != transitions.next_observations[:-1]
        ended[:-1] |= np.any(jumps, axis=tuple(range(1, jumps.ndim)))
        self.memory.store(transitions, ended)
        self.memory.end_episodes(DEMONSTRATIONS)
        self.largest_reward = float(np.max(transitions.rewards, initial=self.largest_reward))

    @exclusive
    def begin_episodes(self) -> None:
        """Start new episodes: every environment was reset, so the next transitions do not continue stored ones."""
        self.memory.end_episodes()

    def _check_masks(self, transitions: Transitions) -> None:
        """Refuse transitions whose action masks cannot be used; agents with masks override this."""

    def _count_clipped(self, count: int) -> None:
        """Count actions that were clipped while learning; agents that report it override this."""


Self = TypeVar("Self", bound="OffPolicyAgent")


class OffPolicyAgent(ReplayAgent):
    """An agent that acts, stores transitions, and learns from them.

    Attributes:
        loop: the state that :meth:`learn` keeps from one call to the next.
        num_dropped_transitions: transitions dropped (``on_bad_transition``) since this object was made.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.num_dropped_transitions = 0
        self.loop = LearnLoop()

    @property
    def counts(self) -> dict[str, int]:
        """Counters of learning since this object was made, by name."""
        drops = self.config.on_bad_transition == "drop"
        return ({"dropped_transitions": self.num_dropped_transitions} if drops else {}) | self.loop.counts

    # -- learning -------------------------------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of every call of updates: those that :meth:`update` returns, and the loop's own."""
        return (*self.updater.metrics, *self.loop.metrics)

    @property
    def num_updates(self) -> int:
        """Gradient updates made."""
        return self.updater.num_updates

    @property
    def compile_seconds(self) -> float | None:
        """Seconds that the first call of updates took, which builds and compiles them; ``None`` before it."""
        return self.updater.compile_seconds

    @property
    def reward_scale(self) -> float:
        """The number that rewards are divided by before the critic learns from them; Q times this is in env units."""
        if self.memory.rewards is not None:
            return self.memory.rewards.scale
        return self.largest_reward if self.config.rescale_rewards else 1.0

    @property
    def priority_correction(self) -> float:
        """The current β of the importance-sampling weights."""
        config = self.config
        return interpolate(config.priority_correction, 1.0, config.priority_correction_steps, self.num_timesteps)

    @exclusive
    def update(self, n: int = 1) -> dict[str, float]:
        """Make ``n`` gradient updates, of the target networks too, from the replay memory.

        Up to ``config.updates_per_call`` updates are fused into one compiled call; in your own training loop, set it
        to the ``n`` that you usually pass.

        Returns:
            Means over the updates, by the names in :attr:`metrics`.

        Raises:
            UsageError: if the replay memory is empty, or ``n`` is not a whole number from 1 to 2³¹ − 1.
            FloatingPointError: if a loss or a weight is not finite afterwards.
        """
        n = validate_int(n, "n", at_least=1, at_most=resource_limits.INTEGER)
        metrics, weights = self.updater.run(self.session, n, self.reward_scale, self.priority_correction)
        self.load_policies(weights)
        return metrics

    @exclusive
    def scale_learning_rates(self, factor: float) -> None:
        """Set the optimisers' step sizes to ``factor`` times the configured ones.

        Raises:
            UsageError: if ``factor`` is not a finite number of at least 0.
        """
        factor = validate_float(factor, "factor", at_least=0.0)
        for network, rate, _ in self.symbolic_update.learning_rates:
            self.updater.set_rate(self.session, network, factor * rate)

    @exclusive
    def schedule_learning_rates(self, left: float) -> None:
        """Set each optimiser's step size to its schedule's value when the fraction ``left`` of learning is left.

        Raises:
            UsageError: if ``left`` is not in [0, 1].
        """
        left = validate_float(left, "left", at_least=0.0, at_most=1.0)
        for network, rate, schedule in self.symbolic_update.learning_rates:
            self.updater.set_rate(self.session, network, factor_of(schedule, left) * rate)

    def learn(
        self: Self,
        total_timesteps: int,
        callbacks: Callback | Callable | Sequence[Callback | Callable] = (),
        progress_bar: bool = False,
        **unknown: Any,
    ) -> Self:
        """Interact with the environment for ``total_timesteps`` more steps and learn from it.

        Two calls of 400 steps do exactly the same as one call of 800: the episode, the noise and the owed updates
        carry over. (N environments step together, so a call may make up to N − 1 steps more.) A
        ``learning_rate_schedule`` other than ``"constant"`` is the exception: it runs from the agent's first step to
        the end of the call, so a second call of the same length starts half-way through it. After a call the learning
        rates are the configured ones again, for :meth:`update`.

        Args:
            total_timesteps: environment steps, over all environments of a vector.
            callbacks: :class:`ddpg.Callback` objects, or functions ``f(agent)`` called after every step; one that
                returns ``False`` ends learning.
            progress_bar: show return, steps/s and time left on stderr.

        Returns:
            The agent.

        Raises:
            UsageError: if a keyword is unknown, there is no environment, ``total_timesteps`` < 1, ``step_timeout`` is
                set for an environment in this process, the replay memory would not fit into this machine, or ``learn``
                is already running, in another thread or in this one (called by a callback).
            EnvironmentFault: if the environment raised, hung, or returned NaN or another invalid value.
        """
        refuse_unknown("learn", unknown, LEARN, ("total_timesteps", "callbacks", "progress_bar"))
        self.check_usable()
        total_timesteps = validate_int(total_timesteps, "total_timesteps", at_least=1)
        self.check_learning(total_timesteps)
        bars = [ProgressBar()] if validate_bool(progress_bar, "progress_bar") else []
        callback_list = CallbackList([*as_callbacks(callbacks), *bars])
        with self._learning():
            self.loop.run(self, self.num_timesteps + total_timesteps, callback_list)
        return self

    def stop(self) -> None:
        """Ask :meth:`learn` to return after the current step."""
        self.loop.stop()

    def report_evaluation(self, evaluation: Any) -> None:
        """Call ``on_evaluation`` of each callback of the current :meth:`learn`."""
        self.loop.report_evaluation(self, evaluation)

    def abandon_episode(self) -> None:
        """Make the next :meth:`learn` reset the training environment, because other code has stepped it.

        :func:`ddpg.evaluate` calls this itself.
        """
        self.loop.abandon_episode()

    # -- saving ---------------------------------------------------------------------------------------

    @exclusive
    def save(self, path: str | Path, replay: bool = True) -> Path:
        """Write a checkpoint directory: weights, EMA shadows, optimiser slots, counters, random states.

        Args:
            path: a new path, an empty directory, or a checkpoint, which is replaced once the new one is complete.
            replay: also save the replay memory, so that learning can continue as if it had not stopped.

        Returns:
            The path.

        Raises:
            UsageError: if ``path`` exists and is not a checkpoint; it is left as it is.
        """
        return checkpoint.write(validate_path(path), *state.capture(self, validate_bool(replay, "replay")))

    @classmethod
    def load(
        cls: type[Self],
        path: str | Path,
        env: Any = None,
        *,
        which: str = "latest",
        config: AgentConfig | None = None,
        **networks: Callable,
    ) -> Self:
        """Return the agent of a checkpoint, or of a run directory. Reads data only, never code.

        Args:
            path: a checkpoint directory, or a run directory.
            env: the environment to continue learning in; its spaces must be the saved ones.
            which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
            config: replaces the saved options, learning rates included; needed if those held your own callables.
            networks: your own networks that the agent was made with, if any, by the constructor's keywords.

        Raises:
            UsageError: if there is no checkpoint, or it is damaged, asks for more memory than its arrays justify
                (:mod:`ddpg.agents.resource_limits`), or does not fit ``env`` or the networks.
        """
        path = validate_path(path)
        found = checkpoint.find(path, which)
        manifest, groups = checkpoint.read(found)
        if manifest["kind"] != cls.__name__:
            raise UsageError(f"{path} is a checkpoint of {manifest['kind']}; load it with {manifest['kind']}.load")
        spaces = state.fitting_env(manifest, env)
        if config is None:
            config = state.config_of(manifest, networks)
            resource_limits.check_options(found, config, spaces_of(spaces), groups.get("variables", {}))
        try:
            agent = cls(spaces, config, manifest["seed"], **networks)
        except MemoryError as error:
            raise UsageError(f"checkpoint {found} asks for more memory than there is ({error})") from None
        state.restore(agent, manifest, groups)
        return agent


def agent_for(action_space: gym.Space, config: AgentConfig | None = None) -> type[OffPolicyAgent]:
    """Return the agent class for an action space, or for the options of a user's own algorithm.

    Raises:
        UsageError: if no algorithm has such options.
    """
    own = config is not None and type(config) not in (DDPGConfig, DQNConfig)
    name = algorithm_of(config) if config is not None and own else algorithm_for(action_space)
    return _agent_class(ALGORITHMS[name].agent)


def load_agent(path: str | Path, env: Any = None, which: str = "latest", **options: Any) -> OffPolicyAgent:
    """Return the agent of a checkpoint or a run directory, of the class that saved it.

    Args:
        path: a checkpoint directory, or a run directory.
        env: the environment to continue learning in.
        which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
        options: ``config`` and the user's own networks, as for :meth:`OffPolicyAgent.load`.

    Raises:
        UsageError: if there is no checkpoint, it is damaged, no algorithm has its agent's class, or it names user code
            that is not allowed to be imported (:func:`ddpg.config.imports.imports_allowed`).
    """
    path = checkpoint.find(path, which)
    manifest = checkpoint.read(path, only=set())[0]
    if is_reference(manifest["algorithm"]) and options.get("config") is None:
        algorithm_named(manifest["algorithm"])  # also registers its agent class
    kind = manifest["kind"]
    agents = {algorithm.agent.rpartition(":")[2]: algorithm.agent for algorithm in ALGORITHMS.values()}
    if kind not in agents:
        raise UsageError(f"{path} is a checkpoint of {kind!r}; this version knows {', '.join(agents)}")
    return _agent_class(agents[kind]).load(path, env, **options)


def _agent_class(name: str) -> type[OffPolicyAgent]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
