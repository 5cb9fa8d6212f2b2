"""Train with RLtools' TD3: C++ code that is compiled for the task's sizes at the start.

TD3 has 1.5 times the work of DDPG's critic. RLtools' hidden layers all have one width, so 400-300 becomes 400-400.
"""

import gymnasium as gym
import numpy as np
from common import measure
from rltools import TD3


def train(task, make_env):
    """Train TD3 with an update of critics, actor and targets at every step, and without RLtools' own evaluations."""
    example = make_env()
    bound, limit = example.action_space.high, getattr(example.spec, "max_episode_steps", None)

    def make():
        """Return an environment with actions in [-1, 1], since RLtools supports no other bounds."""
        env = make_env()
        return env if (bound == 1).all() else gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))

    td3 = TD3(
        make,
        interface_name=f"speed_{'_'.join(map(str, task.hidden))}_{task.batch}_{task.steps}_{task.starts}_{len(bound)}",
        enable_evaluation=False,
        EPISODE_STEP_LIMIT=limit or task.steps,
        ACTOR_HIDDEN_DIM=task.hidden[0],
        CRITIC_HIDDEN_DIM=task.hidden[0],
        ACTOR_BATCH_SIZE=task.batch,
        CRITIC_BATCH_SIZE=task.batch,
        ACTOR_TRAINING_INTERVAL=1,
        CRITIC_TRAINING_INTERVAL=1,
        ACTOR_TARGET_UPDATE_INTERVAL=1,
        CRITIC_TARGET_UPDATE_INTERVAL=1,
        N_WARMUP_STEPS=task.starts,
        REPLAY_BUFFER_CAP=task.memory,
        STEP_LIMIT=task.steps + 10,
        GAMMA=task.gamma,
    )
    state = td3.State(task.seed)
    task.act = lambda observation: bound * state.action(np.asarray(observation, np.float32))
    while not state.step():
        pass


train.takes_factory = True
measure(train)
