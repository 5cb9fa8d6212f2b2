"""Warnings, in one line each, of what is wrong with a run's environment, by its spaces and by the run's first data.

Such mistakes (units far from 1, a time limit that is reported as a terminal state, actions without effect) raise no
error: the agent only learns slowly, or something else (docs/how_to/symptoms.md).
"""

import math
from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from ddpg.agents.callbacks import Callback
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.config.algorithm_options import RENORMS, AgentConfig, DDPGConfig
from ddpg.interaction.env_runner import Episode
from ddpg.interaction.spaces import spaces_of
from ddpg.progress import format_number, print_to_stderr
from ddpg.replay.buffer import return_steps
from ddpg.replay.normalizers import range_note
from ddpg.runs.evaluation import Evaluation

LARGE = 1_000.0  # an observation, or a return, that networks with weights of order 1 reach only after long learning
SMALL = 1e-3  # observations all below this are invisible beside the biases
ALIKE = 5  # first episodes that were all terminated after as many steps, before that is taken for a time limit
UNCHANGED = 3  # evaluations in a row with the same returns
_ROWS = 1_000  # of the replay memory at most; images take megabytes
_SATURATED = 0.99  # share of actions


class EnvironmentNotes(Callback):
    """Prints to stderr, once each, what a run from its first step on shows of its environment.

    Before the first update it looks at observations, rewards and returns of the replay memory; then at how the first
    episodes end, and at whether evaluations differ at all. Learning is the same with and without it.
    """

    def __init__(self, name: str):
        self._name = name
        self._lengths: list[int] | None = []  # of the first episodes; None: no longer looked at
        self._returns: list[np.ndarray] = []  # of the last evaluations, each after other updates
        self._updates = 0
        self._saturated: float | None = None  # share of actions; None: no update yet, or discrete actions

    def on_training_start(self, agent: OffPolicyAgent, total_timesteps: int) -> None:
        """Look at the first episodes of a new run only."""
        if agent.num_timesteps:
            self._lengths = None

    def on_compile(self, agent: OffPolicyAgent) -> None:
        """Look at what is in the replay memory before the first update."""
        if not agent.num_updates and len(agent.replay):
            for note in (observations_note(agent), rewards_note(agent)):
                self._say(note)

    def on_episode_end(self, agent: OffPolicyAgent, episode: Episode) -> None:
        """Say if the first episodes were all terminated, and not truncated, after as many steps."""
        if self._lengths is None:
            return
        self._lengths.append(episode.length)
        if not episode.terminated or episode.length == 1 or episode.length != self._lengths[0]:
            self._lengths = None
        elif len(self._lengths) == ALIKE:
            self._lengths = None
            self._say(
                f"the first {ALIKE} episodes were all terminated after {episode.length} steps; if that is a time "
                "limit, step must return truncated=True and terminated=False there, or the critic learns that nothing "
                "follows states that look like any other"
            )

    def on_update(self, agent: OffPolicyAgent, metrics: dict[str, float]) -> None:
        """Remember how many of the actions are at a bound."""
        self._saturated = metrics.get("actions_saturated")

    def on_evaluation(self, agent: OffPolicyAgent, evaluation: Evaluation) -> None:
        """Say if evaluations return exactly the same although updates, which change every action, came between them.

        Discrete actions may stay the same.
        """
        if self._saturated is None or agent.num_updates == self._updates or len(self._returns) >= UNCHANGED:
            return
        self._updates = agent.num_updates
        same = self._returns and np.array_equal(self._returns[-1], evaluation.returns)
        self._returns = [*(self._returns if same else []), evaluation.returns]
        if len(self._returns) < UNCHANGED or np.ptp(evaluation.returns) == 0:  # equal episodes may be perfect ones
            return
        why = "do its actions reach the environment, and change rewards?"
        if self._saturated >= _SATURATED:
            why = (
                f"{self._saturated:.0%} of its actions are at a bound (actions_saturated), where tanh passes no "
                "gradient; if that is not the best policy, scale observations, or give --bounding inverting"
            )
        self._say(f"{UNCHANGED} evaluations of a changing policy returned exactly the same, episode by episode: {why}")

    def _say(self, note: str) -> None:
        if note:
            print_to_stderr(f"{self._name}: {note}")


