"""Check a critic against its environment: does Q order the actions of a state as their simulated returns do?

An actor follows ∇ₐQ(s, a), so it needs a critic that knows which actions of one state are better than others. A critic
can predict returns well and not know that, if returns depend on the state far more than on one action. Where motion is
chaotic, one action changes all later rewards unpredictably, and only returns of a few steps show what it does.
"""

import dataclasses
import math
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import special

from ddpg import progress
from ddpg.checkpoints.memory_limit import memory_limit
from ddpg.errors import UsageError, brief
from ddpg.interaction.actions import BoxActions, unbatch
from ddpg.interaction.env_calls import env_name
from ddpg.interaction.env_runner import SingleStepper
from ddpg.interaction.spaces import check_observation_space, spaces_of
from ddpg.interaction.transitions import FaultCounter, ObservationReader
from ddpg.interaction.validation import validate_bool, validate_int, validate_optional_int, validate_positive
from ddpg.replay.buffer import return_steps
from ddpg.runs.evaluation import check_action_space, pausing_learning

LONGEST = 1_000  # steps of an episode before the state that is checked
_PAIR = 32  # bytes for each pair of actions, counted twice, in the arrays that compare them


@dataclasses.dataclass(frozen=True)
class MeanOverStates:
    """A mean over states, and its 95 % confidence interval by Student's t; NaN where it is not known."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> "MeanOverStates":
        """Return the mean of those ``values`` that are not NaN."""
        values = values[~np.isnan(values)]
        if len(values) < 2:
            return cls(float(values.mean()) if len(values) else math.nan, math.nan, math.nan)
        half = float(special.stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / len(values) ** 0.5)
        return cls(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half)


@dataclasses.dataclass(frozen=True)
class CriticCheck:
    """Q and simulated returns of K + 2 actions in each of N states.

    Column 0 is the policy's action μ(s), columns 1 to K are disturbed actions, and the last one is a step of the same
    expected length along ∇ₐQ(s, μ(s)).

    Attributes:
        actions: ``[N, K + 2, A]`` in [-1, 1].
        q_values: Q(s, a), ``[N, K + 2]`` in env units.
        returns: discounted returns of a in s and the policy's actions after it, ``[N, K + 2]`` in env units.
        steps: number of steps between the reset and each state, ``[N]``.
        disturbance: standard deviation of the disturbances, in half-ranges of the action.
        horizon: number of rewards in a return, unless the episode ends before.
        bootstrapped: whether Q stands for later rewards.
    """

    actions: np.ndarray
    q_values: np.ndarray
    returns: np.ndarray
    steps: np.ndarray
    disturbance: float
    horizon: int
    bootstrapped: bool = False

    @property
    def ordered(self) -> MeanOverStates:
        """The share of pairs of a state's actions (without the last one) that Q orders as their returns; 0.5 by chance.

        A pair of equal Q counts as half. Pairs of equal returns are left out, and states that have no others. The
        interval is cut to [0, 1].
        """
        mean = MeanOverStates.of(ordered_pairs(self.q_values[:, :-1], self.returns[:, :-1]))
        return MeanOverStates(mean.mean, *(float(np.clip(limit, 0, 1)) for limit in (mean.low, mean.high)))

    @property
    def spreads(self) -> tuple[float, float]:
        """Standard deviations of Q and of the returns among a state's actions (without the last one), env units."""
        q, returns = (np.sqrt(np.var(table[:, :-1], axis=1, ddof=1).mean()) for table in (self.q_values, self.returns))
        return float(q), float(returns)

    @property
    def gain(self) -> MeanOverStates:
        """How much more the step along ∇ₐQ returns than the policy's action, env units."""
        return MeanOverStates.of(self.returns[:, -1] - self.returns[:, 0])

    def summary(self) -> dict[str, Any]:
        """Return the numbers that ``print`` shows, by name; NaN as ``None``."""
        spread_q, spread_return = self.spreads
        found: dict[str, Any] = {
            "states": len(self.steps),
            "actions": self.returns.shape[1] - 2,
            "disturbance": self.disturbance,
            "horizon": self.horizon,
            "bootstrapped": self.bootstrapped,
            "q_value": float(self.q_values[:, 0].mean()),
            "discounted_return": float(self.returns[:, 0].mean()),
            "q_spread": spread_q,
            "return_spread": spread_return,
            "gradient_step_predicted": float((self.q_values[:, -1] - self.q_values[:, 0]).mean()),
        }
        for name, mean in (("ordered_pairs", self.ordered), ("gradient_step_gain", self.gain)):
            found |= {name: mean.mean, f"{name}_ci95_low": mean.low, f"{name}_ci95_high": mean.high}
        return {name: None if math.isnan(value) else value for name, value in found.items()}

    def __str__(self) -> str:
        """Return the summary in four lines."""
        number, found = progress.format_number, self.summary()
        ordered, gain = self.ordered, self.gain
        share = "not known, since all returns of a state are equal"
        if not math.isnan(ordered.mean):
            share = f"{_percent(ordered.mean)}{_interval(ordered, _percent)}; 50 % by chance"
        return (
            f"mean Q {number(found['q_value'])}, mean discounted return {number(found['discounted_return'])} "
            f"({len(self.steps)} states, {self.horizon} steps{', then Q' * self.bootstrapped})\n"
            f"standard deviation among {found['actions'] + 1} actions of a state: Q {number(found['q_spread'])}, "
            f"returns {number(found['return_spread'])}\n"
            f"pairs of actions that Q orders as their returns: {share}\n"
            f"a step along the action gradient: by Q {number(found['gradient_step_predicted'])}, "
            f"in truth {number(gain.mean)}{_interval(gain, number)}"
        )


