"""The options of each algorithm, declared once: keyword arguments in Python, keys in TOML files, command-line flags."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpg.config.imports import name_of
from ddpg.config.options import Options, document_options, option
from ddpg.errors import UsageError, brief
from ddpg.policies.noise import NOISES, Noise, make_noise
from ddpg.policies.schedules import SCHEDULES
from ddpg.replay.priorities import KINDS

ACTIVATIONS = ("relu", "tanh", "elu", "selu", "leaky_relu", "gelu", "silu", "sigmoid", "softplus", "softsign", "linear")
OUTPUT_INITS = ("small", "fan_in")
RENORMS = ("renorm", "renorm_soft", "renorm_preactivation")
SAMPLE_NORMS = ("layer", "rms")  # they normalise each sample by itself: no moving statistics, no training mode
NORMS = ("batch", *SAMPLE_NORMS, *RENORMS)
NETWORKS = ("actor_network", "critic_network", "q_network")  # options that take hidden layers of the user's own

_networks = functools.partial(option, group="networks")
_critics = functools.partial(option, group="critics")
_learning = functools.partial(option, group="learning")
_targets = functools.partial(option, group="targets")
_replay = functools.partial(option, group="memory")
_exploration = functools.partial(option, group="exploration")
_gradients = functools.partial(option, group="gradient paths")
_running = functools.partial(option, group="computing")


@dataclasses.dataclass(frozen=True)
class TD3Options(Options):
    """Options that TD3 adds to DDPG (Fujimoto et al. 2018): :mod:`ddpg.algorithms.td3`."""

    n_critics: int = _critics(1, "number of critics (TD3: 2)", at_least=1, at_most=32)
    target_critics: str = _critics(
        "min", "with several critics, y takes the minimum of their target values (TD3), or the mean", ("min", "mean")
    )
    policy_delay: int = _targets(
        1, "critic updates per update of the actor and of all target networks (TD3: 2)", at_least=1
    )
    target_policy_noise: float = _targets(
        0.0, "standard deviation of the noise on the target action, in half-ranges of the action box (TD3: 0.2)"
    )
    target_noise_clip: float = _targets(0.5, "clipping limit of that noise, in half-ranges")

    def __post_init__(self):
        super().__post_init__()
        self._check_not_negative("target_policy_noise")
        self._check_positive("target_noise_clip")


_FINEST = 64 * 2.0**-23  # smallest distance of two values of a support, as a share of the largest: 64 steps of float32


@dataclasses.dataclass(frozen=True)
class CriticOptions(Options):
    """Options of the critics alone: kind, layers, normalisation and weight decay; see :mod:`ddpg.networks.critic`."""

    critic: str = _critics(
        "scalar",
        "output of the critic; scalar: Q; categorical: a distribution whose mean is Q, trained by cross-entropy; "
        "distributional: the distribution of the return (C51)",
        ("scalar", "categorical", "distributional"),
    )
    atoms: int = _critics(
        101, "categorical, distributional: number of values in the support", at_least=2, at_most=2**16
    )
    v_min: float = _critics(-10.0, "categorical, distributional: smallest value")
    v_max: float = _critics(10.0, "categorical, distributional: largest value")
    target_spread: float = _critics(
        0.0, "categorical: standard deviation of the target, in distances between values (HL-Gauss: 0.75); 0: two-hot"
    )
    critic_hidden: tuple[int, ...] | None = _critics(
        None, "units of the critics' hidden layers; none: as hidden", max_items=64
    )
    critic_norm: str | None = _critics(
        "same", "normalisation of the critics' hidden layers; same: as norm", ("same", *NORMS)
    )
    critic_l2: float = _critics(0.0, "L2 penalty on the critics' weights, added to their loss (DDPG's paper: 1e-2)")

    def __post_init__(self):
        super().__post_init__()
        self._check_layers("critic_hidden")
        self._check(-math.inf < self.v_min < self.v_max < math.inf, "v_min", f"finite and below v_max={self.v_max!r}")
        finest = _FINEST * max(abs(self.v_min), abs(self.v_max))
        self._check(
            (self.v_max - self.v_min) / (self.atoms - 1) >= finest,
            "atoms",
            f"fewer, or v_min={self.v_min!r} and v_max={self.v_max!r} farther apart or nearer to 0: float32 does not "
            "tell neighbouring values apart",
        )
        spread = self.target_spread
        self._check(spread == 0 or 1e-3 <= spread < math.inf, "target_spread", "0, or a finite number >= 0.001")
        self._check_not_negative("critic_l2")


if TYPE_CHECKING:
    from ddpg.gradients.bounding import Bounding
else:
    Bounding = tuple  # its base class; importing its module would import TensorFlow


_TD_TARGETS = ("stop_gradient", "placeholder", "output_delta", "residual_gradient")


@document_options
@dataclasses.dataclass(frozen=True)
class AgentConfig(Options):
    """Options of both DDPG and DQN.

    Every field is a flag of ``ddpg train`` (``--batch-size 64``) and a key of a TOML file
    (``batch_size = 64``). In Python, most fields that take a name also take a callable.

    Raises:
        UsageError: if a value has the wrong type or is outside its range.
    """

    hidden: tuple[int, ...] = _networks((256, 256), "units of the hidden layers", max_items=64)
    activation: str | Callable = _networks("relu", "activation of the hidden layers", ACTIVATIONS)
    norm: str | None = _networks(
        None,
        "normalisation of the hidden layers; rms: layer without the mean; renorm: CrossQ's batch renormalisation; "
        "renorm_soft: the same, but only large inputs are scaled; renorm_preactivation: renorm_soft for inputs, and "
        "hidden layers before their activation",
        NORMS,
    )
    block: str = _networks(
        "plain",
        "residual: SimBa's residual blocks, one per entry of hidden, which sets the width",
        ("plain", "residual"),
    )
    network: str = _networks(
        "mlp", "kind of the hidden layers; conv: two convolutions before them, for images", ("mlp", "conv")
    )
    output_init: str = _networks(
        "small",
        "initialisation of output layers; small: U(±3e-3), as in DDPG's paper; fan_in: as hidden layers",
        OUTPUT_INITS,
    )
    weight_projection: bool = _networks(
        False, "scale the weights into each hidden unit to length 1 after every step, as CrossQ+WN and SimbaV2 do"
    )
    affine_projection: bool = _networks(
        False,
        "scale gains and offsets of each norm of d features together to length √d after every step, as FlashSAC does",
    )
    gamma: float | None = _learning(
        0.99, "discount factor; none: 1 - 5/T clipped to [0.95, 0.995], where T is the environment's time limit"
    )
    tau: float = _targets(0.005, "step size of the target networks' moving average, in (0, 1]")
    learning_rate_schedule: str | Callable = _learning(
        "constant",
        "learning rates over a run; linear: down to 0 at the end; cooldown: the same within the last fifth; "
        "linear_to_tenth: down to a tenth at the end",
        [*SCHEDULES],
        arguments="left",
    )
    batch_size: int = _learning(256, "transitions in a minibatch", at_least=1, at_most=2**20)
    buffer_size: int = _replay(1_000_000, "capacity of the replay buffer, in transitions", at_least=1)
    learning_starts: int = _learning(1_000, "steps with uniformly random actions before the first update", at_least=0)
    updates_per_step: float = _learning(1.0, "gradient updates per environment step")
    updates_per_call: int = _running(32, "gradient updates per compiled call", at_least=1, at_most=2**16)
    overlap: bool = _running(False, "run updates while the environments step, on transitions stored before that step")
    exploration_steps: int = _exploration(
        10_000, "environment steps over which the share of random actions falls from initial to final", at_least=1
    )
    td_target: str | Callable = _gradients(
        "stop_gradient",
        "how the target is kept out of the critic's gradient",
        _TD_TARGETS,
        arguments="q, target, variables",
    )
    clip_delta: float | None = _gradients(None, "output_delta: clip target minus prediction to this magnitude, or none")
    rescale_rewards: bool = _learning(False, "divide rewards by the largest one seen (at least 1), as DQN 3.0 does")
    target: str = _targets(
        "ema",
        "networks that compute y; ema: moving averages; online: the networks themselves; none: CrossQ's joint pass; "
        "joint_ema: a joint pass through the critics' moving averages",
        ("ema", "online", "none", "joint_ema"),
    )
    critic_loss: str | Callable = _learning(
        "mse", "loss of the critic or Q-network; huber: threshold 1", ("mse", "huber"), arguments="q, target"
    )
    optimizer: str | Callable = _learning(
        "adam", "optimizer of every network; momentum: 0.9", ("adam", "rmsprop", "sgd", "momentum")
    )
    adam_beta1: float = _learning(0.9, "adam: decay rate of the first moment, in [0, 1)")
    weight_decay: float = _learning(0.0, "adam: decoupled decay of the layers' weights in every step (AdamW); 0: none")
    max_gradient_norm: float | None = _learning(
        None, "clip the global norm of each network's gradient to this, or none"
    )
    jit: bool = _running(True, "compile the updates")
    compiler: str = _running(
        "auto",
        "which compiler; native: our own, for CPUs; auto: native where it supports the update, else xla, or none on a "
        "CPU for convolutions",
        ("auto", "native", "xla"),
    )
    precision: str = _running(
        "float32",
        "number format of the inputs of a native update's matrix products; bfloat16x3: two bfloat16 numbers for each; "
        "auto: bfloat16x3 with AMX, bfloat16 where else it is faster",
        ("float32", "bfloat16", "bfloat16x3", "auto"),
    )
    threads: int | None = _running(
        None, "threads of a native update; none: chosen by its size, at most the cores available to this process"
    )
    n_steps: int = _targets(
        1,
        "rewards in a return before the target bootstraps; fewer where the episode ends earlier",
        at_least=1,
        at_most=1000,
    )
    prioritised: str | None = _replay(
        None, "sample transitions by TD error; lap: with the Huber loss; none: uniformly", KINDS
    )
    priority_exponent: float | None = _replay(
        None, "exponent of the priorities; 0: uniform; none: 0.6 for proportional, 0.4 for lap"
    )
    priority_correction: float = _replay(
        0.4, "proportional: exponent of the importance weights at the start, in [0, 1]"
    )
    priority_correction_steps: int = _replay(
        100_000, "proportional: environment steps until that exponent is 1", at_least=1
    )
    dataset_share: float | None = _replay(
        None,
        "share of each minibatch drawn from recorded transitions, such as a data set (RLPD: 0.5); none: uniform",
    )
    hindsight: int = _replay(
        0,
        "goal environments: share k/(k+1) of samples whose goal is replaced by one reached later (HER's k)",
        at_least=0,
        at_most=1000,
    )
    random_shift: int = _replay(
        0,
        "images: shift each one in a minibatch by up to this many pixels, at random, in both directions (DrQ: 4); 0: "
        "none",
        at_least=0,
        at_most=1000,
    )
    normalize_observations: bool = _learning(
        False, "normalise observations by their running mean and standard deviation"
    )
    normalize_rewards: bool = _learning(False, "divide rewards by the running scale of the discounted return")
    on_bad_transition: str = _running(
        "raise",
        "response to NaN or another invalid value from an environment; drop: abandon the episode",
        ("raise", "drop"),
    )
    step_timeout: float | None = _running(
        None,
        "time limit, in seconds, of a training step of environments in other processes, or none; evaluations step an "
        "environment in this process, which cannot be ended",
    )

    def __post_init__(self):
        if isinstance(self.network, str) and ":" in self.network:
            own = " and ".join(name for name in NETWORKS if hasattr(self, name))
            raise UsageError(f"network={brief(self.network)} must be 'mlp' or 'conv'; layers of your own are {own}")
        super().__post_init__()
        self._check_layers("hidden")
        self._check_fractions("gamma")
        self._check(0 < self.tau <= 1, "tau", "in (0, 1]")
        self._check_positive("updates_per_step", "step_timeout", "max_gradient_norm", "clip_delta")
        self._check(self.updates_per_step <= 10_000, "updates_per_step", "at most 10000")
        self._check(self.threads is None or 1 <= self.threads <= 256, "threads", "1 to 256, or none")
        self._check(0 <= self.adam_beta1 <= 1 - 2**-24, "adam_beta1", "in [0, 1), also as float32")
        self._check_not_negative("weight_decay")
        for name, default in (("adam_beta1", 0.9), ("weight_decay", 0.0)):
            if getattr(self, name) != default and self.optimizer != "adam":
                raise UsageError(f"{name}={getattr(self, name)} needs optimizer='adam', got {name_of(self.optimizer)}")
        if self.compiler == "native" and not self.jit:
            raise UsageError("compiler='native' compiles the updates, and jit=False does not; set one of the two")
        if self.precision != "float32" and (self.compiler == "xla" or not self.jit):
            raise UsageError(
                f"precision={self.precision!r} is for compiler='native' alone; leave compiler at 'auto' and jit at True"
            )
        self._check_memory()
        if self.affine_projection and not self.affine_projected:
            raise UsageError(
                "affine_projection scales the gains of normalisation layers, and with norm=None and block='plain' no "
                "network has any; set norm or block='residual'"
            )
        if self.td_target == "placeholder" and (self.jit or self.updates_per_call != 1):
            raise UsageError(
                "td_target='placeholder' cannot be fused: its target is fed from a separate session run in the "
                "middle of every update; set jit=False and updates_per_call=1 (--no-jit --updates-per-call 1), or "
                "use 'stop_gradient', whose gradient is the same"
            )

    def _check_memory(self) -> None:
        self._check_not_negative("priority_exponent")
        self._check_fractions("priority_correction", "dataset_share")
        if self.priority_exponent is not None and self.prioritised is None:
            raise UsageError(
                f"priority_exponent={self.priority_exponent} needs priorities; set prioritised to one of {KINDS}"
            )
        if self.prioritised == "lap" and self.critic_loss != "mse":
            raise UsageError(
                f"prioritised='lap' includes the Huber loss; leave critic_loss={name_of(self.critic_loss)} at 'mse'"
            )
        if self.prioritised == "lap" and self.clip_delta is not None:
            raise UsageError(
                f"clip_delta={self.clip_delta} would clip a second time: prioritised='lap' includes the Huber loss "
                "with threshold 1; set one of the two"
            )
        if self.dataset_share is not None and self.prioritised is not None:
            raise UsageError(
                f"dataset_share={self.dataset_share} draws by source and prioritised={self.prioritised!r} by TD error; "
                "set one of the two"
            )
        if self.hindsight and (self.n_steps > 1 or self.prioritised is not None):
            raise UsageError(
                f"hindsight={self.hindsight} relabels single steps that are sampled uniformly; set n_steps=1 and "
                "prioritised=None with it"
            )
        if self.hindsight and self.random_shift:
            raise UsageError(
                f"hindsight={self.hindsight} replaces goals in flat observations, and random_shift={self.random_shift} "
                "moves images; set one of the two"
            )
        if self.normalize_rewards and self.rescale_rewards:
            raise UsageError("normalize_rewards and rescale_rewards both divide rewards; set one of the two")

    @property
    def largest_call(self) -> int:
        """The largest number of updates in a compiled call: ``updates_per_call``, rounded up to those of whole steps.

        Otherwise every call would be followed by a small one: at three updates a step 33 are due at a time, not 32.
        """
        per_step = min(math.ceil(self.updates_per_step), self.updates_per_call)
        return -(-self.updates_per_call // per_step) * per_step

    @property
    def joint_pass(self) -> bool:
        """Whether (s, a) and (s′, a′) go through the critics in one forward pass."""
        return self.target in ("none", "joint_ema")

    @property
    def own_networks(self) -> list[str]:
        """The names of the options that hold the user's own networks, whose layers ``hidden`` does not describe."""
        return [name for name in NETWORKS if getattr(self, name, None) is not None]

    @property
    def described_layers(self) -> list[tuple[str, tuple[int, ...]]]:
        """For each network whose hidden layers options describe: the option that sets their units, and these."""
        described = [name for name in NETWORKS if getattr(self, name, self) is None]
        return [(self._option_of_layers(name), getattr(self, self._option_of_layers(name))) for name in described]

    def _option_of_layers(self, network: str) -> str:
        """Return the option that sets the units of a network's layers (:data:`NETWORKS`)."""
        return "hidden"

    @property
    def affine_projected(self) -> list[str]:
        """The networks to which ``affine_projection`` applies: those with norms, and those with the user's own layers.

        Each is named by the option that may replace its layers.
        """
        if not self.affine_projection:
            return []
        residual, own = self.block == "residual", self.own_networks
        return [name for name in NETWORKS if residual or name in own or self._norm_of(name) is not None]

    def _norm_of(self, network: str) -> str | None:
        """Return the norm of a network's hidden layers, by the option that may replace them (:data:`NETWORKS`)."""
        return self.norm

    @property
    def discount(self) -> float:
        """γ as a number.

        Raises:
            UsageError: if ``gamma`` is None and no agent has derived it from an environment yet.
        """
        if self.gamma is None:
            raise UsageError("gamma=none is derived from an agent's environment; without one, set a number")
        return self.gamma


