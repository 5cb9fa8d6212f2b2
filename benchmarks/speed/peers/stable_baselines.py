"""Train with Stable-Baselines3 or its JAX version SBX, whichever the option ``package`` names.

The algorithm is DDPG, or the option ``algorithm``: DQN with the same networks, minibatches and moving averages as ours,
any other with the package's default options.
"""

import importlib

import numpy as np
from common import measure
from stable_baselines3.common.noise import NormalActionNoise


def train(task, env):
    package, every = task.options["package"], task.options.get("every", 1)
    device = {"device": "cpu"} if package == "stable_baselines3" else {}
    algorithm = task.options.get("algorithm", "DDPG")
    make = getattr(importlib.import_module(package), algorithm)
    if algorithm not in ("DDPG", "DQN"):
        agent = make("MlpPolicy", env, learning_starts=task.starts, seed=task.seed, **device)
        agent.learn(task.steps + 1)
        return
    if algorithm == "DQN":
        own = {"tau": 0.005, "target_update_interval": 1}
        if package == "stable_baselines3":  # which clips gradients, unlike ours and SBX
            own["max_grad_norm"] = float("inf")
    else:
        noise = 0.1 * np.ones(env.action_space.shape)  # both packages add noise to actions in [-1, 1]
        own = {"action_noise": NormalActionNoise(np.zeros_like(noise), noise)}
    agent = make(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        buffer_size=task.memory,
        learning_starts=task.starts,
        batch_size=task.batch,
        gamma=task.gamma,
        train_freq=every,
        gradient_steps=every,
        policy_kwargs={"net_arch": task.hidden},
        seed=task.seed,
        **own,
        **device,
    )
    task.act = lambda observation: agent.predict(observation, deterministic=True)[0]
    task.update = lambda count: agent.train(gradient_steps=count, batch_size=task.batch)
    agent.learn(task.steps + every)


measure(train)
