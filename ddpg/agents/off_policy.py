"""The base class of DDPG and DQN: an agent that learns in an environment, and is saved, loaded and exported."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym

from ddpg.agents import resource_limits
from ddpg.agents.base import Agent
from ddpg.agents.callbacks import Callback, CallbackList, ProgressBar, as_callbacks
from ddpg.agents.learn_loop import LearnLoop
from ddpg.agents.tf_agent import check_variables, exclusive
from ddpg.algorithms.registry import ALGORITHMS, algorithm_named, algorithm_of
from ddpg.checkpoints import checkpoint
from ddpg.checkpoints.space_json import describe_space, restore_space
from ddpg.config.algorithm_options import NETWORKS, AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.name_hints import LEARN, refuse_unknown
from ddpg.errors import UsageError, brief
from ddpg.exports.export import export
from ddpg.exports.policy_graph import ActingPolicy
from ddpg.interaction.env_calls import check_timeout
from ddpg.interaction.spaces import algorithm_for, same_space, spaces_of
from ddpg.interaction.validation import validate_bool, validate_int, validate_path, validate_text

Self = TypeVar("Self", bound="OffPolicyAgent")


class OffPolicyAgent(Agent):
    """An agent that learns in an environment; ``loop`` is the state that :meth:`learn` keeps between calls."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
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

    def check_learning(self, total_timesteps: int) -> None:
        """Check that learning is possible, before anything is stepped or written.

        Raises:
            UsageError: if there is no environment, ``total_timesteps`` < 1, the transitions do not fit into memory, or
                ``step_timeout`` is set for environments in this process.
        """
        if self.env is None:
            raise UsageError("this agent was made from spaces; give it an environment, or use observe() and update()")
        goal = self.num_timesteps + validate_int(total_timesteps, "total_timesteps", at_least=1)
        rows = len(self.replay) + self.loop.stored_steps(self.num_timesteps, goal)
        resource_limits.check_memory(self.config, (self.observation_space, self.action_space), rows)
        check_timeout(self.env, self.config.step_timeout)

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

    # -- saving and exporting -------------------------------------------------------------------------

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
        return checkpoint.write(validate_path(path), *capture(self, validate_bool(replay, "replay")))

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
        spaces = fitting_env(manifest, env)
        if config is None:
            config = config_of(manifest, networks)
            resource_limits.check_options(found, config, spaces_of(spaces), groups.get("variables", {}))
        try:
            agent = cls(spaces, config, manifest["seed"], **networks)
        except MemoryError as error:
            raise UsageError(f"checkpoint {found} asks for more memory than there is ({error})") from None
        restore(agent, manifest, groups)
        return agent

    @exclusive
    def export(
        self, path: str | Path, format: str = "numpy", quantize: str | None = None, name: str = "policy"
    ) -> Path:
        """Write the policy as files: observations in, actions in env units out.

        All formats act without this package, ``"numpy"`` by the script ``act.py`` beside the weights.

        The files are first compared with the agent: if their actions differ by more than 1e-5 of the actions'
        half-ranges and what float32 rounds of the bounds, they are deleted. docs/export.md shows how each format is
        loaded.

        Args:
            path: a new path, or an earlier exported policy, which is replaced. For ``"numpy"``, ``"savedmodel"`` and
                ``"c"`` it is a directory, which may also be an empty one; for ``"tflite"`` and ``"onnx"`` a file. Only
                theirs may end in ``.tflite`` and ``.onnx``.
            format: ``"numpy"`` (for :func:`ddpg.load_policy`), ``"savedmodel"``, ``"tflite"``, ``"onnx"`` or ``"c"``.
            quantize: ``"int8"``: with format ``"c"``, store each weight in one byte; the actions differ slightly.
            name: with format ``"c"``, a C identifier that files, functions and, in capitals, macros begin with, such as
                ``walk.h``, ``walk_act`` and ``WALK_ACTION_SIZE``: two policies in one program need two names that
                differ in more than capitals.

        Returns:
            The path.

        Raises:
            UsageError: if the format is unknown, ``name`` is none for C, ``path`` holds something else, the format
                cannot express the network, or a package is missing. Nothing is written then.
        """
        kind = validate_text(format, "format", "the name of a format")
        validate_path(path)
        export(path, kind, ActingPolicy.of(self), quantize, name)
        return Path(path)


