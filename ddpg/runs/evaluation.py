"""Evaluate a policy over whole episodes, and derive the seeds of evaluations from a training seed."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import special

from ddpg import progress
from ddpg.config.name_hints import EVALUATE, refuse_unknown
from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction.env_calls import env_name
from ddpg.interaction.env_runner import SingleStepper, VectorStepper, make_stepper
from ddpg.interaction.spaces import same_space, spaces_of
from ddpg.interaction.transitions import MAX_FAULTS_IN_A_ROW, Episode, ObservationReader
from ddpg.interaction.validation import validate_bool, validate_int, validate_optional_int

_SEEDS = 2**63  # derived seeds wrap around here, so that every training seed has valid ones


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns (env units) and lengths (steps) of whole episodes.

    ``clipped_actions`` counts the actions that the policy had to clip to the action box.
    ``successes`` says which episodes succeeded, if the environment reports it (``info["is_success"]`` at the end).
    ``seconds`` is the duration of the evaluation. ``abandoned`` counts episodes that are left out because of an invalid
    transition (``on_bad_transition="drop"``).
    """

    returns: np.ndarray
    lengths: np.ndarray
    clipped_actions: int = 0
    successes: np.ndarray | None = None
    seconds: float = 0.0
    abandoned: int = 0

    @property
    def mean_return(self) -> float:
        """The mean of the returns (env units)."""
        return float(self.returns.mean())

    def __str__(self) -> str:
        """Return mean, interval, episodes and success rate in one line."""
        summary = self.summary()
        mean, low, high = (progress.format_number(summary[name]) for name in ("mean_return", "ci95_low", "ci95_high"))
        one = summary["episodes"] == 1
        interval = "" if one else f"95 % CI {low} to {high}, "
        success = f", success rate {summary['success_rate']:.0%}" if "success_rate" in summary else ""
        return (
            f"mean return {mean} ({interval}{summary['episodes']} episode{'' if one else 's'} of "
            f"{summary['mean_length']:.0f} steps){success}" + f", {self.abandoned} abandoned" * bool(self.abandoned)
        )

    def summary(self) -> dict[str, Any]:
        """Return mean, spread and a 95 % confidence interval of the mean (Student's t)."""
        mean, count = self.mean_return, len(self.returns)
        std = float(self.returns.std(ddof=1)) if count > 1 else 0.0
        half = float(special.stdtrit(count - 1, 0.975)) * float(std / np.sqrt(count)) if count > 1 else 0.0
        return {
            "episodes": count,
            "mean_return": mean,
            "std_return": std,
            "ci95_low": mean - half,
            "ci95_high": mean + half,
            "min_return": float(self.returns.min()),
            "max_return": float(self.returns.max()),
            "mean_length": float(self.lengths.mean()),
            "clipped_actions": self.clipped_actions,
            **({} if self.successes is None else {"success_rate": float(self.successes.mean())}),
        }


def evaluate(
    policy: Any,
    env: gym.Env | gym.vector.VectorEnv,
    episodes: int = 10,
    seed: int | None = None,
    deterministic: bool = True,
    progress_bar: bool = False,
    **unknown: Any,
) -> Evaluation:
    """Run whole episodes of ``policy`` in ``env``.

    In a vector of N environments, environment i (from 0) contributes its first ``(episodes + i) // N`` episodes, in
    the order in which they end, as in Stable-Baselines3: taking the first ``episodes`` to end would favour short ones.

    If ``policy`` is an agent that learns in the same environment (its ``env``, or one with the same ``unwrapped``),
    its current training episode is lost. Its ``abandon_episode()`` is called, if it has one, so that its next
    transition does not start from the old observation. Use a separate environment to leave its learning undisturbed.

    If it is an agent with ``on_bad_transition="drop"``, episodes with an invalid transition are abandoned and counted
    here, too.

    Args:
        policy: anything with Stable-Baselines3's ``predict(observation, deterministic=) -> (action, state)``; it
            gets observations as the environment returns them, all N at once from a vector.
        env: an environment or a vector environment (autoreset NEXT_STEP or SAME_STEP); it is reset, not closed.
        episodes: number of episodes, over all environments of a vector.
        seed: seed of the first reset; later resets continue its random stream.
        deterministic: act without exploration noise.
        progress_bar: show one on stderr.

    Returns:
        The return, the length and the success of each episode; ``print`` shows them in one line. Clipped actions are
        counted in every step, in a vector also in environments that have contributed all their episodes already.

    Raises:
        UsageError: if a keyword is unknown, ``episodes`` is below 1, ``policy`` is not a policy or has another
            ``action_space``, ``env`` is not an environment, or a vector has another autoreset mode.
        EnvironmentFault: if the environment raised, or returned NaN or another invalid value; with
            ``on_bad_transition="drop"``, if episodes were abandoned in a hundred steps and none that counts ended
            between them.
    """
    refuse_unknown("evaluate", unknown, EVALUATE, ("episodes", "seed", "deterministic", "progress_bar"))
    episodes, seed = check_episodes(policy, episodes, seed)
    deterministic = validate_bool(deterministic, "deterministic")
    progress_bar = validate_bool(progress_bar, "progress_bar")
    start = time.perf_counter()
    clipped_before = getattr(policy, "num_clipped_predictions", 0)
    with pausing_learning(policy, env):
        observation_space, action_space = spaces_of(env)
        check_action_space(policy, action_space, getattr(env, "action_space", action_space))
        reader = ObservationReader(observation_space, getattr(env, "num_envs", 1), copies=False)
        drops = getattr(getattr(policy, "config", None), "on_bad_transition", None) == "drop"
        stepper = make_stepper(env, seed, reader, "drop" if drops else "raise")
        with progress.tqdm_bar(total=episodes, desc="evaluating", unit="episode", disable=not progress_bar) as bar:
            finished, abandoned = _whole_episodes(policy, stepper, episodes, deterministic, bar)
    successes = [episode.success for episode in finished]
    return Evaluation(
        np.array([episode.episode_return for episode in finished]),
        np.array([episode.length for episode in finished]),
        getattr(policy, "num_clipped_predictions", 0) - clipped_before,
        None if None in successes else np.array(successes),
        time.perf_counter() - start,
        abandoned,
    )


