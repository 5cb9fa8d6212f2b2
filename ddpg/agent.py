"""``DDPG``: the object a user holds. Acts, remembers, learns, saves."""

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ddpg import checkpoint, saving, spaces
from ddpg.callbacks import Callback, ProgressBar
from ddpg.config import DDPGConfig
from ddpg.errors import UsageError
from ddpg.interaction import Transitions, make_interaction, spaces_of
from ddpg.learner import FusedLearner, SteppedLearner
from ddpg.networks.acting import make_policy
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.critic import CriticNetwork
from ddpg.networks.layers import mlp
from ddpg.noise import make_noise
from ddpg.replay import Batch, ReplayBuffer

v1 = tf.compat.v1


class DDPG:
    """Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971).

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are
    untouched. Trains in a [-1, 1] action space and rescales at the environment: every action that goes
    in or out of a public method is in env units.

    Args:
        env: a gymnasium ``Env``, a ``VectorEnv``, or a pair ``(observation_space, action_space)`` for a
            loop of one's own.
        config: the options; :class:`ddpg.DDPGConfig` by default.
        seed: of initial weights, exploration, replay sampling and the first reset; ``None``: random.
        actor_network: hidden layers of one's own, ``states [B, ...] -> features``.
        critic_network: hidden layers of one's own, ``(states [B, ...], actions [B, A]) -> features``.

    Attributes:
        actor, critic: the networks, in :attr:`graph`; run them inside ``with agent.session.as_default():``.
        replay: the replay memory.
        num_timesteps: environment steps taken or observed.
        num_updates: gradient updates made.

    Raises:
        UsageError: a space or an option that cannot work.
    """

    def __init__(
        self,
        env,
        config: DDPGConfig | None = None,
        seed: int | None = None,
        *,
        actor_network: Callable | None = None,
        critic_network: Callable | None = None,
    ):
        self.config = config = config or DDPGConfig()
        self.observation_space, self.action_space = spaces_of(env)
        spaces.check_observation_space(self.observation_space)
        self._scaling = spaces.ActionScaling(self.action_space)
        self._action_size = spaces.flat_size(self.action_space)
        self.env = None if isinstance(env, (tuple, list)) else env
        self.seed = int(np.random.SeedSequence().entropy % 2**31) if seed is None else int(seed)
        streams = np.random.SeedSequence(self.seed).spawn(3)
        self._exploration_rng, self._replay_rng = (np.random.default_rng(stream) for stream in streams[:2])
        self._weights_seed = _seed_from(streams[2])
        self.replay = ReplayBuffer(config.buffer_size, self.observation_space.shape, self._action_size)
        self.num_timesteps = 0
        self.num_updates = 0
        self._owed_updates = 0.0
        self._interaction = None
        self._noise = self._make_noise(1)
        self._stop_requested = False
        self._learner = None
        self._build(actor_network, critic_network)

    def _build(self, actor_network: Callable | None, critic_network: Callable | None) -> None:
        config, unit_space = self.config, self._scaling.unit_space
        layers = {"activation": config.activation, "norm": config.norm}
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(self._weights_seed)
            self.actor = ActorNetwork(
                self.observation_space,
                unit_space,
                network=actor_network or mlp(config.hidden, **layers),
                bounding=config.bounding,
                policy_gradient=config.policy_gradient,
                learning_rate=config.actor_learning_rate,
                tau=config.tau,
                action_gradient_clip=config.action_gradient_clip,
            )
            self.critic = CriticNetwork(
                self.observation_space,
                unit_space,
                network=critic_network or mlp(config.hidden, **layers, action_layer=config.action_layer),
                td_target=config.td_target,
                clip_delta=config.clip_delta,
                learning_rate=config.critic_learning_rate,
                tau=config.tau,
            )
            self.global_variables = {variable.name: variable for variable in v1.global_variables()}
            self.session = v1.Session(config=v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True)))
            self._policy = make_policy(self.actor, self.session)
            self.session.run(v1.global_variables_initializer())
        # The session holds threads and device memory: give them back with the agent.
        self._finalizer = weakref.finalize(self, self.session.close)
        self._policy.load(self.session.run(self._policy.variables))

    # -- acting ---------------------------------------------------------------------------------------

    def predict(self, observation, state=None, episode_start=None, deterministic: bool = True):
        """Return ``(action, None)`` for one observation or a batch (Stable-Baselines3's protocol).

        Args:
            observation: the observation space's shape, or flat; or a batch ``[B, ...]`` of them.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: μ(s); otherwise with exploration noise, drawn afresh (no OU memory).

        Returns:
            Actions in env units, in the action space's shape and dtype, inside its bounds.

        Raises:
            UsageError: another shape, or NaN in the observation.
        """
        observations, single = spaces.as_batch(self.observation_space, observation, "observation")
        actions = self._policy(observations)
        if not deterministic:
            scale = np.float32(self.config.noise_scale)
            actions = actions + scale * self._exploration_rng.standard_normal(actions.shape, np.float32)
        actions = self._scaling.to_env(actions)
        return (actions[0] if single else actions), None

    def _explore(self, observations: np.ndarray) -> np.ndarray:
        """Return the behaviour policy's actions, ``[N, A]`` in [-1, 1]."""
        shape = (len(observations), self._action_size)
        if self.num_timesteps < self.config.learning_starts:
            return self._exploration_rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        noisy = self._policy(observations) + self._noise.sample(self._exploration_rng)
        return np.minimum(np.maximum(noisy, np.float32(-1)), np.float32(1))

    def _make_noise(self, count: int):
        config = self.config
        shape = (count, self._action_size)
        return make_noise(config.noise, config.noise_scale, shape, config.noise_theta, config.noise_dt)

    # -- remembering ----------------------------------------------------------------------------------

    def observe(self, observation, action, reward, next_observation, terminated, truncated) -> None:
        """Store one transition, in env units; for a loop of one's own, together with :meth:`update`.

        Args:
            observation: s, the observation space's shape.
            action: a, as it was sent to the environment, inside the action space.
            reward: r.
            next_observation: s′: the true one, also where the episode ended.
            terminated: s′ is terminal: its value is 0.
            truncated: the episode was cut short; s′ still has a value.

        Raises:
            UsageError: a wrong shape, NaN, or an action outside the box; nothing is stored then.
        """
        observations, _ = spaces.as_batch(self.observation_space, observation, "observation")
        next_observations, _ = spaces.as_batch(self.observation_space, next_observation, "next_observation")
        actions, _ = spaces.as_batch(self.action_space, action, "action")
        if len(observations) != 1 or len(next_observations) != 1 or len(actions) != 1:
            raise UsageError("observe stores one transition; call it once for each")
        actions = self._scaling.to_unit(actions)
        if np.abs(actions).max() > 1 + 1e-5:
            raise UsageError(
                f"action {np.asarray(action).tolist()} is outside the action space {self.action_space}; "
                "store the action that was sent to the environment, clipped to its bounds"
            )
        rewards = np.asarray([reward], np.float32)
        spaces.check_finite(rewards, "reward")
        self.replay.add(observations, actions, rewards, next_observations, [terminated], [truncated])
        self.num_timesteps += 1

    def _store(self, transitions: Transitions, actions: np.ndarray) -> None:
        """Store what an interaction returned; ``actions`` are the same ones in [-1, 1]."""
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
        self.num_timesteps += len(rewards)

    # -- learning -------------------------------------------------------------------------------------

    def update(self, n: int = 1) -> dict[str, float]:
        """Make ``n`` gradient updates of critic, actor and targets from the replay memory.

        Calls are fused ``config.updates_per_call`` at a time; in a loop of one's own, set that to the
        usual ``n``.

        Returns:
            Means over the updates: ``critic_loss`` (mean squared TD error), ``q_value`` (mean Q of the
            minibatch), ``actor_loss`` (−mean Q(s, μ(s))), ``action_gradient_norm`` (mean ‖∇ₐQ‖ at μ(s),
            before bounding).

        Raises:
            UsageError: an empty replay memory, or ``n`` < 1.
            FloatingPointError: a loss that is not finite.
        """
        if n < 1:
            raise UsageError(f"update(n={n}) must make at least 1 update")
        learner = self._get_learner()
        totals: dict[str, float] = {}
        done = 0
        while done < n:
            count = min(n - done, learner.updates_per_call)
            batch = self.replay.sample(self._replay_rng, count, self.config.batch_size)
            if count < learner.updates_per_call:
                batch = Batch(*(_padded(field, learner.updates_per_call) for field in batch))
            metrics, weights = learner.update(self.session, batch, count)
            done += count
            self.num_updates += count
            totals = {name: totals.get(name, 0.0) + value * count / n for name, value in metrics.items()}
        self._policy.load(weights)
        if not np.isfinite(totals["critic_loss"]):
            raise FloatingPointError(
                f"the critic's loss is {totals['critic_loss']} after {self.num_updates} updates: training diverged; "
                "lower critic_learning_rate, or scale the rewards down"
            )
        return totals

    def _get_learner(self) -> FusedLearner | SteppedLearner:
        if self._learner is None:
            config = self.config
            options = {
                "gamma": config.gamma,
                "batch_size": config.batch_size,
                "fetch": self._policy.variables,
            }
            if self.critic.td_path.feeds_target:
                self._learner = SteppedLearner(self.actor, self.critic, **options)
            else:
                self._learner = FusedLearner(
                    self.actor,
                    self.critic,
                    **options,
                    updates_per_call=config.updates_per_call,
                    jit=config.jit,
                )
        return self._learner

    def learn(self, total_timesteps: int, callbacks: Sequence[Callback] = (), progress_bar: bool = False) -> "DDPG":
        """Interact with the environment for ``total_timesteps`` more steps and learn from it.

        Two calls of 400 steps do exactly what one of 800 does: episode, noise and owed updates go on (unless
        ``learning_rate_schedule="linear"``, which falls to 0 towards the end of each call).

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
            raise UsageError("this agent was made from spaces; give DDPG an environment, or use observe() and update()")
        if total_timesteps < 1:
            raise UsageError(f"total_timesteps={total_timesteps} must be at least 1")
        self._stop_requested = False
        if self._interaction is None:
            # Not the first episodes over again where a loaded agent goes on.
            env_seed = _seed_from(np.random.SeedSequence([self.seed, self.num_timesteps]))
            self._interaction = make_interaction(self.env, env_seed)
            self._noise = self._make_noise(self._interaction.count)
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

    def _scale_learning_rates(self, factor: float) -> None:
        with self.session.as_default():
            self.actor.set_learning_rate(factor * self.config.actor_learning_rate)
            self.critic.set_learning_rate(factor * self.config.critic_learning_rate)

    def stop(self) -> None:
        """Ask :meth:`learn` to return after the current step."""
        self._stop_requested = True

    def _step(self, callbacks: Sequence[Callback]) -> None:
        interaction, config = self._interaction, self.config
        spaces.check_finite(interaction.observations, "observation")
        learning = self.num_timesteps >= config.learning_starts
        actions = self._explore(interaction.observations)
        transitions = interaction.step(self._scaling.to_env(actions))
        self._store(transitions, actions[transitions.environments])
        for episode in transitions.episodes:
            self._noise.reset(episode.index)
            for callback in callbacks:
                callback.on_episode_end(self, episode)
        if learning:
            self._owed_updates += len(transitions.rewards) * config.updates_per_step
            if self._owed_updates >= config.updates_per_call:
                count = int(self._owed_updates)
                self._owed_updates -= count
                if config.learning_rate_schedule == "linear":
                    self._scale_learning_rates(max(0.0, 1 - self.num_timesteps / self._goal))
                metrics = self.update(count)
                for callback in callbacks:
                    callback.on_update(self, metrics)
        for callback in callbacks:
            if callback.on_step(self) is False:
                self.stop()

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
        config: DDPGConfig | None = None,
        actor_network: Callable | None = None,
        critic_network: Callable | None = None,
    ) -> "DDPG":
        """Return the agent of a checkpoint, or of a run directory. Reads data only, never code.

        Args:
            path: a checkpoint directory, or a run directory.
            env: to go on learning in; its spaces must be the saved ones.
            which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
            config: instead of the saved one: needed where that held callables of one's own.
            actor_network: the one it was made with, if any.
            critic_network: the one it was made with, if any.

        Raises:
            UsageError: no checkpoint there, a damaged one, or one that does not fit ``env`` or the networks.
        """
        manifest, groups = checkpoint.read(checkpoint.find(path, which))
        env = saving.check_spaces(manifest, env)
        config = config or DDPGConfig.from_json(manifest["config"])
        agent = cls(env, config, manifest["seed"], actor_network=actor_network, critic_network=critic_network)
        saving.restore(agent, manifest, groups)
        return agent


def _seed_from(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0] >> 1)


def _padded(field: np.ndarray, length: int) -> np.ndarray:
    padded = np.zeros((length, *field.shape[1:]), field.dtype)
    padded[: len(field)] = field
    return padded
