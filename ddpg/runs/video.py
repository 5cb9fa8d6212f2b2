"""Watching a policy: its episodes as pictures, into a file or a window."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError
from ddpg.runs.environments import make_env
from ddpg.runs.pictures import Gif, Pictures, Video, Window

SUFFIXES = {".gif": Gif, ".mp4": Video}


def drawn_env(env_id: str, wrappers: Sequence[str] = ()) -> gym.Env:
    """Return an environment that hands out every picture since it was last asked, substeps too where it has them."""
    return make_env(env_id, wrappers, render_mode="rgb_array_list")


def record(policy: Any, env: gym.Env, path: str | Path, *, episodes: int = 1, seed: int | None = None) -> Path:
    """Record episodes of a policy, without exploration noise.

    Args:
        policy: anything with Stable-Baselines3's ``predict(observation, deterministic=) -> (action, state)``.
        env: made with ``render_mode="rgb_array"`` or, for the substeps of our own ones, ``"rgb_array_list"``.
        path: a ``.gif``, at most 480 pixels wide and 600 pictures long, or an ``.mp4``; an older file is replaced.
        episodes: how many, one after the other.
        seed: of the first reset; the later ones go on from it.

    Returns:
        The path.

    Raises:
        UsageError: an environment that does not draw, another suffix, or a package that is missing.
    """
    path = Path(path)
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"{str(path)!r} ends in {path.suffix!r}; expected {' or '.join(SUFFIXES)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"{str(path)!r} is no place for a file; name one in a directory that exists")
    with kind(path, _rate(env)) as pictures:
        _show(policy, env, episodes, seed, pictures)
    return path


def watch(policy: Any, env: gym.Env, *, episodes: int = 1, seed: int | None = None, title: str = "ddpg") -> None:
    """Show episodes of a policy in a window, at the environment's speed; closing it ends them.

    Args:
        policy, env, episodes, seed: as for :func:`record`.
        title: the window's.

    Raises:
        UsageError: no display, an environment that does not draw, or a package that is missing.
    """
    with Window(title, _rate(env)) as window:
        _show(policy, env, episodes, seed, window)


def _show(policy: Any, env: gym.Env, episodes: int, seed: int | None, pictures: Pictures) -> None:
    if isinstance(episodes, bool) or not isinstance(episodes, (int, np.integer)) or episodes < 1:
        raise UsageError(f"episodes={episodes!r} must be a whole number, at least 1")
    for picture in _pictures(policy, env, int(episodes), seed):
        if not pictures.add(picture):
            return


def _pictures(policy: Any, env: gym.Env, episodes: int, seed: int | None) -> Iterator[np.ndarray]:
    """Yield what the environment draws of whole episodes, uint8 ``[H, W, 3]``."""
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        yield from _drawn(env)
        over = False
        while not over:
            action, _ = policy.predict(observation, deterministic=True)
            observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            yield from _drawn(env)


def _drawn(env: gym.Env) -> list[np.ndarray]:
    try:
        frames: Any = env.render()
    except Exception as error:  # whatever a graphics library raises where it cannot draw
        if isinstance(error, gym.error.DependencyNotInstalled):
            hint = "install the extra 'video'"
        else:
            hint = "without a display MuJoCo draws with MUJOCO_GL=egl or MUJOCO_GL=osmesa"
        raise UsageError(f"{env} cannot be drawn here ({str(error).strip().splitlines()[0]}); {hint}") from None
    return frames if isinstance(frames, list) else [frames]


def _rate(env: gym.Env) -> float:
    """Return how many pictures of an environment are a second."""
    if env.render_mode not in ("rgb_array", "rgb_array_list"):
        raise UsageError(
            f"{env} has render_mode={env.render_mode!r}; make it with render_mode='rgb_array' or 'rgb_array_list'"
        )
    return float(env.metadata.get("render_fps") or 30)
