"""Test cases of the compilers' comparison: random options, shapes and values, and steps that simplify a case."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg import UsageError
from ddpg.config.algorithm_options import CONFIGS, AgentConfig
from ddpg.replay.minibatch import Batch

SIZES = (1, 3, 7, 97, 1000)
SIZE_SHARES = (0.24, 0.32, 0.32, 0.115, 0.005)

# For each option: the probability that it differs from its default, and its other values. DQN has some of them.
OPTIONS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "activation": (
        0.5,
        ("tanh", "elu", "selu", "leaky_relu", "gelu", "silu", "sigmoid", "softplus", "softsign", "linear"),
    ),
    "norm": (0.5, ("layer", "rms", "batch", "renorm", "renorm_soft", "renorm_preactivation")),
    "critic_hidden": (0.2, ((5,), (7, 3), (97, 33))),
    "critic_norm": (0.3, (None, "layer", "rms", "batch", "renorm", "renorm_soft", "renorm_preactivation")),
    "block": (0.2, ("residual",)),
    "output_init": (0.3, ("fan_in",)),
    "gamma": (0.2, (0.0, 1.0)),
    "tau": (0.3, (0.1, 1.0)),
    "td_target": (0.4, ("output_delta", "residual_gradient")),
    "clip_delta": (0.15, (0.1, 1.0)),
    "target": (0.35, ("online", "none", "joint_ema")),
    "critic_loss": (0.2, ("huber",)),
    "optimizer": (0.5, ("rmsprop", "sgd", "momentum")),
    "adam_beta1": (0.15, (0.0, 0.5)),
    "max_gradient_norm": (0.4, (0.01, 1.0, 100.0)),
    "n_steps": (0.2, (3,)),
    "prioritised": (0.25, ("lap", "proportional")),
    "critic": (0.3, ("categorical", "distributional")),
    "atoms": (0.2, (2, 7)),
    "v_min": (0.1, (-2.0,)),
    "v_max": (0.1, (2.0,)),
    "target_spread": (0.15, (0.75,)),
    "critic_l2": (0.2, (0.01,)),
    "weight_decay": (0.2, (0.01,)),
    "weight_projection": (0.15, (True,)),
    "affine_projection": (0.15, (True,)),
    "bc_alpha": (0.15, (2.5,)),
    "bc_only": (0.05, (True,)),
    "bc_final": (0.15, (0.1,)),
    "actor_average": (0.15, (1, 10)),
    "n_critics": (0.25, (2, 3)),
    "target_critics": (0.2, ("mean",)),
    "policy_delay": (0.2, (2,)),
    "target_policy_noise": (0.2, (0.2,)),
    "target_noise_clip": (0.1, (0.1,)),
    "action_layer": (0.2, (1,)),
    "pre_activation_penalty": (0.2, (0.1,)),
    "bounding": (0.4, ("inverting", "zeroing")),
    "policy_gradient": (0.5, ("direct", "surrogate")),
    "action_gradient_clip": (0.2, (0.1,)),
    "critic_learning_rate": (0.1, (0.3,)),
    "actor_learning_rate": (0.1, (0.1,)),
    "threads": (0.1, (2,)),
    "network": (0.1, ("conv",)),
    "shared_encoder": (0.3, (True,)),
}
DQN_OPTIONS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "learning_rate": (0.1, (0.1,)),
    "double_q": (0.5, (True,)),
    "target_update_interval": (0.3, (1, 2)),
    "action_mask": (0.2, (True,)),
}
VALUES = (
    *("plain", "zero weights", "zero rewards", "saturated actor", "dead units", "constant observations", "ties"),
    *("subnormal", "tiny", "huge", "mixed magnitudes", "overflowing rewards"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        options: of the agent, where they differ from the defaults.
        batch: transitions in a minibatch.
        observations: size of an observation; with ``network="conv"``, images of its sizes depend on it.
        actions: size of an action; of DQN, the number of actions.
        updates: number of updates in one call.
        values: the kind of weights and transitions, one of :data:`VALUES`.
        seed: of the random numbers.
        algorithm: ``"DDPG"`` or ``"DQN"``.
    """

    options: Mapping[str, Any]
    batch: int = 3
    observations: int = 3
    actions: int = 1
    updates: int = 2
    values: str = "plain"
    seed: int = 0
    algorithm: str = "DDPG"

    def to_json(self) -> str:
        """Return the case as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """Return the case from the text of :meth:`to_json`."""
        return cls(**json.loads(text))

    @property
    def config(self) -> AgentConfig:
        """The agent's options.

        Raises:
            UsageError: if the options cannot be combined.
        """
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in self.options.items()}
        given = {"batch_size": self.batch, "updates_per_call": self.updates, "buffer_size": 1000}
        return CONFIGS[self.algorithm](**options, **given)

    @property
    def spaces(self) -> tuple[gym.spaces.Box, gym.Space]:
        """The spaces of observations, with an action mask at their end if that is an option, and of actions."""
        masked = self.actions if self.options.get("action_mask") else 0
        *outer, last = self.observation_shape
        box = gym.spaces.Box(-1, 1, (*outer, last + masked))
        return box, gym.spaces.Discrete(self.actions) if self.discrete else gym.spaces.Box(-1, 1, (self.actions,))

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of an observation, without an action mask: a row, or a small image."""
        if self.options.get("network") != "conv":
            return (self.observations,)
        return (3 + self.observations % 5, 5, 1 + self.observations % 3)

    @property
    def discrete(self) -> bool:
        """Whether actions are numbers from 0 to ``actions`` − 1."""
        return self.algorithm == "DQN"


