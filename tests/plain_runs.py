"""Short runs of agents with default options, and their results before any of the options existed.

    python tests/plain_runs.py FILE.npz       # with this package, or that of another commit on PYTHONPATH

tests/golden/README.md names the commit that wrote ``golden/plain_runs.npz``.
"""

import sys

import gymnasium as gym
import numpy as np

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig

STEPS, RANDOM = 90, 50
ACTIONS = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
SMALL = {"hidden": (16, 16), "batch_size": 16, "buffer_size": 60, "learning_starts": RANDOM, "updates_per_call": 4}
RUNS = {
    "ddpg": (DDPG, {}),
    "ddpg_other_paths": (
        DDPG,
        {
            **{"norm": "layer", "bounding": "inverting", "policy_gradient": "surrogate", "td_target": "output_delta"},
            **{"clip_delta": 1.0, "action_gradient_clip": 0.5, "noise": "ornstein_uhlenbeck", "action_layer": 1},
        },
    ),
    "ddpg_online": (DDPG, {"target": "online", "optimizer": "rmsprop", "learning_rate_schedule": "linear"}),
    "dqn": (DQN, {"double_q": True, "exploration_steps": 60}),
}


class Swing(gym.Env):
    """A point on a circle that the action turns; every episode starts at the same point, whatever the seed."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, action_space):
        self.action_space, self.episode = action_space, 0

    def _observation(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.time / 14], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angle, self.time, self.episode = 1.0, 0, self.episode + 1
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        self.angle += 0.4 * float(np.ravel(action)[0]) - 0.1
        ended, cut = self.time == 14 and self.episode % 2 == 0, self.time == 14 and self.episode % 2 == 1
        return self._observation(), np.cos(self.angle), ended, cut, {}


class Taken(gym.Wrapper):
    """Records the actions that the environment receives."""

    def __init__(self, env):
        super().__init__(env)
        self.actions = []

    def step(self, action):
        self.actions.append(np.ravel(action).astype(np.float64))
        return super().step(action)


def run(name, **options):
    """Return the actions of a run, and its final weights in one row."""
    kind, own = RUNS[name]
    config = DDPGConfig if kind is DDPG else DQNConfig
    env = Taken(Swing(ACTIONS if kind is DDPG else gym.spaces.Discrete(3)))
    agent = kind(env, config(**SMALL, **own, **options), seed=7)
    agent.learn(STEPS)
    networks = [agent.actor, agent.critic] if kind is DDPG else [agent.q]
    with agent.session.as_default():
        weights = [np.ravel(array) for network in networks for array in network.get_network_params()]
    return {"actions": np.array(env.actions), "weights": np.concatenate(weights)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **{f"{name}/{what}": v for name in RUNS for what, v in run(name, jit=False).items()})
