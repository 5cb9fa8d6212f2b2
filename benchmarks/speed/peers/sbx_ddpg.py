"""SBX: Stable-Baselines3 on JAX."""

import numpy as np
from common import measure
from sbx import DDPG
from stable_baselines3.common.noise import NormalActionNoise


def train(task, env):
    """DDPG; ``every`` steps it makes as many updates."""
    every = task.options.get("every", 1)
    agent = DDPG(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        buffer_size=task.memory,
        learning_starts=task.starts,
        batch_size=task.batch,
        gamma=task.gamma,
        train_freq=every,
        gradient_steps=every,
        action_noise=NormalActionNoise(np.zeros(env.action_space.shape), 0.1 * env.action_space.high),
        policy_kwargs={"net_arch": task.hidden},
        seed=task.seed,
    )
    agent.learn(task.steps + every)


measure(train)
