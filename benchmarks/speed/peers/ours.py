"""This package."""

from common import measure

from ddpg import DDPG, DDPGConfig


def train(task, env):
    """DDPG, as it is by default."""
    config = DDPGConfig(
        hidden=tuple(task.hidden),
        batch_size=task.batch,
        gamma=task.gamma,
        learning_starts=task.starts,
        buffer_size=task.memory,
        **task.options,
    )
    agent = DDPG(env, config, seed=task.seed)
    task.act = lambda observation: agent.predict(observation)[0]
    task.update = agent.update
    agent.learn(task.steps + 1)


measure(train)
