"""When episodes are truncated, and how rarely a run must be evaluated so that evaluations do not cut its episodes."""

import gymnasium as gym

from ddpg.interaction.action_repeat import decisions
from ddpg.runs.env_source import EnvSource
from ddpg.runs.wrappers import name_and_arguments


def default_evaluation_interval(
    limit: int | None, n_envs: int, total_timesteps: int, *, share: int = 20, cuts: bool = True
) -> int:
    """Return the default number of steps between evaluations: a twentieth of the run, or more.

    An evaluation must not cut the episodes of training (docs/reliability.md), so for one environment it is at least
    as many steps as the longest episode has, and for a vector at least two full episodes of each environment.

    Args:
        limit: the environment's :func:`episode_limit`.
        n_envs, total_timesteps: as for :func:`ddpg.train`.
        share: 20 for a twentieth.
        cuts: whether evaluations cut episodes; they do not with workers, nor where a data set is all that is learned
            from, and then the interval is a twentieth.
    """
    uncut = _uncut_interval(limit, n_envs) if cuts else 0
    return min(max(1, total_timesteps // share, uncut), total_timesteps)


def cut_episodes_note(limit: int | None, n_envs: int, evaluation_interval: int, timesteps: int) -> str:
    """Return a one-line warning if evaluations may cut off episodes of training, or the empty string.

    Args:
        limit: the environment's :func:`episode_limit`.
        n_envs, evaluation_interval: as for :func:`ddpg.train`, with ``collector="local"``.
        timesteps: of the environments in this run, over all of them.
    """
    enough, longest = _uncut_interval(limit, n_envs), limit or 0
    each = evaluation_interval // n_envs  # steps of an environment from one evaluation to the next
    if each >= longest or timesteps <= (2 if n_envs == 1 else 1) * evaluation_interval:
        return ""
    after = f"{each} to {2 * each}" if n_envs == 1 else f"{each}"
    return (
        f"with evaluation_interval={evaluation_interval} evaluations cut off training episodes after {after} steps; "
        f"they may last {longest}, and episodes.csv has only those that end before. Give {enough} or more"
    )


def _uncut_interval(limit: int | None, n_envs: int) -> int:
    """Return the least interval of evaluations that leaves training episodes whole, 0 if it is not known."""
    longest = limit or 0
    return longest if n_envs == 1 else 2 * n_envs * longest


def episode_limit(source: EnvSource | str) -> int | None:
    """Return the agent's steps after which an episode is truncated, or ``None``: never, or not known.

    A wrapper that repeats actions makes the agent's steps fewer than the environment's. The keyword argument
    ``max_episode_steps`` replaces the limit with which the environment is registered, and -1 removes it.

    Args:
        source: what the environment is made from, its id with the version.
    """
    env_id, wrappers, kwargs = EnvSource.of(source)
    spec = gym.registry.get(env_id.rpartition(":")[2])
    given = kwargs.get("max_episode_steps", None if spec is None else spec.max_episode_steps)
    registered = () if spec is None else ((one.name, one.kwargs or {}) for one in spec.additional_wrappers)
    return decisions(None if given == -1 else given, [*registered, *map(name_and_arguments, wrappers)])


def episode_limit_note(now: int | None, before: int | None) -> str:
    """Return a one-line warning if episodes are truncated after another number of steps, or the empty string.

    ``before`` is the :func:`episode_limit` when the run began; ``None``: not known.
    """
    if before in (None, now):
        return ""
    here = "have no time limit here" if now is None else f"end after {now} steps at most here"
    return f"episodes {here}, and ended after {before} when the run began; returns before and after are not comparable"
