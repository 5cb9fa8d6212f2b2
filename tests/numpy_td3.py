"""TD3 and TD3+BC in NumPy, in float64: two hidden layers, their derivatives, Adam, moving averages, and the noise."""

import numpy as np


def forward(weights, inputs):
    """Return the activations of all layers: two relu layers and a linear one."""
    w1, b1, w2, b2, w3, b3 = weights
    first = np.maximum(inputs @ w1 + b1, 0)
    second = np.maximum(first @ w2 + b2, 0)
    return inputs, first, second, second @ w3 + b3


def backward(weights, layers, delta):
    """Return the gradients of sum(delta * output) by the weights and by the inputs."""
    inputs, first, second, _ = layers
    w1, _, w2, _, w3, _ = weights
    to_second = (delta @ w3.T) * (second > 0)
    to_first = (to_second @ w2.T) * (first > 0)
    gradients = []
    for below, above in ((inputs, to_first), (first, to_second), (second, delta)):
        gradients += [below.T @ above, above.sum(axis=0)]
    return gradients, to_first @ w1.T


class Adam:
    """Adam (Kingma & Ba 2015), with epsilon added like in TensorFlow, before the bias corrections."""

    def __init__(self, weights, rate):
        self.rate, self.steps = rate, 0
        self.means, self.squares = ([np.zeros_like(array) for array in weights] for _ in range(2))

    def step(self, weights, gradients):
        self.steps += 1
        rate = self.rate * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for place, gradient in enumerate(gradients):
            self.means[place] = 0.9 * self.means[place] + 0.1 * gradient
            self.squares[place] = 0.999 * self.squares[place] + 0.001 * gradient**2
            weights[place] = weights[place] - rate * self.means[place] / (np.sqrt(self.squares[place]) + 1e-8)


def threefry(key, counter):
    """Threefry-2x32-20 with Python's integers."""
    mask, (left, right) = 2**32 - 1, counter
    keys = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    left, right = (left + keys[0]) & mask, (right + keys[1]) & mask
    for number in range(20):
        rotation = [13, 15, 26, 6, 17, 29, 16, 24][number % 8]
        left = (left + right) & mask
        right = ((right << rotation | right >> (32 - rotation)) & mask) ^ left
        if number % 4 == 3:
            block = number // 4 + 1
            left, right = (left + keys[block % 3]) & mask, (right + keys[(block + 1) % 3] + block) & mask
    return left, right


def normal(shape, seed, count):
    size = int(np.prod(shape))
    words = [threefry((seed, 0), (place, count)) for place in range((size + 1) // 2)]
    one, other = ((np.array(words) >> 8) + 1).T * 2.0**-24
    radius = np.sqrt(-2 * np.log(one))
    return np.concatenate([radius * np.cos(2 * np.pi * other), radius * np.sin(2 * np.pi * other)])[:size].reshape(
        shape
    )


class TD3:
    """Weights of actor, critics and their targets, with an update."""

    def __init__(self, actor, critics, targets, config, seed):
        self.actor, self.critics, self.targets = actor, critics, targets  # targets: the actor's, then the critics'
        self.config, self.seed, self.count = config, seed, 0
        self.optimizers = [Adam(actor, config.actor_learning_rate)]
        self.optimizers += [Adam(critic, config.critic_learning_rate) for critic in critics]

    def bounded(self, outputs):
        """Return the action for an output of the actor, and the factor of its bounding for an upward gradient."""
        if self.config.bounding == "squashing":
            squashed = np.tanh(outputs)
            return squashed, lambda upward: 1 - squashed**2
        if self.config.bounding == "inverting":
            return outputs, lambda upward: np.where(upward > 0, (1 - outputs) / 2, (outputs + 1) / 2)
        return outputs, lambda upward: np.abs(outputs) < 1

    def update(self, states, actions, rewards, next_states, terminated, cloning=1.0):
        config = self.config
        noise = config.target_policy_noise * normal(actions.shape, self.seed, self.count)
        noise = np.clip(noise, -config.target_noise_clip, config.target_noise_clip)
        target_actor, *target_critics = self.targets
        chosen = np.clip(np.clip(self.bounded(forward(target_actor, next_states)[-1])[0], -1, 1) + noise, -1, 1)
        joined = np.concatenate([next_states, chosen], axis=1)
        least = np.min([forward(critic, joined)[-1] for critic in target_critics], axis=0)
        y = rewards + config.gamma * (1 - terminated) * least
        for critic, optimizer in zip(self.critics, self.optimizers[1:], strict=True):
            layers = forward(critic, np.concatenate([states, actions], axis=1))
            optimizer.step(critic, backward(critic, layers, 2 * (layers[-1] - y) / len(y))[0])
        self.count += 1
        if self.count % config.policy_delay:
            return
        layers = forward(self.actor, states)
        mu, factor = self.bounded(layers[-1])
        valued = forward(self.critics[0], np.concatenate([states, mu], axis=1))
        upward = backward(self.critics[0], valued, np.ones_like(valued[-1]))[1][:, states.shape[1] :]
        if config.bc_alpha or config.bc_only:  # Fujimoto & Gu 2021, equations 3 to 5
            of_replayed = forward(self.critics[0], np.concatenate([states, actions], axis=1))[-1]
            upward = config.bc_alpha / np.abs(of_replayed).mean() * upward - 2 * cloning / mu.shape[1] * (mu - actions)
        upward = upward * factor(upward)
        self.optimizers[0].step(self.actor, backward(self.actor, layers, -upward / len(mu))[0])
        for target, online in zip(self.targets, [self.actor, *self.critics], strict=True):
            target[:] = [config.tau * new + (1 - config.tau) * old for new, old in zip(online, target, strict=True)]
