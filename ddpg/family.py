"""Options that DDPG's descendants brought, by what they are about; off by default, and then costing nothing."""

import dataclasses
import functools
import math

from ddpg.options import Options, option

ACTIVATIONS = ("relu", "tanh", "elu", "selu", "leaky_relu", "sigmoid", "softplus", "softsign", "linear")
OUTPUT_INITS = ("small", "fan_in")
RENORMS = ("renorm", "renorm_soft")
NORMS = ("batch", "layer", *RENORMS)

_targets = functools.partial(option, group="targets")
_critics = functools.partial(option, group="critics")


@dataclasses.dataclass(frozen=True)
class TD3Options(Options):
    """What TD3 adds to DDPG (Fujimoto et al. 2018): :mod:`ddpg.updates.td3`."""

    n_critics: int = _critics(1, "critics, of whose targets the least value counts (TD3: 2)", at_most=32)
    policy_delay: int = _targets(1, "updates of the critics for one of the actor and of all targets (TD3: 2)")
    target_policy_noise: float = _targets(
        0.0, "deviation of the noise on the target's action, in half-ranges of the action box (TD3: 0.2)"
    )
    target_noise_clip: float = _targets(0.5, "largest magnitude of that noise, in half-ranges")

    def __post_init__(self):
        super().__post_init__()
        for name in ("n_critics", "policy_delay"):
            self._check(getattr(self, name) >= 1, name, "at least 1")
        self._check(0 <= self.target_policy_noise < math.inf, "target_policy_noise", "a finite number >= 0")
        self._check_positive("target_noise_clip")


@dataclasses.dataclass(frozen=True)
class CriticOptions(Options):
    """What a critic is, apart from the actor: :mod:`ddpg.networks.categorical` and its norm and decay."""

    critic: str = _critics(
        "scalar", "categorical: Q as the mean of a distribution, learned by cross-entropy", ("scalar", "categorical")
    )
    atoms: int = _critics(101, "categorical: values that the distribution is over", at_most=2**16)
    v_min: float = _critics(-10.0, "categorical: least value of Q")
    v_max: float = _critics(10.0, "categorical: largest value of Q")
    target_spread: float = _critics(
        0.0, "categorical: standard deviation of the target, in distances between values (HL-Gauss: 0.75); 0: two-hot"
    )
    critic_norm: str | None = _critics(
        "same", "normalisation of the critics' hidden layers: the same as norm's, or another", ("same", *NORMS)
    )
    critic_l2: float = _critics(0.0, "decay of the critics' weights, as an L2 term of their loss (the paper's: 1e-2)")

    def __post_init__(self):
        super().__post_init__()
        self._check(self.atoms >= 2, "atoms", "at least 2")
        self._check(-math.inf < self.v_min < self.v_max < math.inf, "v_min", f"finite and below v_max={self.v_max!r}")
        self._check(0 <= self.target_spread < math.inf, "target_spread", "a finite number >= 0")
        self._check(0 <= self.critic_l2 < math.inf, "critic_l2", "a finite number >= 0")
