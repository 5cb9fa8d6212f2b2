"""Train with this package: DDPG or DQN with its defaults, or DDPG with the recipe that the option ``recipe`` names."""

from common import measure

import ddpg
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.presets import read_recipe


def train(task, env):
    options = dict(task.options)
    algorithm = options.pop("algorithm", "DDPG")
    if recipe := options.pop("recipe", None):
        given = read_recipe(recipe)
    else:
        given = {
            "hidden": tuple(task.hidden),
            "batch_size": task.batch,
            "gamma": task.gamma,
            "buffer_size": task.memory,
        }
    config = CONFIGS[algorithm](**given | options).replace(learning_starts=task.starts)
    agent = getattr(ddpg, algorithm)(env, config, seed=task.seed)
    task.act = lambda observation: agent.predict(observation)[0]
    task.update = agent.update
    agent.learn(task.steps + 1)


measure(train)
