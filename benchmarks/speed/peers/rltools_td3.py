"""RLtools: C++, compiled for the very sizes when it is run; TD3, with 1.5 times the work of DDPG's critic."""

from common import measure
from rltools import TD3


def train(task, make_env):
    """TD3 with an update of critics and actor at every step."""
    td3 = TD3(
        make_env,
        interface_name=f"speed_{'_'.join(map(str, task.hidden))}_{task.batch}",
        ACTOR_HIDDEN_DIM=task.hidden[0],
        CRITIC_HIDDEN_DIM=task.hidden[0],
        ACTOR_BATCH_SIZE=task.batch,
        CRITIC_BATCH_SIZE=task.batch,
        ACTOR_TRAINING_INTERVAL=1,
        CRITIC_TRAINING_INTERVAL=1,
        N_WARMUP_STEPS=task.starts,
        STEP_LIMIT=task.steps + 10,
        GAMMA=task.gamma,
    )
    state = td3.State(task.seed)
    while not state.step():
        pass


train.makes_its_own = True
measure(train)
