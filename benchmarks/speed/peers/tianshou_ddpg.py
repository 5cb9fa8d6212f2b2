"""Train with Tianshou 2, through its procedural interface."""

import numpy as np
import torch
from common import measure
from tianshou.algorithm import DDPG
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.exploration import GaussianNoise
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step


def train(task, env):
    """Train with one environment and one update per step, without logging."""
    torch.manual_seed(task.seed)
    np.random.seed(task.seed)  # noqa: NPY002 - Tianshou's memory and noise use NumPy's global generator
    states, actions = env.observation_space.shape, env.action_space.shape
    actor = ContinuousActorDeterministic(
        preprocess_net=Net(state_shape=states, hidden_sizes=task.hidden), action_shape=actions
    )
    critic = ContinuousCritic(
        preprocess_net=Net(state_shape=states, action_shape=actions, hidden_sizes=task.hidden, concat=True)
    )
    policy = ContinuousDeterministicPolicy(
        actor=actor,
        exploration_noise=GaussianNoise(sigma=0.1),
        action_space=env.action_space,
        observation_space=env.observation_space,
    )
    algorithm = DDPG(
        policy=policy,
        policy_optim=AdamOptimizerFactory(lr=1e-3),
        critic=critic,
        critic_optim=AdamOptimizerFactory(lr=1e-3),
        tau=0.005,
        gamma=task.gamma,
    )
    memory = VectorReplayBuffer(task.memory, 1)
    collector = Collector(algorithm, DummyVectorEnv([lambda: env]), memory, exploration_noise=True)
    task.act = policy.compute_action

    def update(count):
        with policy_within_training_step(policy):
            for _ in range(count):
                algorithm.update(memory, task.batch)

    task.update = update
    collector.reset()
    collector.collect(n_step=min(task.starts, task.steps + 1), random=True)
    if task.steps < task.starts:
        return
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=task.steps - task.starts + 1,
            collection_step_num_env_steps=1,
            update_step_num_gradient_steps_per_sample=1.0,
            batch_size=task.batch,
            verbose=False,
            show_progress=False,
        )
    )


measure(train)
