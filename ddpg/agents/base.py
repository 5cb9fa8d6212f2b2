"""The base class of agents: networks in a private graph and session, a policy, and exploration."""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ddpg.agents import resource_limits
from ddpg.agents.replay_memory import ReplayMemory
from ddpg.agents.tf_agent import TFAgent, exclusive
from ddpg.algorithms.base import Update
from ddpg.algorithms.registry import update_of
from ddpg.compiler.ir import Unsupported
from ddpg.config import name_hints
from ddpg.config.algorithm_options import AgentConfig
from ddpg.errors import UsageError, brief, format_error
from ddpg.exports.export import export
from ddpg.exports.policy_graph import ActingPolicy
from ddpg.interaction import spaces
from ddpg.interaction.actions import Actions, BoxActions, finite_outputs, unbatch
from ddpg.interaction.env_errors import check_timeout
from ddpg.interaction.env_runner import spaces_of
from ddpg.interaction.validation import validate_bool, validate_int, validate_path, validate_text
from ddpg.learners.synced_session import SyncedSession
from ddpg.learners.updater import Updater
from ddpg.networks.own_layers import try_networks
from ddpg.policies.exploration import Exploration
from ddpg.policies.native_policy import NativePolicy
from ddpg.policies.network_policy import make_native_policy, make_policy, program_of
from ddpg.replay.buffer import OutOfMemory

v1 = tf.compat.v1


class Agent(TFAgent, abc.ABC):
    """Base class of agents: it builds the networks and their update, and acts.

    Owns a private graph and session, so eager TensorFlow code and other agents in the process are unaffected.
    Subclasses define actions and exploration; the options select the update (:mod:`ddpg.algorithms.registry`).

    Attributes:
        policy: computes the deterministic actions of :meth:`predict`.
        exploring_policy: computes the actions to which exploration is added; the same object as :attr:`policy`,
            unless ``actor_average`` is set.
    """

    config_class: ClassVar[type[AgentConfig]]

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
        observation_space, self.action_space = spaces_of(env)
        self.observation_space = spaces.check_observation_space(observation_space)
        self.actions, learned_space = self._make_actions(self.action_space)
        self.env = None if isinstance(env, (tuple, list)) else env
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
        self.num_timesteps = 0
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(derive_seed(streams[2]))
            self.symbolic_update = self.build_update()
            self.global_variables = self.symbolic_update.state_variables
            self._own(SyncedSession())
            update, normaliser = self.symbolic_update, self.memory.observations
            self.policy = self.exploring_policy = make_policy(update.policy, self.session, normaliser)
            if update.greedy_policy is not update.policy:
                self.policy = make_policy(update.greedy_policy, self.session, normaliser)
            self._acts_in_numpy = program_of(self.policy) is not None
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
            fetch=self._acting_variables,
            normaliser=self.memory.observations,
        )

    def build_update(self) -> Update:
        """Build the networks that the options describe, in the default graph, and return their update."""
        return update_of(self.config).build(self.config, self._learned_spaces)

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
            UsageError: if the observation has another shape, holds NaN, or is so large that the layers overflow.
        """
        self.check_usable()
        deterministic = validate_bool(deterministic, "deterministic")
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
        elif deterministic and self._acts_in_numpy:  # needs no lock
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

    def _native(self, policy: Any, box: BoxActions | None) -> NativePolicy | None:
        if not self.config.jit or self.config.compiler == "xla":
            return None
        try:
            return make_native_policy(policy, self.observation_space.shape, box)
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

    @exclusive
    def export(
        self, path: str | Path, format: str = "numpy", quantize: str | None = None, name: str = "policy"
    ) -> Path:
        """Write the policy as files: observations in, actions in env units out.

        ``"numpy"`` needs this package but not TensorFlow to act; the other formats act without this package.

        The files are first compared with the agent: if their actions differ by more than 1e-5 of the actions'
        half-ranges and what float32 rounds of the bounds, they are deleted. docs/export.md shows how each format is
        loaded.

        Args:
            path: a directory for ``"numpy"``, ``"savedmodel"`` and ``"c"``, a file for ``"tflite"`` and ``"onnx"``. It
                must be a new path, an empty directory, or an earlier exported policy, which is replaced.
            format: ``"numpy"`` (for :func:`ddpg.load_policy`), ``"savedmodel"``, ``"tflite"``, ``"onnx"`` or ``"c"``.
            quantize: ``"int8"``: with format ``"c"``, store each weight in one byte; the actions differ slightly.
            name: with format ``"c"``, a C identifier that files, functions and, in capitals, macros begin with, such as
                ``walk.h``, ``walk_act`` and ``WALK_ACTION_SIZE``: two policies in one program need two names.

        Returns:
            The path.

        Raises:
            UsageError: if the format is unknown, ``name`` is none for C, ``path`` holds something else, the format
                cannot express the network, or a package is missing. Nothing is written then.
        """
        kind = validate_text(format, "format", "the name of a format")
        export(validate_path(path), kind, ActingPolicy.of(self), quantize, name)
        return Path(path)

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

    # -- description and checks ------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Return one line: spaces, networks, steps and updates so far."""
        spaces_text = f"{_format_space(self.observation_space)} -> {_format_space(self.action_space)}"
        own = " and ".join(self.config.own_networks)
        layers = f"{own} of its own" if own else f"hidden layers of {'-'.join(map(str, self.config.hidden))}"
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

    def check_learning(self, total_timesteps: int) -> None:
        """Check that learning is possible, before anything is stepped or written.

        Raises:
            UsageError: if there is no environment, ``total_timesteps`` < 1, the transitions do not fit into memory, or
                ``step_timeout`` is set for environments in this process.
        """
        if self.env is None:
            raise UsageError("this agent was made from spaces; give it an environment, or use observe() and update()")
        rows = len(self.replay) + validate_int(total_timesteps, "total_timesteps", at_least=1)
        resource_limits.check_memory(self.config, (self.observation_space, self.action_space), rows)
        check_timeout(self.env, self.config.step_timeout)