@document_options
@dataclasses.dataclass(frozen=True)
class DDPGConfig(TD3Options, CriticOptions, AgentConfig):
    """Options of :class:`ddpg.DDPG`. Actions, their noise and their gradients are in units of [-1, 1].

    ``noise`` also takes an object, or a function that returns one: see
    :class:`ddpg.policies.noise.Noise`.
    """

    actor_average: int = _learning(
        0,
        "evaluate and export a moving average of the actor's weights, over about this many of its steps; 0: the actor",
        at_least=0,
        at_most=2**31,
    )
    actor_network: str | Callable | None = _networks(
        None,
        "a function of your own that makes the actor's hidden layers; none: made by network, hidden, activation, norm "
        "and block",
        arguments="states",
        metavar="MODULE:NAME",
    )
    critic_network: str | Callable | None = _networks(
        None,
        "a function of your own that makes the critics' hidden layers; none: made by network, critic_hidden, "
        "activation, critic_norm, block and action_layer",
        arguments="states, actions",
        metavar="MODULE:NAME",
    )
    shared_encoder: bool = _networks(
        False, "images: the actor reads the critic's convolutions, which the critic's loss alone trains, as in DrQ-v2"
    )
    action_layer: int = _networks(0, "hidden layer of the critic that the action enters; DDPG's paper: 1", at_least=0)
    pre_activation_penalty: float = _gradients(
        0.0, "squashing: weight of the mean square of the inputs of tanh in the actor's loss (MR.Q: 1e-5)"
    )
    actor_learning_rate: float = _learning(1e-3, "learning rate of the actor")
    critic_learning_rate: float = _learning(1e-3, "learning rate of the critics")
    actor_learning_rate_schedule: str | Callable | None = _learning(
        None, "schedule of the actor's rate; none: learning_rate_schedule", [*SCHEDULES], arguments="left"
    )
    critic_learning_rate_schedule: str | Callable | None = _learning(
        None, "schedule of the critics' rate; none: learning_rate_schedule", [*SCHEDULES], arguments="left"
    )
    noise: str | Noise | Callable = _exploration(
        "gaussian",
        "exploration noise; repeated: Gaussian noise that lasts for 1 to 16 steps, at random; pink: its power falls as "
        "1/frequency",
        tuple(NOISES),
    )
    noise_scale: float = _exploration(0.1, "scale of the noise, in half-ranges of the action box")
    noise_schedule: str = _exploration(
        "constant", "linear: from noise_scale to noise_final in exploration_steps", ("constant", "linear")
    )
    noise_final: float = _exploration(0.0, "linear schedule: final scale of the noise")
    noise_theta: float = _exploration(0.15, "Ornstein-Uhlenbeck: pull towards 0 per unit of time")
    noise_dt: float = _exploration(1.0, "Ornstein-Uhlenbeck: time per step")
    parameter_noise: float = _exploration(
        0.0,
        "noise on the actor's weights, scaled so that actions change by this many half-ranges of their box (root mean "
        "square); 0: none. With noise_scale=0 actions have no noise of their own",
    )
    exploration_initial: float | None = _exploration(
        None, "initial share of uniformly random actions; none: 1 if actions are parameterised, else 0"
    )
    exploration_final: float | None = _exploration(
        None, "final share of uniformly random actions; none: 0.1 if actions are parameterised, else 0"
    )
    bounding: str | Bounding = _gradients(
        "squashing", "how actions stay within their box", ("squashing", "inverting", "zeroing")
    )
    policy_gradient: str | Callable = _gradients(
        "chain_rule",
        "how the actor's gradient is formed",
        ("chain_rule", "direct", "surrogate"),
        arguments="actor, critic, states[, batch]",
    )
    bc_alpha: float = _gradients(
        0.0, "TD3+BC: weight of Q against a term that imitates replayed actions (paper: 2.5); 0: off"
    )
    bc_only: bool = _gradients(False, "behaviour cloning alone: the actor imitates replayed actions and ignores Q")
    bc_final: float = _gradients(
        1.0, "TD3+BC: weight of the cloning term after bc_steps steps in the environment, falling from 1; 1: constant"
    )
    bc_steps: int = _gradients(10_000, "bc_final: the agent's own steps until that weight is reached", at_least=1)
    action_gradient_clip: float | None = _gradients(
        None, "clip the norm of each sample's action gradient to this, or none"
    )

    @property
    def hidden_of_critics(self) -> tuple[int, ...]:
        """``critic_hidden``, or ``hidden`` if ``critic_hidden`` is None."""
        return self.hidden if self.critic_hidden is None else self.critic_hidden

    @property
    def norm_of_critics(self) -> str | None:
        """``critic_norm``, or ``norm`` if ``critic_norm`` is ``"same"``."""
        return self.norm if self.critic_norm == "same" else self.critic_norm

    def _option_of_layers(self, network: str) -> str:
        """See :meth:`AgentConfig._option_of_layers`."""
        return "critic_hidden" if network == "critic_network" and self.critic_hidden is not None else "hidden"

    def _norm_of(self, network: str) -> str | None:
        """See :meth:`AgentConfig._norm_of`."""
        return self.norm_of_critics if network == "critic_network" else self.norm

    def __post_init__(self):
        super().__post_init__()
        self._check_positive("actor_learning_rate", "critic_learning_rate", "action_gradient_clip")
        if self.joint_pass and self.norm_of_critics not in RENORMS:
            raise UsageError(
                f"target={self.target!r} needs batch renormalisation of the critics, which sees (s, a) and (s', a') at "
                f"once; set critic_norm={' or '.join(map(repr, RENORMS))} with it, or target='online'"
            )
        if self.joint_pass and self.td_target == "residual_gradient":
            raise UsageError(
                f"target={self.target!r} stops y, and td_target='residual_gradient' does not; set one of the two"
            )
        if self.critic != "scalar" and (
            self.critic_loss != "mse" or self.td_target not in ("stop_gradient", "placeholder")
        ):
            raise UsageError(
                f"critic={self.critic!r} has a loss of its own, the cross-entropy with a stopped target, but got "
                f"critic_loss={name_of(self.critic_loss)} and td_target={name_of(self.td_target)}; leave critic_loss "
                "at 'mse' and td_target at 'stop_gradient' or 'placeholder'"
            )
        if self.critic == "distributional" and self.target_spread:
            raise UsageError(
                f"target_spread={self.target_spread} spreads a target that is a number, and that of "
                "critic='distributional' is a distribution; leave it at 0, or set critic='categorical'"
            )
        if self.critic != "scalar" and self.prioritised is not None:
            raise UsageError(
                f"prioritised={self.prioritised!r} weighs TD errors, which critic={self.critic!r} has none of; "
                "set critic='scalar', or prioritised to none"
            )
        self._check_not_negative(
            *("bc_alpha", "noise_scale", "noise_theta", "noise_final", "parameter_noise", "pre_activation_penalty")
        )
        if self.bc_only and self.bc_alpha:
            raise UsageError(
                f"bc_only leaves Q out of the actor's loss, and bc_alpha={self.bc_alpha} weighs it there; set one of "
                "the two"
            )
        self._check(0 < self.bc_final <= 1, "bc_final", "in (0, 1]")
        if self.bc_final != 1 and not self.bc_alpha:
            raise UsageError(
                f"bc_final={self.bc_final} lowers the weight of cloning beside Q, which bc_alpha=0 leaves out; set "
                "bc_alpha, or leave bc_final at 1"
            )
        if self.noise_schedule == "linear" and self.noise_scale == 0:
            raise UsageError("noise_schedule='linear' lowers a noise_scale > 0, got 0; set one of the two")
        if self.noise_schedule == "linear" and self.noise_final > 1e6 * self.noise_scale:
            raise UsageError(
                f"noise_final={self.noise_final} is more than a million times noise_scale={self.noise_scale}; give a "
                "larger noise_scale"
            )
        self._check_positive("noise_dt")
        if isinstance(self.noise, str):  # refuses values that this noise cannot have
            make_noise(self.noise, self.noise_scale, self.noise_theta, self.noise_dt, (1, 1))
        self._check_fractions("exploration_initial", "exploration_final")
        if self.critic_network is None:
            layers, name = len(self.hidden_of_critics), "hidden" if self.critic_hidden is None else "critic_hidden"
            below = f"below {layers}, the number of layers in {name}; with layers of your own give critic_network too"
            self._check(self.action_layer < layers, "action_layer", below)
            if self.action_layer and self.network == "conv":
                raise UsageError(
                    f"action_layer={self.action_layer} is for network='mlp'; with 'conv' actions enter after the "
                    "convolutions; leave it at 0"
                )
            self._check_residual_critics()
        if self.shared_encoder and self.network != "conv" and self.critic_network is None:
            raise UsageError(
                f"shared_encoder shares convolutions, and network={self.network!r} has none; set network='conv', or "
                "give a critic_network that ddpg.conv makes"
            )
        if self.pre_activation_penalty and self.bounding in ("inverting", "zeroing"):
            raise UsageError(
                f"pre_activation_penalty={self.pre_activation_penalty} is for bounding='squashing', and bounding="
                f"{self.bounding!r} has no tanh to saturate; leave it at 0"
            )

    def _check_residual_critics(self) -> None:
        """Check the options of the critics alone; those of all networks are checked where layers are built."""
        if self.block != "residual":
            return
        units = self.critic_hidden
        same = units is None or (len(units) > 1 and len({*units}) == 1)
        expected = "the width of the residual blocks, and it again for every block, such as (512, 512) for one"
        self._check(same, "critic_hidden", expected)
        normed = "'same' or none: block='residual' has layer normalisation of its own"
        self._check(self.critic_norm in ("same", None), "critic_norm", normed)


