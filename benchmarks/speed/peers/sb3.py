"""Stable-Baselines3."""

import numpy as np
from common import measure
from stable_baselines3 import DDPG
from stable_baselines3.common.noise import NormalActionNoise


def train(task, env):
    """DDPG, one update a step."""
    agent = DDPG(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        buffer_size=task.memory,
        learning_starts=task.starts,
        batch_size=task.batch,
        gamma=task.gamma,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(env.action_space.shape), 0.1 * env.action_space.high),
        policy_kwargs={"net_arch": task.hidden},
        seed=task.seed,
        device="cpu",
    )
    agent.learn(task.steps + 1)


measure(train)