def _format_space(space: gym.Space) -> str:
    return f"Box{space.shape}" if isinstance(space, gym.spaces.Box) else str(space)


def _with_networks(config: AgentConfig, networks: Mapping[str, Any]) -> AgentConfig:
    """Return ``config`` with the networks that the caller passed as keyword arguments.

    Raises:
        UsageError: if one of them is not a network, or ``config`` holds a different one.
    """
    given = {name: network for name, network in networks.items() if network is not None}
    for name, network in given.items():
        before = getattr(config, name)
        if before is not None and before is not network:
            raise UsageError(f"{name} is in the configuration, and a different one is an argument; give one of the two")
    return config.replace(**given) if given else config


def _with_default_gamma(config: AgentConfig, env: Any) -> AgentConfig:
    """Return ``config``, with γ = 1 − 5/T clipped to [0.95, 0.995] if it has none; T is the steps of an episode.

    The rule of Hansen, Su & Wang 2024 (TD-MPC2, arXiv 2310.16828, appendix): the horizon 1/(1 − γ) is a fifth of T.

    Raises:
        UsageError: if ``config`` has no γ and the environment no ``max_episode_steps``.
    """
    if config.gamma is not None:
        return config
    steps = getattr(_env_spec(env), "max_episode_steps", None)
    if not steps:
        raise UsageError(
            "gamma=none is taken from the environment's max_episode_steps, which it does not have; give gamma a number"
        )
    return config.replace(gamma=min(max(1 - 5 / steps, 0.95), 0.995))


def _env_spec(env: Any) -> Any:
    """Return the environment's ``spec``; for a vector that has none, the ``spec`` of its first environment.

    Raises:
        UsageError: if the worker processes of a vector cannot send it.
    """
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
