"""Train with DDPG as one would write it by hand in PyTorch: one file, one loop."""

import copy
import itertools

import numpy as np
import torch
from common import measure
from torch import nn


def layers(sizes, *last):
    """Return linear layers with ReLU between them."""
    made = []
    for inner, outer in itertools.pairwise(sizes):
        made += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*made[:-1], *last)


def train(task, env):
    """Train with one update per step."""
    torch.manual_seed(task.seed)
    rng = np.random.default_rng(task.seed)
    n, a = env.observation_space.shape[0], env.action_space.shape[0]
    high = env.action_space.high
    actor, critic = layers([n, *task.hidden, a], nn.Tanh()), layers([n + a, *task.hidden, 1])
    target_actor, target_critic = copy.deepcopy(actor), copy.deepcopy(critic)
    actor_step = torch.optim.Adam(actor.parameters(), 1e-3)
    critic_step = torch.optim.Adam(critic.parameters(), 1e-3)
    states, next_states = np.zeros((2, task.memory, n), np.float32)
    actions = np.zeros((task.memory, a), np.float32)
    rewards, ends = np.zeros((2, task.memory, 1), np.float32)
    stored = 0

    def act(state):
        with torch.no_grad():
            return actor(torch.as_tensor(state, dtype=torch.float32)[None])[0].numpy()

    def update(count):
        for _ in range(count):
            rows = rng.integers(0, min(stored, task.memory), task.batch)
            s, x, r, t, e = (torch.from_numpy(array[rows]) for array in (states, actions, rewards, next_states, ends))
            with torch.no_grad():
                y = r + task.gamma * (1 - e) * target_critic(torch.cat([t, target_actor(t)], 1))
            loss = nn.functional.mse_loss(critic(torch.cat([s, x], 1)), y)
            critic_step.zero_grad()
            loss.backward()
            critic_step.step()
            loss = -critic(torch.cat([s, actor(s)], 1)).mean()
            actor_step.zero_grad()
            loss.backward()
            actor_step.step()
            with torch.no_grad():
                for online, target in ((actor, target_actor), (critic, target_critic)):
                    for one, other in zip(online.parameters(), target.parameters(), strict=True):
                        other.lerp_(one, 0.005)

    task.act, task.update = lambda state: act(state) * high, update
    state, _ = env.reset(seed=task.seed)
    for step in range(task.steps + 1):
        if step < task.starts:
            action = rng.uniform(-1, 1, a).astype(np.float32)
        else:
            action = np.clip(act(state) + 0.1 * rng.standard_normal(a, np.float32), -1, 1)
        next_state, reward, terminated, truncated, _ = env.step(action * high)
        row = step % task.memory
        states[row], actions[row], next_states[row] = state, action, next_state
        rewards[row], ends[row] = reward, terminated
        state = env.reset()[0] if terminated or truncated else next_state
        stored += 1
        if step >= task.starts:
            update(1)


measure(train)