def options_of(algorithm: str) -> dict[str, tuple[float, tuple[Any, ...]]]:
    """Return the options of ``"DDPG"`` or ``"DQN"`` that change an update, each with its share and values."""
    if algorithm == "DDPG":
        return OPTIONS
    fields = {field.name for field in dataclasses.fields(CONFIGS[algorithm])}
    return {name: entry for name, entry in OPTIONS.items() if name in fields} | DQN_OPTIONS


def values_of(algorithm: str) -> tuple[str, ...]:
    """Return the kinds of values of ``"DDPG"`` or ``"DQN"``, which has no actor."""
    return VALUES if algorithm == "DDPG" else tuple(kind for kind in VALUES if kind != "saturated actor")


def sample(rng: np.random.Generator, algorithm: str = "DDPG") -> Case:
    """Return a case with random options that can be combined, and random shapes."""
    while True:
        options: dict[str, Any] = {"hidden": [size(rng) for _ in range(rng.integers(1, 3))]}
        for name, (share, values) in options_of(algorithm).items():
            if rng.random() < share:
                options[name] = values[rng.integers(len(values))]
        batch, observations, actions = size(rng), size(rng), min(size(rng), 97)
        updates, seed = int(rng.integers(1, 4)), int(rng.integers(1 << 31))
        case = Case(options, batch, observations, actions, updates, seed=seed, algorithm=algorithm)
        try:
            _ = case.config
        except UsageError:
            continue
        return case


def size(rng: np.random.Generator) -> int:
    """Return a random one of :data:`SIZES`, rarely a large one."""
    return int(rng.choice(SIZES, p=SIZE_SHARES))


def simpler(case: Case) -> Iterator[Case]:
    """Yield simpler variants of ``case``, the simplest first."""
    for values in ("plain",) if case.values != "plain" else ():
        yield dataclasses.replace(case, values=values)
    for name in case.options:
        if name != "hidden":
            yield dataclasses.replace(case, options={key: v for key, v in case.options.items() if key != name})
    hidden = list(case.options["hidden"])
    if len(hidden) > 1:
        yield from (dataclasses.replace(case, options={**case.options, "hidden": [one]}) for one in hidden)
    for index, one in enumerate(hidden):
        for smaller in (other for other in SIZES if other < one):
            changed = [*hidden[:index], smaller, *hidden[index + 1 :]]
            yield dataclasses.replace(case, options={**case.options, "hidden": changed})
    for name in ("updates", "batch", "observations", "actions"):
        for smaller in (other for other in (1, 2, *SIZES[1:]) if other < getattr(case, name)):
            yield dataclasses.replace(case, **{name: smaller})


