"""Watching the policy of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.agents.registry import load_agent
from ddpg.experience import env_calls
from ddpg.runs import directory
from ddpg.runs.environments import check_import
from ddpg.runs.evaluation import final_seed
from ddpg.runs.video import drawn_env, record, watch
from ddpg.storage import checkpoint


def record_run(
    run: str | Path,
    output: str | Path | None = None,
    *,
    episodes: int = 1,
    which: str = "latest",
    seed: int | None = None,
    allow_import: Sequence[str] = (),
) -> dict[str, Any]:
    """Record episodes of a run's policy.

    Args:
        run: a run directory.
        output: a ``.gif`` or ``.mp4``; by default ``video.gif`` in the run directory.
        episodes: how many.
        which: ``"latest"``, ``"best"`` or a number of timesteps.
        seed: of the first episode; by default that of ``ddpg evaluate``.
        allow_import: modules that an environment named ``module:Id`` in the run's file may import.

    Returns:
        ``path``, ``env_id``, ``checkpoint``, ``timesteps``, ``episodes`` and ``seed``.

    Raises:
        UsageError: no such run or checkpoint, or as :func:`ddpg.record`.
    """
    with env_calls.own_directory():
        agent, env, about = _loaded(run, which, seed, allow_import)
        with env_calls.closing(env):
            path = record(agent, env, output or Path(run) / "video.gif", episodes=episodes, seed=about["seed"])
    return {"path": str(path), **about, "episodes": episodes}


def watch_run(
    run: str | Path,
    *,
    episodes: int = 1,
    which: str = "latest",
    seed: int | None = None,
    allow_import: Sequence[str] = (),
) -> None:
    """Show episodes of a run's policy in a window; arguments and errors as those of :func:`record_run`."""
    with env_calls.own_directory():
        agent, env, about = _loaded(run, which, seed, allow_import)
        with env_calls.closing(env):
            title = f"{about['env_id']} after {about['timesteps']:,} steps"
            watch(agent, env, episodes=episodes, seed=about["seed"], title=title)


def _loaded(
    run: str | Path, which: str, seed: int | None, allow_import: Sequence[str]
) -> tuple[OffPolicyAgent, gym.Env, dict[str, Any]]:
    path = checkpoint.find(run, which)
    document = directory.read_config(run)
    check_import(document["env_id"], run, allow_import)
    env = drawn_env(document["env_id"], document["wrappers"])
    agent = load_agent(path, env)
    return (
        agent,
        env,
        {
            "env_id": document["env_id"],
            "checkpoint": path.name,
            "timesteps": agent.num_timesteps,
            "seed": final_seed(document["seed"]) if seed is None else seed,
        },
    )
