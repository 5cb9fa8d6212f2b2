"""The base class of agents, which act, store transitions, and make gradient updates from them."""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ddpg.agents import resource_limits
from ddpg.agents.replay_memory import DEMONSTRATIONS, ReplayMemory
from ddpg.agents.tf_agent import TFAgent, exclusive
from ddpg.algorithms.base import Update
from ddpg.algorithms.registry import update_of
from ddpg.compiler.ir import Unsupported
from ddpg.config import name_hints
from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError, brief, format_error
from ddpg.interaction import spaces
from ddpg.interaction.action_repeat import decisions_of
from ddpg.interaction.actions import Actions, BoxActions, finite_outputs, unbatch
from ddpg.interaction.transitions import Transitions, check_transition, check_transitions
from ddpg.interaction.validation import validate_bool, validate_float, validate_int
from ddpg.learners.synced_session import SyncedSession
from ddpg.learners.updater import Updater
from ddpg.networks.own_layers import try_networks
from ddpg.policies.exploration import Exploration
from ddpg.policies.native_policy import NativePolicy
from ddpg.policies.network_policy import CompiledPolicy, NumpyPolicy, SessionPolicy, make_policy
from ddpg.policies.schedules import factor_of, interpolate
from ddpg.replay.buffer import OutOfMemory

v1 = tf.compat.v1


