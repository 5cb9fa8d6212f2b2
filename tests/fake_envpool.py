"""A stand-in for the package ``envpool``: gymnasium's environments with EnvPool's behaviour.

Seeds are fixed when a pool is created, and resets take none. The step after an episode's end ignores the action and
restarts with reward 0. Spaces are those of one environment, with float64 actions where EnvPool has them.
``terminated`` is missing if an episode is truncated in the same step.
"""

import types

import gymnasium as gym
import numpy as np

ENVS = ("Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "FrozenLake-v1", "Elsewhere-v0")
__version__ = "1.2.5"
pools: list["Pool"] = []  # all that were created, in order


def list_all_envs():
    return list(ENVS)


def make_spec(env_id, **config):
    known = {"num_envs", "max_episode_steps", "num_threads"}
    if config.keys() - known:
        raise TypeError(f"Config got an unexpected keyword argument {min(config.keys() - known)!r}")
    assert config["num_envs"] >= 1
    env = gym.make("Pendulum-v1" if env_id == "Elsewhere-v0" else env_id)
    box = env.action_space
    if isinstance(box, gym.spaces.Box):
        box = gym.spaces.Box(box.low.astype(np.float64), box.high.astype(np.float64), dtype=np.float64)
    return types.SimpleNamespace(
        gymnasium_observation_space=env.observation_space, gymnasium_action_space=box, config=config
    )


def make(env_id, env_type, seed, **config):
    assert env_type == "gymnasium"
    pools.append(Pool(env_id, seed, make_spec(env_id, **config)))
    return pools[-1]


class Pool:
    """A pool like those of ``envpool.make``."""

    def __init__(self, env_id, seeds, spec):
        assert len(seeds) == spec.config["num_envs"]
        assert all(0 <= seed < 2**31 for seed in seeds)
        limit = {name: spec.config[name] for name in ("max_episode_steps",) if name in spec.config}
        name = "Pendulum-v1" if env_id == "Elsewhere-v0" else env_id
        self.envs = [gym.make(name, disable_env_checker=True, **limit) for _ in seeds]
        self.seeds, self.fresh = list(seeds), list(seeds)
        self.spec, self.ended = spec, [False] * len(seeds)
        self.sent = []

    def async_reset(self):
        raise NotImplementedError

    send = recv = async_reset

    def reset(self):
        self.ended = [False] * len(self.envs)
        rows = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self.fresh, strict=True)]
        self.fresh = [None] * len(self.envs)
        return np.stack(rows), {"elapsed_step": np.zeros(len(rows), np.int32)}

    def step(self, actions):
        self.sent.append(np.array(actions))
        rows = []
        for index, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self.ended[index]:
                rows.append((env.reset()[0], 0.0, False, False))
            else:
                observation, reward, terminated, truncated, _ = env.step(action)
                rows.append((observation, reward, terminated and not truncated, truncated))
            self.ended[index] = rows[-1][2] or rows[-1][3]
        observations, rewards, terminated, truncated = zip(*rows, strict=True)
        info = {"elapsed_step": np.zeros(len(rows), np.int32)}
        return np.stack(observations), np.array(rewards, np.float32), np.array(terminated), np.array(truncated), info