@document_options
@dataclasses.dataclass(frozen=True)
class DQNConfig(AgentConfig):
    """Options of :class:`ddpg.DQN`."""

    learning_rate: float = _learning(1e-3, "learning rate of the Q-network")
    double_q: bool = _targets(
        False, "the online network chooses the next action, the target network values it (van Hasselt 2016)"
    )
    target_update_interval: int = _targets(
        0, "updates between hard copies to the target network; 0: moving average with tau", at_least=0
    )
    exploration_initial: float = _exploration(1.0, "initial share of random actions")
    exploration_final: float = _exploration(0.05, "final share of random actions")
    q_network: str | Callable | None = _networks(
        None,
        "a function of your own that makes the hidden layers; none: made by network, hidden, activation, norm and "
        "block",
        arguments="states",
        metavar="MODULE:NAME",
    )
    action_mask: bool = _exploration(
        False, "the last numbers of each observation are its action mask, as ActionMask appends it; set by that wrapper"
    )

    def __post_init__(self):
        super().__post_init__()
        self._check_positive("learning_rate")
        if self.action_mask and self.normalize_observations:
            raise UsageError(
                "action_mask reads zeros and ones from the observation, and normalize_observations would change them; "
                "set one of the two"
            )
        if self.action_mask and self.network == "conv":
            raise UsageError(
                "action_mask is at the end of a flat observation, and network='conv' reads images; use 'mlp'"
            )
        if self.joint_pass:
            raise UsageError(
                f"target={self.target!r} passes (s, a) and (s', a') through the critic at once, which DQN cannot; set "
                "'online'"
            )
        if self.target == "online" and self.target_update_interval:
            raise UsageError(
                f"target_update_interval={self.target_update_interval} copies into a target network, and "
                "target='online' has none; set one of the two"
            )
        self._check_fractions("exploration_initial", "exploration_final")


CONFIGS: dict[str, type[AgentConfig]] = {"DDPG": DDPGConfig, "DQN": DQNConfig}