class Agent(TFAgent, abc.ABC):
    """Base class of agents: it builds the networks and their update, acts, stores transitions, and updates.

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are unaffected.
    Subclasses define actions and exploration; the options select the update (:mod:`ddpg.algorithms.registry`).

    Attributes:
        memory: the replay buffer with its sampler and running statistics.
        replay: the replay buffer itself.
        largest_reward: the largest reward stored so far, at least 1.
        num_dropped_transitions: transitions dropped (``on_bad_transition``) since this object was made.
        policy: computes the deterministic actions of :meth:`predict`.
        exploring_policy: computes the actions to which exploration is added; the same object as :attr:`policy`,
            unless ``actor_average`` is set.
    """

    config_class: ClassVar[type[AgentConfig]]
    update_class: ClassVar[Any] = Update

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that exists

        def __getattr__(self, name: str) -> Any:
            """Say what an attribute of other packages' agents is called here.

            Raises:
                AttributeError: if Python calls this, which it does where there is no such attribute.
            """
            if name in dir(type(self)):  # a property failed with an AttributeError of its own, which this raises again
                return object.__getattribute__(self, name)
            hint = name_hints.attribute_hint(name, {*vars(self), *dir(type(self))})
            text = f"{type(self).__name__!r} object has no attribute {name!r}{f': {hint}' if hint else ''}"
            raise AttributeError(text, name=name, obj=self)

    def __init__(
        self,
        env: Any,
        config: AgentConfig | None,
        seed: int | None,
        networks: Mapping[str, Any],
        unknown: Mapping[str, Any],
    ):
        kind = type(self).__name__
        name_hints.check_policy(kind, env)
        fields = [field.name for field in dataclasses.fields(self.config_class)]
        name_hints.check_agent(kind, fields, unknown, ("env", "config", "seed", *networks))
        self.config = config = self.config_class() if config is None else config
        if not isinstance(config, self.config_class):
            raise UsageError(f"{kind} needs a {self.config_class.__name__}, got {brief(config)}")
        config = _with_networks(config, networks)
        self.config = config = _with_default_gamma(config, env)
        observation_space, self.action_space = spaces.spaces_of(env)
        self.observation_space = spaces.check_observation_space(observation_space)
        self.actions, learned_space = self._make_actions(self.action_space)
        self.env: Any = None if isinstance(env, (tuple, list)) else env
        self.seed = derive_seed(np.random.SeedSequence()) if seed is None else validate_int(seed, "seed", at_least=0)
        self._learned_spaces = self.observation_space, learned_space
        resource_limits.check_memory(config, (self.observation_space, self.action_space))
        streams = np.random.SeedSequence(self.seed).spawn(3)
        self.generators = dict(zip(("exploration", "replay"), map(np.random.default_rng, streams[:2]), strict=True))
        self.behaviour = self.make_behaviour(self.generators["exploration"], config)
        try:
            self.memory = ReplayMemory(config, self.observation_space, self.actions.size, self.env)
        except (MemoryError, OutOfMemory) as error:
            fits = resource_limits.fitting_buffer(self.observation_space, self.action_space)
            raise UsageError(
                f"buffer_size={config.buffer_size} is more than this machine gives ({error.__cause__ or error}); "
                f"{fits} transitions fit: --buffer-size {fits}"
            ) from None
        self.replay = self.memory.replay
        self.num_timesteps = self.num_dropped_transitions = 0
        self.largest_reward = 1.0
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(derive_seed(streams[2]))
            self.symbolic_update = self.build_update()
            self.global_variables = self.symbolic_update.state_variables
            self._own(SyncedSession())
            update, normaliser = self.symbolic_update, self.memory.observations
            compiles = config.jit and config.compiler != "xla"
            self.policy = self.exploring_policy = make_policy(update.policy, self.session, normaliser, compiles)
            if update.greedy_policy is not update.policy:
                self.policy = make_policy(update.greedy_policy, self.session, normaliser, compiles)
            self.session.run(v1.global_variables_initializer())
            if config.own_networks:
                pair = dict.fromkeys((self.symbolic_update.policy, self.symbolic_update.value))
                try_networks(pair, self.session, " and ".join(config.own_networks))
        self.refresh_policy()
        self.updater = Updater(
            self.symbolic_update,
            config,
            self.memory.sampler,
            self.generators["replay"],
            resource_limits.largest_call(config, (self.observation_space, self.action_space)),
            fetch=self._acting_variables,
            normaliser=self.memory.observations,
        )

    def build_update(self) -> Update:
        """Build the networks that the options describe, in the default graph, and return their update.

        Raises:
            UsageError: if a user's own update cannot be built, or is of a type that this agent cannot use.
        """
        kind, expected = update_of(self.config), self.update_class
        with kind.own_code():
            update = kind.build(self.config, self._learned_spaces)
        if not isinstance(update, expected):
            raise UsageError(
                f"{kind.__name__}.build returned a {type(update).__name__}, and {type(self).__name__} needs a "
                f"{expected.__name__}; derive {kind.__name__} from it, or name an agent of your own in the registry, "
                "as 'module:Class'"
            )
        return update

    # -- what subclasses define -----------------------------------------------------------------------

    @abc.abstractmethod
    def _make_actions(self, space: gym.Space) -> tuple[Actions, gym.Space]:
        """Return the translation between stored and environment actions, and the action space of the networks."""

    @abc.abstractmethod
    def make_behaviour(self, rng: np.random.Generator, config: Any) -> Exploration:
        """Return a behaviour policy for ``config``: the agent's own options, or others of the same class."""

    @property
    def _predicted_box(self) -> BoxActions | None:
        """The action box if the policy's outputs only need scaling to it, with no choice or clipping; else ``None``."""
        return None

    def _count_predicted(self, actions: np.ndarray, deterministic: bool) -> None:
        """Count the clipped actions among ``[N, A]`` of :meth:`predict`; agents that report this count override it."""

    def _count_clipped(self, count: int) -> None:
        """Count actions that were clipped while learning; agents that report it override this."""

    def _check_masks(self, transitions: Transitions) -> None:
        """Refuse transitions whose action masks cannot be used; agents with masks override this."""

    def _check_observation_masks(self, observation: npt.ArrayLike) -> None:
        """Refuse observations whose action masks are not zeros and ones; agents with masks override this."""

    # -- acting ---------------------------------------------------------------------------------------

    def predict(
        self, observation: npt.ArrayLike, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[npt.NDArray[Any], None]:
        """Return ``(action, None)`` for one observation or a batch (Stable-Baselines3's protocol).

        Args:
            observation: the observation space's shape, or flat; or a batch ``[B, ...]`` of them.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: return the policy's action (the averaged actor's if ``actor_average`` is set). Otherwise
                explore as ``learn`` does: uniformly random with the current probability ε, else the policy's action,
                for DDPG plus noise. The noise is drawn anew for every call: it has no Ornstein-Uhlenbeck state, and no
                ``parameter_noise``, which lasts for an episode. Before ``learning_starts``, where ``learn`` takes
                uniformly random actions, this explores around the current policy too.

        If the native compiler is enabled (``jit``, ``compiler``), compiled code acts on a single observation, here and
        in ``learn``, and NumPy on a batch; the two differ by rounding.

        Returns:
            Environment actions of the action space's shape and dtype, inside its bounds; for a batch as a vector
            environment takes them. The annotated type is that of a Box; parameterised actions are a tuple of arrays.

        Raises:
            UsageError: if the observation has another shape, holds NaN, is so large that the layers overflow, or ends
                in an action mask that is not zeros and ones.
        """
        self.check_usable()
        deterministic = validate_bool(deterministic, "deterministic")
        self._check_observation_masks(observation)
        native = self._native_policy if deterministic else None
        found, single = None if native is None else native(observation), True
        if found is None:
            observations, single = spaces.as_batch(self.observation_space, observation, "observation")
            if native is not None and len(observations) == 1:
                found = native(observations[0])
        if found is not None and native is not None and native.box is not None:
            return (found if single else found[None]), None
        if found is not None:
            actions = self.behaviour.greedy(found)
        elif deterministic and self.policy.program is not None:  # NumPy needs no lock
            actions = self.behaviour.greedy(finite_outputs(self.policy, observations))
        else:
            actions = self._predicted(observations, deterministic)
        self._count_predicted(actions, deterministic)
        translated = self.to_env(actions)
        return (unbatch(translated) if single else translated), None

    @functools.cached_property
    def _native_policy(self) -> NativePolicy | None:
        """:attr:`policy` compiled for one observation; ``None`` if compilation is disabled or not supported."""
        return self._native(self.policy, self._predicted_box)

    @functools.cached_property
    def _native_exploring_policy(self) -> NativePolicy | None:
        """:attr:`exploring_policy` compiled for one observation; it returns the raw outputs. ``None`` as above."""
        return self._native(self.exploring_policy, None)

    def _native(
        self, policy: NumpyPolicy | CompiledPolicy | SessionPolicy, box: BoxActions | None
    ) -> NativePolicy | None:
        if policy.program is None or not self.config.jit or self.config.compiler == "xla":
            return None
        try:
            return NativePolicy(policy.program, self.observation_space.shape, policy.normaliser, box)
        except Unsupported:
            return None

    @exclusive
    def _predicted(self, observations: np.ndarray, deterministic: bool) -> np.ndarray:
        if deterministic:
            return self.behaviour.greedy(finite_outputs(self.policy, observations))
        return self.behaviour.around(finite_outputs(self.exploring_policy, observations), self.num_timesteps)

    @exclusive
    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the next actions of the environments that ``learn`` steps.

        Returns:
            Actions as stored, ``[N, A]``, and whether each left its box and was clipped to it, ``[N]``.
        """
        behaviour, step = self.behaviour, self.num_timesteps
        outputs = None
        if len(observations) == 1 and behaviour.takes_outputs(step):
            native = self._native_exploring_policy
            outputs = None if native is None else native(observations[0])
        return behaviour.act(self.exploring_policy, observations, step, outputs)

    @property
    def exploration(self) -> float:
        """The share ε of uniform random actions now: linear from initial to final over ``exploration_steps``."""
        return self.behaviour.epsilon(self.num_timesteps)

    def to_env(self, actions: np.ndarray) -> Any:
        """Translate stored actions ``[N, A]`` to what a vector of N environments takes."""
        return self.actions.to_env(actions)

    @exclusive
    def refresh_policy(self) -> None:
        """Copy the session's current variables to the policies; needed after setting them by hand."""
        self.load_policies(self.session.run(self._acting_variables))

    def load_policies(self, weights: Sequence[np.ndarray]) -> None:
        """Set the policies to the values of :attr:`_acting_variables`."""
        count = len(self.exploring_policy.variables)
        self.exploring_policy.load(weights[:count])
        if self.policy is not self.exploring_policy:
            self.policy.load(weights[count:])

    @property
    def _acting_variables(self) -> list[tf.Variable]:
        """The variables that the policies copy: the exploring policy's, then the predicting one's if it is another."""
        others = [] if self.policy is self.exploring_policy else self.policy.variables
        return [*self.exploring_policy.variables, *others]

    # -- storing --------------------------------------------------------------------------------------

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
        self.largest_reward = max([self.largest_reward, *transitions.rewards.tolist()])
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
        transitions = check_transitions(self.observation_space, self.actions, *fields, DEMONSTRATIONS)
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

    # -- updating -------------------------------------------------------------------------------------

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
        """Set each optimiser's step size to its schedule's value when the fraction ``left`` of learning is left."""
        left = validate_float(left, "left", at_least=0.0, at_most=1.0)
        for network, rate, schedule in self.symbolic_update.learning_rates:
            self.updater.set_rate(self.session, network, factor_of(schedule, left) * rate)

    # -- description ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Return one line: spaces, networks, steps and updates so far."""
        spaces_text = f"{_format_space(self.observation_space)} -> {_format_space(self.action_space)}"
        own = " and ".join(self.config.own_networks)
        sizes = " and ".join(dict.fromkeys("-".join(map(str, hidden)) for _, hidden in self.config.described_layers))
        layers = f"{own} of its own" if own else f"hidden layers of {sizes}"
        update = type(self.symbolic_update).__name__.removesuffix("Update")
        parts = [
            *([f"as {update}"] if update != type(self).__name__ else []),
            spaces_text,
            layers,
            f"{self.num_timesteps:,} steps",
            f"{self.updater.num_updates:,} updates",
            *(["closed"] if self.closed else []),
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def _format_space(space: gym.Space) -> str:
    return f"Box{space.shape}" if isinstance(space, gym.spaces.Box) else str(space)


def _with_networks(config: AgentConfig, networks: Mapping[str, Any]) -> AgentConfig:
    """Return ``config`` with the networks that the caller passed as keyword arguments; refuse others than it holds."""
    given = {name: network for name, network in networks.items() if network is not None}
    for name, network in given.items():
        before = getattr(config, name)
        if before is not None and before is not network:
            raise UsageError(f"{name} is in the configuration, and a different one is an argument; give one of the two")
    return config.replace(**given) if given else config


def _with_default_gamma(config: AgentConfig, env: Any) -> AgentConfig:
    """Return ``config``, with γ = 1 − 5/T clipped to [0.95, 0.995] if it has none; T is an episode's actions.

    The rule of Hansen, Su & Wang 2024 (TD-MPC2, arXiv 2310.16828, appendix): the horizon 1/(1 − γ) is a fifth of T.

    Raises:
        UsageError: if ``config`` has no γ and the environment no ``max_episode_steps``.
    """
    if config.gamma is not None:
        return config
    if not (steps := decisions_of(_env_spec(env))):
        raise UsageError(
            "gamma=none is taken from the environment's max_episode_steps, which it does not have; give gamma a number"
        )
    return config.replace(gamma=min(max(1 - 5 / steps, 0.95), 0.995))


def _env_spec(env: Any) -> Any:
    """Return the environment's ``spec``; for a vector that has none, the ``spec`` of its first environment."""
    spec = getattr(env, "spec", None)
    ask = getattr(env.unwrapped, "get_attr", None) if isinstance(env, gym.vector.VectorEnv) else None
    if spec is not None or ask is None:
        return spec
    try:
        return ask("spec")[0]
    except Exception as error:  # pickling a spec's contents may raise anything, and then the worker processes exit
        raise UsageError(
            f"gamma=none is taken from the environment's max_episode_steps, which {env} could not tell "
            f"({format_error(error)}); make the vector anew, and give gamma a number"
        ) from None


def derive_seed(sequence: np.random.SeedSequence) -> int:
    """Return a seed that environments and TensorFlow take, in [0, 2³¹)."""
    return int(sequence.generate_state(1)[0] >> 1)