def check_episodes(policy: Any, episodes: int, seed: int | None) -> tuple[int, int | None]:
    """Return ``episodes`` and ``seed`` as plain integers, after checking them and ``policy``.

    Raises:
        UsageError: if ``episodes`` is below 1, ``seed`` is below 0, or ``policy`` has no ``predict``.
    """
    episodes, seed = validate_int(episodes, "episodes", at_least=1), validate_optional_int(seed, "seed", at_least=0)
    if not callable(getattr(policy, "predict", None)):
        raise UsageError(
            f"policy={brief(policy)} has no method predict(observation, deterministic=) -> (action, state); "
            "give an agent, or an object of your own with that method"
        )
    return episodes, seed


def check_action_space(policy: Any, *spaces: gym.Space | str) -> None:
    """Refuse a policy that has an ``action_space``, and none of ``spaces``, or of their texts, is the same.

    Raises:
        UsageError: if so.
    """
    own = getattr(policy, "action_space", None)
    if not isinstance(own, gym.Space):
        return
    if not any(space == str(own) if isinstance(space, str) else same_space(own, space) for space in spaces):
        here = brief(spaces[0], quotes=not isinstance(spaces[0], str))
        raise UsageError(
            f"the environment's action space is {here}, and the policy acts in {brief(own)}; give the environment that "
            "it was trained in, with the same wrappers"
        )


@contextlib.contextmanager
def pausing_learning(policy: Any, env: gym.Env | gym.vector.VectorEnv) -> Iterator[None]:
    """Let the block step ``env``; if ``policy`` learns in it, abandon the policy's current training episode after."""
    try:
        yield
    finally:
        if is_learning_env(policy, env) and hasattr(policy, "abandon_episode"):
            policy.abandon_episode()


def evaluation_seed(seed: int) -> int:
    """Return the seed of the evaluations during training; training never sees their episodes."""
    return (seed + 1_000_000) % _SEEDS


def choice_seed(seed: int) -> int:
    """Return the seed for choosing between two trained policies, on episodes that nothing else uses."""
    return (seed + 3_000_000) % _SEEDS


def final_seed(seed: int) -> int:
    """Return the seed for evaluating or recording a trained agent; neither training nor its evaluations use it."""
    return (seed + 2_000_000) % _SEEDS


def _whole_episodes(
    policy: Any, stepper: SingleStepper | VectorStepper, episodes: int, deterministic: bool, bar: Any
) -> tuple[list[Episode], int]:
    """Return the finished episodes and the number of abandoned ones."""
    wanted = [(episodes + index) // stepper.count for index in range(stepper.count)]
    finished: list[Episode] = []
    lost: set[int] = set()
    abandoned = in_a_row = 0
    while len(finished) < episodes:
        actions, _ = policy.predict(stepper.observations, deterministic=deterministic)
        step = stepper.step(actions)
        for episode in step.episodes:
            if wanted[episode.index]:
                in_a_row = 0
                wanted[episode.index] -= 1
                finished.append(episode)
                bar.update()
        # An environment of a vector stays in dropped until its episode ends, and may have contributed all its episodes.
        fresh = sum(wanted[index] > 0 for index in set(step.dropped) - lost)
        lost, abandoned, in_a_row = set(step.dropped), abandoned + fresh, in_a_row + (fresh > 0)
        if in_a_row >= MAX_FAULTS_IN_A_ROW:
            raise EnvironmentFault(
                f"environment {env_name(stepper.env)}: episodes were abandoned in {in_a_row} steps, because of a bad "
                "transition each, and none that counts ended between these steps: on_bad_transition='drop' goes no "
                "further"
            )
    return finished, abandoned


def is_learning_env(policy: Any, env: gym.Env | gym.vector.VectorEnv) -> bool:
    """Whether stepping ``env`` steps the environment that ``policy`` says it learns in, or one in its vector."""
    own = getattr(policy, "env", None)
    return own is not None and not _innermost(own).isdisjoint(_innermost(env))


def _innermost(env: Any) -> set[int]:
    inner = getattr(env, "unwrapped", env)
    return {id(inner), *(id(getattr(part, "unwrapped", part)) for part in getattr(inner, "envs", ()))}
