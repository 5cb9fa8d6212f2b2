"""Train with this package: DDPG with its defaults, or the recipe that the option ``recipe`` names."""

from common import measure

from ddpg import DDPG, DDPGConfig
from ddpg.config.presets import read_recipe


def train(task, env):
    options = dict(task.options)
    if recipe := options.pop("recipe", None):
        config = DDPGConfig(**read_recipe(recipe) | options)
        return learn(task, env, config.replace(learning_starts=task.starts))
    config = DDPGConfig(
        hidden=tuple(task.hidden),
        batch_size=task.batch,
        gamma=task.gamma,
        learning_starts=task.starts,
        buffer_size=task.memory,
        **options,
    )
    learn(task, env, config)


def learn(task, env, config):
    agent = DDPG(env, config, seed=task.seed)
    task.act = lambda observation: agent.predict(observation)[0]
    task.update = agent.update
    agent.learn(task.steps + 1)


measure(train)
