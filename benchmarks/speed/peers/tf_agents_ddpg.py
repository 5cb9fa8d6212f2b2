"""Train with TF-Agents 0.19, on TensorFlow 2.15."""

import numpy as np
import tensorflow as tf
from common import measure
from tf_agents.agents.ddpg import actor_network, critic_network, ddpg_agent
from tf_agents.drivers import dynamic_step_driver
from tf_agents.environments import py_environment, tf_py_environment
from tf_agents.policies import random_tf_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step
from tf_agents.utils import common


class Environment(py_environment.PyEnvironment):
    """Adapts a gymnasium environment to TF-Agents' interface."""

    def __init__(self, env):
        super().__init__()
        self._env = env
        box = env.action_space
        self._actions = array_spec.BoundedArraySpec(box.shape, np.float32, box.low, box.high)
        self._observations = array_spec.ArraySpec(env.observation_space.shape, np.float32)

    def action_spec(self):
        """See the base class."""
        return self._actions

    def observation_spec(self):
        """See the base class."""
        return self._observations

    def _reset(self):
        return time_step.restart(self._env.reset()[0].astype(np.float32))

    def _step(self, action):
        if self._current_time_step.is_last():
            return self.reset()
        observation, reward, terminated, truncated, _ = self._env.step(action)
        observation = observation.astype(np.float32)
        if terminated:
            return time_step.termination(observation, reward)
        return (time_step.truncation if truncated else time_step.transition)(observation, reward)


def train(task, env):
    """Train with one update per step; collecting and training run as graphs."""
    tf.random.set_seed(task.seed)
    environment = tf_py_environment.TFPyEnvironment(Environment(env))
    steps, actions = environment.time_step_spec(), environment.action_spec()
    agent = ddpg_agent.DdpgAgent(
        steps,
        actions,
        actor_network=actor_network.ActorNetwork(steps.observation, actions, fc_layer_params=task.hidden),
        critic_network=critic_network.CriticNetwork((steps.observation, actions), joint_fc_layer_params=task.hidden),
        actor_optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
        critic_optimizer=tf.keras.optimizers.legacy.Adam(1e-3),
        target_update_tau=0.005,
        gamma=task.gamma,
    )
    agent.initialize()
    memory = tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, 1, task.memory)

    def driver(policy, count):
        return dynamic_step_driver.DynamicStepDriver(environment, policy, [memory.add_batch], num_steps=count)

    driver(random_tf_policy.RandomTFPolicy(steps, actions), task.starts).run()
    collect = common.function(driver(agent.collect_policy, 1).run)
    learn = common.function(agent.train)
    minibatches = iter(memory.as_dataset(sample_batch_size=task.batch, num_steps=2, num_parallel_calls=3).prefetch(3))
    act = common.function(agent.policy.action)

    def update(count):
        for _ in range(count):
            learn(next(minibatches)[0])

    # TF-Agents' environments return batches, so the policy needs a batch of one observation.
    task.act = lambda one: act(time_step.restart(np.asarray(one, np.float32)[None], batch_size=1)).action.numpy()[0]
    task.update = update
    for _ in range(task.steps - task.starts + 1):
        collect()
        learn(next(minibatches)[0])


measure(train)
