"""EnvPool's environments as a gymnasium vector that is seeded by its resets.

EnvPool (Weng et al. 2022, arXiv 2206.10558) steps environments written in C++ in threads of this process. It is
imported only when a vector is made.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ddpg.errors import UsageError, did_you_mean, format_error, import_optional
from ddpg.interaction.spaces import same_space


class EnvPoolVector(VectorEnv):
    """``num_envs`` environments of EnvPool as a gymnasium vector (autoreset NEXT_STEP).

    EnvPool's own vectors differ from gymnasium's in two ways that matter for learning. They are seeded when they are
    made and ignore ``reset(seed=...)``; here such a reset makes a new pool with a different seed for each environment,
    so the same seed gives the same episodes with any number of threads. And their spaces are those of one environment;
    here ``observation_space`` and ``action_space`` are those of all, ``single_...`` those of one.

    If an episode terminates in the very step in which it is truncated, EnvPool reports it as truncated only.

    Args:
        env_id: as in ``envpool.list_all_envs()``.
        num_envs: how many environments.
        like: gymnasium's environment of that id, whose spaces, spec and limit of steps this vector uses; ``None``: use
            EnvPool's.
        options: for ``envpool.make``: ``num_threads``, or an environment's own options.

    Raises:
        UsageError: if EnvPool is not installed, has no such environment or option, or its spaces differ from those of
            ``like``.
    """

    def __init__(self, env_id: str, num_envs: int, *, like: gym.Env | None = None, **options: Any):
        self._envpool = _envpool(env_id)
        known = self._envpool.list_all_envs()
        if env_id not in known:
            raise UsageError(
                f"EnvPool {self._envpool.__version__} has no environment {env_id!r}{did_you_mean(env_id, known)}; "
                "envpool.list_all_envs() lists its environments; --vectorization async steps gymnasium's in processes"
            )
        if reserved := sorted({"seed", "env_seed", "batch_size", "num_envs"} & options.keys()):
            raise UsageError(
                f"{reserved[0]}={options[reserved[0]]!r} is not for EnvPoolVector: seeds are given to reset(seed=...), "
                "and all num_envs environments are stepped together; leave it out"
            )
        if like is not None and like.spec is not None and like.spec.max_episode_steps is not None:
            options = {"max_episode_steps": like.spec.max_episode_steps, **options}
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self._options = options
        self._pool: Any = None
        self.env_id, self.num_envs, self.render_mode = env_id, num_envs, None
        self.spec = gym.registry.get(env_id) if like is None else like.spec
        try:
            with _without_dtype_warning():
                made = self._envpool.make_spec(env_id, num_envs=num_envs, **options)
                observations, actions = made.gymnasium_observation_space, made.gymnasium_action_space
        except Exception as error:
            raise UsageError(
                f"EnvPool could not make {num_envs!r} environments {env_id!r} with {options}: {format_error(error)}; "
                "correct num_envs or the options"
            ) from None
        if like is not None:
            observations = _gymnasium_space(env_id, "observation", observations, like.observation_space)
            actions = _gymnasium_space(env_id, "action", actions, like.action_space)
        self.single_observation_space, self.single_action_space = observations, actions
        self.observation_space = batch_space(observations, num_envs)
        self.action_space = batch_space(actions, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment.

        Args:
            seed: one for all environments, or one for each, ≥ 0, of any size; ``None``: the random streams of the
                previous seed continue, or the first time, start from an unknown seed.
            options: must be empty: EnvPool has none.

        Returns:
            The observations ``[N, ...]``, and infos.

        Raises:
            UsageError: if there are options, or the number of seeds differs from the number of environments.
        """
        if options:
            raise UsageError(f"reset(options={options!r}): an EnvPoolVector takes none; leave them out")
        with _without_dtype_warning():
            if seed is not None or self._pool is None:
                seeds = self._seeds(seed)
                self._pool = None  # ends the old pool's threads before new ones start
                self._pool = self._envpool.make(
                    self.env_id, env_type="gymnasium", num_envs=self.num_envs, seed=seeds, **self._options
                )
            return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments; one whose episode ended in the previous step ignores its action and restarts.

        Args:
            actions: ``[N, ...]`` as in ``action_space``, in env units.

        Returns:
            Observations ``[N, ...]``, rewards ``[N]`` (0 where an environment restarts), terminated ``[N]``, truncated
            ``[N]``, infos.

        Raises:
            UsageError: if the actions have another shape; EnvPool itself checks only the first step.
            gymnasium.error.ResetNeeded: if there was no reset yet, or the vector is closed.
        """
        if self._pool is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        array = np.asarray(actions)
        if array.shape != self.action_space.shape:
            expected = self.action_space.shape
            raise UsageError(f"actions have shape {array.shape}; expected {expected}: give one for each environment")
        return self._pool.step(array)

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        self._pool = None

    def _seeds(self, seed: int | Sequence[int] | None) -> list[int]:
        """Return a seed for every environment in [0, 2³¹), the range that EnvPool accepts."""
        if seed is None or isinstance(seed, (int, np.integer)):
            return _reduced(None if seed is None else int(seed), self.num_envs)
        if len(seed) != self.num_envs:
            raise UsageError(f"{len(seed)} seeds for {self.num_envs} environments; give one for each, or one for all")
        return [_reduced(int(each), 1)[0] for each in seed]


def is_envpool(env: Any) -> bool:
    """Return whether ``env`` comes from ``envpool.make``: its class is a vector's, but its resets ignore seeds."""
    return not isinstance(env, EnvPoolVector) and all(hasattr(env, name) for name in ("async_reset", "send", "recv"))


def _reduced(seed: int | None, count: int) -> list[int]:
    return (np.random.SeedSequence(seed).generate_state(count) >> 1).tolist()


def _envpool(env_id: str) -> ModuleType:
    try:
        return import_optional(
            "envpool",
            f"{env_id!r} in EnvPool",
            "install the extra 'envpool' (Python 3.11 or later, on Linux, Windows or a Mac with an ARM processor), or "
            "use --vectorization async",
        )
    except OSError as error:  # a shared library or a file of it is missing
        raise UsageError(
            f"{env_id!r} needs EnvPool, which could not be imported ({format_error(error)}); "
            "install the extra 'envpool' anew"
        ) from None


@contextlib.contextmanager
def _without_dtype_warning() -> Iterator[None]:
    """Suppress gymnasium's warning about bounds that EnvPool declares in float64."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield


def _gymnasium_space(env_id: str, what: str, pooled: gym.Space, own: gym.Space) -> gym.Space:
    """Return gymnasium's own space, to which EnvPool's must be equal except for the dtype.

    Raises:
        UsageError: if they differ in more than the dtype.
    """
    if not same_space(pooled, own):
        raise UsageError(
            f"{what}s of {env_id!r} are {pooled} in EnvPool and {own} in gymnasium, which evaluates; "
            "use --vectorization async"
        )
    return own