# -- numbers ------------------------------------------------------------------------------------------


def minibatches(case: Case) -> Batch:
    """Return minibatches ``[K, B, ...]`` with the case's kind of values."""
    rng, lead = np.random.default_rng(case.seed), (case.updates, case.batch)
    config = case.config

    def numbers(*shape: int) -> np.ndarray:
        if case.values == "ties":
            return rng.integers(-1, 2, (*lead, *shape)).astype(np.float32)
        if case.values == "mixed magnitudes":
            return (rng.normal(size=(*lead, *shape)) * 10.0 ** rng.integers(-30, 31, (*lead, *shape))).astype("f4")
        scale = {"subnormal": 1e-40, "tiny": 1e-30, "huge": 1e30}.get(case.values, 1.0)
        return (rng.normal(size=(*lead, *shape)) * scale).astype(np.float32)

    observations, following = numbers(*case.observation_shape), numbers(*case.observation_shape)
    rewards = numbers(1)
    if case.values == "constant observations":
        observations[...] = following[...] = observations[:1, :1]
    if case.values in ("zero rewards", "zero weights"):
        rewards[...] = 0
    if case.values == "overflowing rewards":
        rewards[...] = np.float32(3e38) * np.sign(rewards)
    weighted = config.prioritised == "proportional"
    if case.discrete:
        actions = rng.integers(0, case.actions, (*lead, 1)).astype(np.float32)
    else:
        actions = np.clip(numbers(case.actions), -1, 1)
    if case.options.get("action_mask"):
        observations, following = (np.concatenate((part, _masks(rng, case)), -1) for part in (observations, following))
    return Batch(
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=following,
        terminated=(rng.random((*lead, 1)) < 0.3).astype(np.float32),
        discounts=np.float32(config.discount) ** rng.integers(1, 4, (*lead, 1)).astype("f4")
        if weighted or config.n_steps > 1
        else None,
        weights=rng.uniform(0.1, 1, (*lead, 1)).astype(np.float32) if weighted else None,
        cloning=rng.uniform(0.1, 1, (*lead, 1)).astype(np.float32) if case.options.get("bc_final", 1) != 1 else None,
    )


def _masks(rng: np.random.Generator, case: Case) -> np.ndarray:
    """Return random action masks, each of which allows at least one action."""
    allowed = rng.random((case.updates, case.batch, case.actions)) < 0.6
    first = rng.integers(0, case.actions, (case.updates, case.batch, 1))
    return (allowed | (np.arange(case.actions) == first)).astype(np.float32)


def weights(case: Case, initial: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the variables' values for the case's kind, derived from an agent's initial values."""
    found = {name: np.array(value) for name, value in initial.items()}

    def layers(part: str, *endings: str) -> list[np.ndarray]:
        return [array for name, array in found.items() if part in name and name.endswith(endings)]

    if case.values == "zero weights":
        for array in layers("", "/W:0", "/b:0", "/W/ExponentialMovingAverage:0", "/b/ExponentialMovingAverage:0"):
            array[...] = 0
    if case.values == "zero rewards":  # the value is its bias alone
        for array in layers("q" if case.discrete else "critic", "output/W:0", "output/W/ExponentialMovingAverage:0"):
            array[...] = 0
    if case.values == "saturated actor":
        for array in layers("actor", "output/b:0"):
            array[...] = 30
    if case.values == "dead units":
        for array in layers("hidden", "/b:0"):
            array[...] = -100
    if case.values == "ties":
        for array in layers("", "/W:0", "/W/ExponentialMovingAverage:0"):
            array[...] = np.sign(np.round(array * 2)) / 4
    return found