def check_critic(
    agent: Any,
    env: gym.Env,
    states: int = 20,
    actions: int = 8,
    disturbance: float = 0.3,
    horizon: int | None = None,
    seed: int | None = None,
    progress_bar: bool = False,
) -> CriticCheck:
    """Compare Q(s, a) with the returns of simulations that begin with a in s and continue with the policy's actions.

    Each of N states is at a random step of its own episode of the policy. For each action, the environment is reset
    with that episode's seed, the episode's actions are repeated up to the state, and then the action is taken. So only
    the action differs, and environments with random transitions draw the same numbers again.

    With ``horizon``, a return is that of n steps, R = Σ γ^k·r_k + γ^n·Q(s_n, μ(s_n)), or of fewer where a time limit
    cuts the episode. Without, no value stands for later rewards: they are summed until γ^n is at most 0.01, for at most
    1,000 steps. Where the policy's episode ends by a time limit, the state is at least n steps before it, or in the
    episode's first half.

    Args:
        agent: a :class:`ddpg.DDPG` agent with a ``Box`` of actions; its first critic is checked, which the actor
            follows.
        env: the environment that it was trained in, or one like it; it is reset, not closed.
        states: N, the number of states.
        actions: K, the number of disturbed actions for each state.
        disturbance: standard deviation of the normal noise that is added to the policy's action, in half-ranges of the
            action; also the root of the mean square of the step along ∇ₐQ. Actions are clipped to their bounds.
        horizon: n, the number of rewards in a return, before Q; ``None``: until they hardly matter, without Q.
        seed: of states and disturbances; the episodes have it and the following numbers; ``None``: random.
        progress_bar: show one on stderr.

    Returns:
        Q and the returns; ``print`` shows a summary.

    Raises:
        UsageError: if an argument cannot work, ``agent`` is not a DDPG agent with a ``Box`` of actions, or ``env``
            returns other observations when its seed and actions are repeated.
        EnvironmentFault: if the environment failed.
    """
    states, actions, disturbance, horizon, seed = checked_options(states, actions, disturbance, horizon, seed)
    progress_bar = validate_bool(progress_bar, "progress_bar")
    if not isinstance(getattr(agent, "actions", None), BoxActions):
        raise UsageError(f"agent={brief(agent)} is not a DDPG agent with a Box of actions; others have no ∇ₐQ to check")
    if not isinstance(env, gym.Env):
        raise UsageError(f"env={brief(env)} is not a gymnasium Env; give one environment, not a vector")
    check_action_space(agent, spaces_of(env)[1])
    rng = np.random.default_rng(seed)
    first = int(rng.integers(2**31)) if seed is None else seed
    found = []
    total = states * (actions + 2)
    with (
        pausing_learning(agent, env),
        progress.tqdm_bar(total=total, desc="simulating", unit="return", disable=not progress_bar) as bar,
    ):
        for number in range(states):
            simulation = _Simulation(agent, env, first + number, horizon, rng)
            tried = simulation.actions_to_try(actions, disturbance, rng)
            returns = []
            for action in tried:
                returns.append(simulation.return_of(action))
                bar.update()
            found.append((tried, simulation.q_values(tried), returns, simulation.step))
    tables = [np.array(column) for column in zip(*found, strict=True)]
    return CriticCheck(
        actions=tables[0],
        q_values=tables[1],
        returns=tables[2],
        steps=tables[3],
        disturbance=disturbance,
        horizon=return_steps(agent.config.discount) if horizon is None else horizon,
        bootstrapped=horizon is not None,
    )


def checked_options(
    states: int, actions: int, disturbance: float, horizon: int | None, seed: int | None
) -> tuple[int, int, float, int | None, int | None]:
    """Return options of :func:`check_critic` as plain numbers.

    Raises:
        UsageError: if one cannot work.
    """
    actions = validate_int(actions, "actions", at_least=1)
    if _PAIR * actions**2 > (there := memory_limit()):
        raise UsageError(
            f"actions={brief(actions)} is too many: all pairs of a state's actions are compared, and this machine has "
            f"{there / 1e9:,.1f} GB of memory; give at most {math.isqrt(there // _PAIR)}"
        )
    return (
        validate_int(states, "states", at_least=1),
        actions,
        float(validate_positive(disturbance, "disturbance")),
        validate_optional_int(horizon, "horizon", at_least=1),
        validate_optional_int(seed, "seed", at_least=0),
    )