def capture(agent: OffPolicyAgent, replay: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
    """Return the manifest and the arrays of a checkpoint: everything that learning reads or writes.

    Learning rates are options, so they are not among the variables. The environment's state is not included: learning
    continues with a new episode.
    """
    groups = {"variables": agent.get_parameters()}
    if replay:
        groups["replay"] = agent.memory.sampler.state()
    if statistics := agent.memory.statistics():
        groups["statistics"] = statistics
    if noise := agent.behaviour.state():
        groups["noise"] = noise
    manifest = {
        "kind": type(agent).__name__,
        "algorithm": algorithm_of(agent.config),
        "config": agent.config.to_json(),
        "observation_space": describe_space(agent.observation_space),
        "action_space": describe_space(agent.action_space),
        "seed": agent.seed,
        "num_timesteps": agent.num_timesteps,
        "own_steps": agent.replay.own,
        "num_updates": agent.num_updates,
        "owed_updates": agent.loop.owed_updates,
        "largest_reward": agent.largest_reward,
        "random_states": {name: rng.bit_generator.state for name, rng in agent.generators.items()},
    }
    return manifest, groups


def restore(agent: OffPolicyAgent, manifest: dict[str, Any], groups: checkpoint.Groups) -> None:
    """Restore a captured state into an agent that was just made with the same options.

    Raises:
        UsageError: if its variables or random generators differ from the checkpoint's; nothing is set then.
    """
    there, here = manifest["config"], agent.config.to_json()
    changed = [name for name in there.keys() & here.keys() if there[name] != here[name]]
    differences = [f"{name} was {there[name]!r} and is {here[name]!r}" for name in sorted(changed)]
    advice = "; ".join(["pass the configuration and networks it was made with", *differences])
    check_variables(agent.global_variables, groups.get("variables", {}), "the checkpoint", advice)
    if agent.generators.keys() != manifest["random_states"].keys():
        raise UsageError(
            f"the checkpoint has random states of {sorted(manifest['random_states'])}, expected those of "
            f"{sorted(agent.generators)}; take another checkpoint"
        )
    if "replay" in groups:
        agent.memory.sampler.restore(groups["replay"])
    agent.memory.restore_statistics(groups.get("statistics", {}))
    agent.assign(groups["variables"])
    agent.behaviour.restore(groups.get("noise", {}))
    agent.num_timesteps = manifest["num_timesteps"]
    agent.replay.own = manifest.get("own_steps", agent.replay.own)  # not saved by earlier versions
    agent.updater.num_updates = manifest["num_updates"]
    agent.loop.owed_updates = manifest["owed_updates"]
    agent.largest_reward = manifest["largest_reward"]
    for name, generator in agent.generators.items():
        generator.bit_generator.state = manifest["random_states"][name]


def config_of(manifest: dict[str, Any], networks: Mapping[str, Any]) -> AgentConfig:
    """Return the options that were saved, with the user's own ``networks``, passed again by option name.

    Raises:
        UsageError: if this version does not know the algorithm, an option was a callable (which no file can hold) and
            is not passed again, or an option names user code that is not allowed to be imported.
    """
    again = {name: network for name, network in networks.items() if name in NETWORKS and network is not None}
    return algorithm_named(manifest["algorithm"]).config.from_json(manifest["config"] | again)


def fitting_env(manifest: dict[str, Any], env: Any) -> Any:
    """Return ``env``, or for ``None`` the saved spaces; raise UsageError if its spaces are not the saved ones."""
    saved = tuple(restore_space(manifest[name]) for name in ("observation_space", "action_space"))
    if env is None:
        return saved
    for name, given, expected in zip(("observation", "action"), spaces_of(env), saved, strict=True):
        if not same_space(given, expected):
            raise UsageError(
                f"the environment's {name} space is {given}, the checkpoint's is {expected}; "
                "load it with the environment it was trained in"
            )
    return env


def agent_for(action_space: gym.Space, config: AgentConfig | None = None) -> type[OffPolicyAgent]:
    """Return the agent class for an action space, or for the options of a user's own algorithm.

    Raises:
        UsageError: if no algorithm has such options.
    """
    own = config is not None and type(config) not in (DDPGConfig, DQNConfig)
    name = algorithm_of(config) if config is not None and own else algorithm_for(action_space)
    found = _agent_class(ALGORITHMS[name].agent)
    if own and not isinstance(config, found.config_class):
        raise UsageError(
            f"the registry names the agent {found.__name__} for {name}, and {type(config).__name__} is no "
            f"{found.config_class.__name__}; give Algorithm the right agent as its third argument, for options derived "
            "from DQNConfig 'ddpg.agents.dqn:DQN'"
        )
    return found


def load_agent(path: str | Path, env: Any = None, which: str = "latest", **options: Any) -> OffPolicyAgent:
    """Return the agent of a checkpoint or a run directory, of the class that saved it.

    Arguments are as for :meth:`OffPolicyAgent.load`; ``options`` are ``config`` and the user's own networks.

    Raises:
        UsageError: if there is no checkpoint, it is damaged, no algorithm has its agent's class, or it names user code
            that is not allowed to be imported (:func:`ddpg.config.imports.imports_allowed`).
    """
    path = checkpoint.find(path, which)
    manifest = checkpoint.read(path, only=set())[0]
    if options.get("config") is None:
        algorithm_named(manifest["algorithm"])  # also registers its agent class
    kind = manifest["kind"]
    agents = {algorithm.agent.rpartition(":")[2]: algorithm.agent for algorithm in ALGORITHMS.values()}
    if kind not in agents:
        raise UsageError(f"{path} is a checkpoint of {kind!r}; this version knows {', '.join(agents)}")
    return _agent_class(agents[kind]).load(path, env, **options)


def _agent_class(name: str) -> type[OffPolicyAgent]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        found = error
    if not (inspect.isclass(found) and issubclass(found, OffPolicyAgent)):
        raise UsageError(
            f"the registry names the agent {brief(name)} for an algorithm ({brief(found)}); expected 'module:Class', a "
            "class derived from DDPG or DQN"
        )
    return found