def observations_note(agent: OffPolicyAgent) -> str:
    """Return a one-line warning if observations are far from order 1 and nothing scales them, or the empty string.

    Images, and networks that normalise their inputs, need no scale.
    """
    config = agent.config
    scaled = config.normalize_observations or config.norm in ("batch", *RENORMS) or config.network == "conv"
    if scaled or config.own_networks:
        return ""
    sizes = np.abs(agent.replay.gather(_newest(agent)).observations.astype(np.float64)).max(axis=0)
    largest = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    size = float(sizes[largest])
    if SMALL <= size <= LARGE or size == 0:
        return ""
    if size > LARGE:
        found = f"component {', '.join(map(str, largest))} of observations reaches {format_number(size)} in magnitude"
    else:
        found = f"no component of observations exceeds {format_number(size)} in magnitude"
    return (
        f"{found}, and networks expect inputs of order 1; give --normalize-observations, or scale them in the "
        "environment"
    )


def rewards_note(agent: OffPolicyAgent) -> str:
    """Return a one-line warning if returns are large and not scaled, or all rewards alike, or the empty string."""
    config, rows = agent.config, _newest(agent)
    batch = agent.replay.gather(rows)
    alike = len(rows) > 1 and np.ptp(batch.rewards) == 0 and not batch.terminated.any()
    if alike and not config.hindsight:
        return (
            f"all {len(rows):,} rewards so far are {format_number(float(batch.rewards[0, 0]))}, and no episode was "
            "terminated, so nothing tells good actions from bad ones; unless exploration finds another reward (noise, "
            "learning_starts), make it denser"
        )
    if config.normalize_rewards or config.rescale_rewards:
        return ""
    returns = agent.replay.gather(rows, return_steps(config.discount), config.discount).rewards
    if (size := float(np.abs(returns).max())) <= LARGE:
        return ""
    return (
        f"discounted returns reach {format_number(size)} in magnitude so far, and Q, which begins at 0, has to grow as "
        "large; give --normalize-rewards, or scale rewards down"
    )


def _newest(agent: OffPolicyAgent) -> np.ndarray:
    return agent.replay.newest(min(len(agent.replay), _ROWS))


def value_range_note(limit: int | None, config: AgentConfig) -> str:
    """Return a one-line warning if the critic's range of values is too small for γ, or the empty string.

    ``limit`` is the environment's :func:`~ddpg.runs.episode_limits.episode_limit`.
    """
    if not (isinstance(config, DDPGConfig) and config.normalize_rewards and config.critic != "scalar"):
        return ""
    assert config.gamma is not None  # the agent has replaced None
    return range_note(config.gamma, limit, max(abs(config.v_min), abs(config.v_max)))


def image_note(env: gym.Env | gym.vector.VectorEnv, config: AgentConfig) -> str:
    """Return a one-line warning if dense layers would read images, also in a flattened Dict, or the empty string."""
    if config.network == "conv" or not config.described_layers:
        return ""
    images, units = _images_of(env), config.described_layers[0][1][:1]
    numbers = sum(map(math.prod, images.values()))
    weights = f", with {numbers * units[0]:,} weights to their first {units[0]} units" if units else ""
    read = f"dense layers read them as {numbers:,} separate numbers{weights}"
    shapes = {key: "x".join(map(str, shape)) for key, shape in images.items()}
    if "" in images:
        return (
            f"observations are images of {shapes['']} bytes, and {read}; --network conv reads them as images, and "
            "--wrap can make them smaller"
        )
    if images:
        named = ", ".join(f"{key} ({shape})" for key, shape in shapes.items())
        return (
            f"observations contain images of bytes, {named}, and {read}, from 0 to 255; the documentation's page on "
            "images shows layers that read them as images, beside the other numbers"
        )
    return ""


def _images_of(env: gym.Env | gym.vector.VectorEnv) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the images in an environment's observations, by their keys if it flattens a Dict."""
    if isinstance(env, gym.vector.SyncVectorEnv):
        env = env.envs[0]
    space = spaces_of(env)[0]
    while isinstance(env, gym.Wrapper):
        inner = env.env.observation_space
        if isinstance(env, gym.wrappers.FlattenObservation) and isinstance(inner, gym.spaces.Dict):
            space = inner
        env = env.env
    return dict(_images_in(space))


def _images_in(space: gym.Space, key: str = "") -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(space, gym.spaces.Dict):
        for name, part in space.spaces.items():
            yield from _images_in(part, f"{key}.{name}".lstrip("."))
    elif space.dtype == np.uint8 and space.shape is not None and len(space.shape) >= 2:
        yield key, space.shape