def ordered_pairs(q_values: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """Return for each row ``[N, M]`` the share of pairs whose Q is ordered as their returns, ``[N]``.

    Equal Q count as half; pairs of equal returns are left out. NaN for a row that has no other pairs.
    """
    first, second = np.triu_indices(q_values.shape[1], 1)

    def share(q: np.ndarray, returned: np.ndarray) -> float:
        in_returns = np.sign(returned[first] - returned[second])
        agreement = np.sign(q[first] - q[second]) * in_returns
        counted = in_returns != 0
        return np.where(counted, (1 + agreement) / 2, 0).sum() / counted.sum()

    with np.errstate(invalid="ignore"):
        return np.array(list(map(share, q_values, returns)))


class _Simulation:
    """Returns of actions in one state, at a random step of an episode of the policy.

    Attributes:
        step: number of steps from the reset to the state.
    """

    def __init__(self, agent: Any, env: gym.Env, seed: int, horizon: int | None, rng: np.random.Generator):
        self._agent, self._env, self._seed = agent, env, seed
        self._reader = ObservationReader(check_observation_space(spaces_of(env)[0]), 1)
        self._gamma = agent.config.discount
        self._bootstraps = horizon is not None
        self._horizon = return_steps(self._gamma) if horizon is None else horizon
        observations, taken, truncated = self._episode()
        length = len(taken)
        latest = max(length - self._horizon, (length + 1) // 2) if truncated else length
        self.step = int(rng.integers(latest))
        self._taken = taken[: self.step]
        self._observations = observations[: self.step + 1]

    def actions_to_try(self, count: int, disturbance: float, rng: np.random.Generator) -> np.ndarray:
        """Return μ(s), ``count`` disturbed actions and a step along ∇ₐQ, ``[count + 2, A]`` in [-1, 1]."""
        agent, observation = self._agent, self._observations[-1]
        greedy = agent.actions.to_flat(unbatch(agent.predict(observation)[0]))
        noise = rng.normal(scale=disturbance, size=(count, greedy.shape[1]))
        with agent.session.as_default():
            gradient = agent.critic.action_gradients(self._normalised(observation), greedy).astype(np.float64)
        root_mean_square = np.sqrt(np.square(gradient).mean())
        step = disturbance * gradient / root_mean_square if root_mean_square else gradient
        tried = np.concatenate([greedy, greedy + noise, greedy + step])
        return np.clip(tried, -1, 1).astype(np.float32)

    def q_values(self, actions: np.ndarray) -> np.ndarray:
        """Return Q(s, a) for each action, ``[M]`` in env units."""
        return self._q_values(np.repeat(self._observations[-1], len(actions), axis=0), actions)

    def return_of(self, action: np.ndarray) -> float:
        """Return the discounted return of ``action`` ``[A]`` in the state, then of the policy's actions."""
        agent = self._agent
        stepper = self._reset()
        for taken, expected in zip(self._taken, self._observations, strict=False):
            self._compare(stepper, expected)
            stepper.step(taken.copy())  # an environment may write into its action
        self._compare(stepper, self._observations[-1])
        chosen = unbatch(agent.to_env(action[None]))
        total, discount = 0.0, 1.0
        for _ in range(self._horizon):
            result = stepper.step(chosen)
            total += discount * float(result.rewards[0])
            discount *= self._gamma
            if result.terminated[0]:
                return total
            observation = result.final_observations[0] if result.episodes else stepper.observations
            chosen = unbatch(agent.predict(observation)[0])
            if result.episodes:
                break
        if self._bootstraps:
            total += discount * float(self._q_values(observation, agent.actions.to_flat(chosen))[0])
        return total

    def _episode(self) -> tuple[list[np.ndarray], list[Any], bool]:
        """Return the observations and actions of an episode, and whether it was cut by a time limit."""
        stepper, observations, taken = self._reset(), [], []
        for _ in range(LONGEST + self._horizon):
            observations.append(stepper.observations.copy())
            taken.append(unbatch(self._agent.predict(observations[-1])[0]))
            result = stepper.step(taken[-1].copy())
            if result.episodes:
                return observations, taken, not result.terminated[0]
        return observations, taken, True

    def _reset(self) -> SingleStepper:
        return SingleStepper(self._env, self._seed, self._reader, FaultCounter("raise"))

    def _compare(self, stepper: SingleStepper, expected: np.ndarray) -> None:
        if not np.array_equal(stepper.observations, expected):
            raise UsageError(
                f"environment {env_name(self._env)} returned other observations when its seed, {self._seed}, and the "
                "same actions were repeated, so returns of different actions cannot be compared; reset(seed=...) must "
                "determine all that follows, and keep nothing of earlier episodes"
            )

    def _q_values(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        agent = self._agent
        with agent.session.as_default():
            q = agent.critic.predict(self._normalised(observations), actions)[:, 0]
        return agent.reward_scale * q.astype(np.float64)

    def _normalised(self, observations: np.ndarray) -> np.ndarray:
        normaliser = self._agent.memory.observations
        return observations if normaliser is None else normaliser(observations)


def _interval(mean: MeanOverStates, form: Any) -> str:
    return "" if math.isnan(mean.low) else f" (95 % CI {form(mean.low)} to {form(mean.high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
