"""What DDPG and DQN share: a private graph, replay, the loop of acting and learning, checkpoints."""

import abc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import tensorflow as tf

from ddpg.acting.policy import make_policy
from ddpg.acting.schedules import SCHEDULES, interpolate
from ddpg.agents import state as saving
from ddpg.agents.callbacks import Callback, ProgressBar
from ddpg.config import AgentConfig
from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.experience.interaction import Transitions, make_interaction, spaces_of
from ddpg.experience.replay import ReplayBuffer, stored_dtype
from ddpg.networks.base import Network
from ddpg.storage import checkpoint
from ddpg.updates.learner import Update
from ddpg.updates.updater import Updater

v1 = tf.compat.v1


class OffPolicyAgent(abc.ABC):
    """An agent that acts, remembers, and learns from its replay memory.

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are
    untouched. Subclasses say what their networks, actions and update are.
    """

    config_class: ClassVar[type[AgentConfig]]

    def __init__(self, env, config: AgentConfig | None, seed: int | None):
        self.config = config = config or self.config_class()
        if not isinstance(config, self.config_class):
            raise UsageError(f"{type(self).__name__} needs a {self.config_class.__name__}, got {config!r}")
        self.observation_space, self.action_space = spaces_of(env)
        spaces.check_observation_space(self.observation_space)
        self.env = None if isinstance(env, (tuple, list)) else env
        self.seed = int(np.random.SeedSequence().entropy % 2**31) if seed is None else int(seed)
        streams = np.random.SeedSequence(self.seed).spawn(3)
        self._exploration_rng, self._replay_rng = (np.random.default_rng(stream) for stream in streams[:2])
        self.replay = ReplayBuffer(
            config.buffer_size, self.observation_space.shape, self._action_size, stored_dtype(self.observation_space)
        )
        self.num_timesteps = 0
        self._owed_updates = 0.0
        self._largest_reward = 1.0
        self._interaction = None
        self._stop_requested = False
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(_seed_from(streams[2]))
            update, acting = self._build()
            self.global_variables = {variable.name: variable for variable in v1.global_variables()}
            self.session = v1.Session(config=v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True)))
            self._policy = make_policy(acting, self.session)
            self.session.run(v1.global_variables_initializer())
        # The session holds threads and device memory: give them back with the agent.
        weakref.finalize(self, self.session.close)
        self._policy.load(self.session.run(self._policy.variables))
        self._updater = Updater(update, config, self.replay, self._replay_rng, fetch=self._policy.variables)

    # -- what differs ---------------------------------------------------------------------------------

    _action_size: int

    @abc.abstractmethod
    def _build(self) -> tuple[Update, Network]:
        """Build the networks in the default graph; return the update, and the network that acts."""

    @abc.abstractmethod
    def _explore(self, observations: np.ndarray) -> np.ndarray:
        """Return the behaviour policy's actions, ``[N, A]`` float32 as the replay memory stores them."""

    @abc.abstractmethod
    def _to_env(self, actions: np.ndarray) -> np.ndarray:
        """Translate stored actions ``[N, A]`` to what the environments take."""

    @abc.abstractmethod
    def _from_env(self, action) -> np.ndarray:
        """Translate one action of the environment to ``[1, A]`` as stored; refuse one it could not take."""

    @abc.abstractmethod
    def _scale_learning_rates(self, factor: float) -> None:
        """Set the optimisers' step sizes to ``factor`` times the configured ones."""

    @property
    @abc.abstractmethod
    def _exploration_range(self) -> tuple[float, float]:
        """The share of uniform random actions at the start, and in the end."""

    def _start_exploring(self, count: int) -> None:
        """Prepare exploration in ``count`` environments."""

    def _episode_ended(self, index: int) -> None:
        """Take note that an episode ended in environment ``index``."""

    @property
    def exploration(self) -> float:
        """The share ε of uniform random actions now: linear from initial to final over ``exploration_steps``."""
        return interpolate(*self._exploration_range, self.config.exploration_steps, self.num_timesteps)

    @property
    def counts(self) -> dict[str, int]:
        """What was counted while learning, since this object was made."""
        return {}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what :meth:`update` returns."""
        return self._updater.metrics

    @property
    def num_updates(self) -> int:
        """Gradient updates made."""
        return self._updater.num_updates

    # -- remembering ----------------------------------------------------------------------------------

    def observe(self, observation, action, reward, next_observation, terminated, truncated) -> None:
        """Store one transition, in env units; for a loop of one's own, together with :meth:`update`.

        Args:
            observation: s, the observation space's shape.
            action: a, as it was sent to the environment, one that the action space contains.
            reward: r.
            next_observation: s′: the true one, also where the episode ended.
            terminated: s′ is terminal: its value is 0.
            truncated: the episode was cut short; s′ still has a value.

        Raises:
            UsageError: a wrong shape, NaN, or an action outside its space; nothing is stored then.
        """
        observations, _ = spaces.as_batch(self.observation_space, observation, "observation")
        next_observations, _ = spaces.as_batch(self.observation_space, next_observation, "next_observation")
        if len(observations) != 1 or len(next_observations) != 1:
            raise UsageError("observe stores one transition; call it once for each")
        actions = self._from_env(action)
        rewards = np.asarray([reward], np.float32)
        spaces.check_finite(rewards, "reward")
        self.replay.add(observations, actions, rewards, next_observations, [terminated], [truncated])
        self._count(rewards)

    def _store(self, transitions: Transitions, actions: np.ndarray) -> None:
        """Store what an interaction returned; ``actions`` are the same ones as stored."""
        spaces.check_finite(transitions.next_observations, "observation")
        rewards = np.asarray(transitions.rewards, np.float32)
        spaces.check_finite(rewards, "reward")
        self.replay.add(
            transitions.observations,
            actions,
            rewards,
            transitions.next_observations,
            transitions.terminated,
            transitions.truncated,
        )
        self._count(rewards)

    def _count(self, rewards: np.ndarray) -> None:
        self.num_timesteps += len(rewards)
        # Every environment of a vector may have been restarting: then nobody stepped.
        self._largest_reward = float(np.max(rewards, initial=self._largest_reward))

    # -- learning -------------------------------------------------------------------------------------

    def update(self, n: int = 1) -> dict[str, float]:
        """Make ``n`` gradient updates, of the target networks too, from the replay memory.

        Calls are fused ``config.updates_per_call`` at a time; in a loop of one's own, set that to the
        usual ``n``.

        Returns:
            Means over the updates, by the names in :attr:`metrics`.

        Raises:
            UsageError: an empty replay memory, or ``n`` < 1.
            FloatingPointError: a loss that is not finite.
        """
        if n < 1:
            raise UsageError(f"update(n={n}) must make at least 1 update")
        scale = self._largest_reward if self.config.rescale_rewards else 1.0
        metrics, weights = self._updater.run(self.session, n, scale)
        self._policy.load(weights)
        return metrics

    def learn(
        self, total_timesteps: int, callbacks: Sequence[Callback] = (), progress_bar: bool = False
    ) -> "OffPolicyAgent":
        """Interact with the environment for ``total_timesteps`` more steps and learn from it.

        Two calls of 400 steps do exactly what one of 800 does: episode, noise and owed updates go on (unless
        ``learning_rate_schedule`` is not ``"constant"``: then each call follows it from start to end).

        Args:
            total_timesteps: environment steps, over all environments of a vector.
            callbacks: see :class:`ddpg.Callback`.
            progress_bar: show return, steps/s and time left on stderr.

        Returns:
            The agent.

        Raises:
            UsageError: no environment, ``total_timesteps`` < 1, or NaN from the environment.
        """
        if self.env is None:
            raise UsageError("this agent was made from spaces; give it an environment, or use observe() and update()")
        if total_timesteps < 1:
            raise UsageError(f"total_timesteps={total_timesteps} must be at least 1")
        self._stop_requested = False
        if self._interaction is None:
            # Not the first episodes over again where a loaded agent goes on.
            env_seed = _seed_from(np.random.SeedSequence([self.seed, self.num_timesteps]))
            self._interaction = make_interaction(self.env, env_seed)
            self._start_exploring(self._interaction.count)
        callbacks = [*callbacks, ProgressBar()] if progress_bar else list(callbacks)
        self._goal = self.num_timesteps + total_timesteps
        for callback in callbacks:
            callback.on_training_start(self, self._goal)
        try:
            while self.num_timesteps < self._goal and not self._stop_requested:
                self._step(callbacks)
        finally:
            for callback in callbacks:
                callback.on_training_end(self)
        return self

    def stop(self) -> None:
        """Ask :meth:`learn` to return after the current step."""
        self._stop_requested = True

    def _step(self, callbacks: Sequence[Callback]) -> None:
        interaction, config = self._interaction, self.config
        spaces.check_finite(interaction.observations, "observation")
        learning = self.num_timesteps >= config.learning_starts
        actions = self._explore(interaction.observations)
        transitions = interaction.step(self._to_env(actions))
        self._store(transitions, actions[transitions.environments])
        for episode in transitions.episodes:
            self._episode_ended(episode.index)
            for callback in callbacks:
                callback.on_episode_end(self, episode)
        if learning:
            self._owed_updates += len(transitions.rewards) * config.updates_per_step
            if self._owed_updates >= config.updates_per_call:
                count = int(self._owed_updates)
                self._owed_updates -= count
                self._follow_schedule()
                metrics = self.update(count)
                for callback in callbacks:
                    callback.on_update(self, metrics)
        for callback in callbacks:
            if callback.on_step(self) is False:
                self.stop()

    def _follow_schedule(self) -> None:
        schedule = self.config.learning_rate_schedule
        schedule = SCHEDULES.get(schedule, schedule)
        if schedule is not SCHEDULES["constant"]:
            self._scale_learning_rates(schedule(max(0.0, 1 - self.num_timesteps / self._goal)))

    # -- saving ---------------------------------------------------------------------------------------

    def save(self, path: str | Path, replay: bool = True) -> Path:
        """Write a checkpoint directory: weights, EMA shadows, optimiser slots, counters, random states.

        Args:
            path: the directory; one that is there is replaced once the new one is complete.
            replay: with the replay memory, so that learning can go on as if it had not stopped.

        Returns:
            The path.
        """
        return checkpoint.write(path, *saving.capture(self, replay))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env=None,
        *,
        which: str = "latest",
        config: AgentConfig | None = None,
        **networks: Callable,
    ) -> "OffPolicyAgent":
        """Return the agent of a checkpoint, or of a run directory. Reads data only, never code.

        Args:
            path: a checkpoint directory, or a run directory.
            env: to go on learning in; its spaces must be the saved ones.
            which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
            config: instead of the saved one: needed where that held callables of one's own.
            networks: those of one's own that it was made with, if any, by the constructor's names.

        Raises:
            UsageError: no checkpoint there, a damaged one, or one that does not fit ``env`` or the networks.
        """
        manifest, groups = checkpoint.read(checkpoint.find(path, which))
        if manifest["kind"] != cls.__name__:
            raise UsageError(f"{path} is a checkpoint of {manifest['kind']}; load it with {manifest['kind']}.load")
        env = saving.check_spaces(manifest, env)
        config = config or cls.config_class.from_json(manifest["config"])
        agent = cls(env, config, manifest["seed"], **networks)
        saving.restore(agent, manifest, groups)
        return agent


def _seed_from(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0] >> 1)
