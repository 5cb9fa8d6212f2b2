"""Each option with each gradient path: it changes what is learned, or both are refused by name."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from agent_options import OPTIONS, PATHS
from plain_runs import ACTIONS, SMALL, Swing

from ddpg import DDPG, DDPGConfig, UsageError

REFUSED = {
    *(("clip_delta", path) for path in ("stop_gradient", "placeholder", "residual_gradient")),
    *(("critic", path) for path in ("output_delta", "residual_gradient")),
    ("none", "residual_gradient"),
    ("huber", "output_delta"),
    *(("pre_activation_penalty", way) for way in ("inverting", "zeroing")),
}
SAME = [("target", "online", "residual_gradient")]  # the residual gradient's y is that of the online critic anyway


@functools.cache
def learned(options):
    """Return the weights after 30 steps, 14 of them with updates, as one row."""
    small = SMALL | {"hidden": (8, 8), "batch_size": 8, "learning_starts": 16, "output_init": "fan_in", "jit": False}
    one_by_one = ("td_target", "placeholder") in options
    env = gym.wrappers.TransformReward(Swing(ACTIONS), lambda reward: 10 * reward)
    config = DDPGConfig(**small | {"updates_per_call": 1 if one_by_one else 2} | dict(options))
    agent = DDPG(env, config, seed=1)
    agent.learn(30)
    with agent.session.as_default():
        weights = [np.ravel(a) for net in (agent.actor, agent.critic) for a in net.get_network_params()]
    return np.concatenate(weights)


def is_refused(name, value, path):
    return (name, path[1]) in REFUSED or (value, path[1]) in REFUSED


@pytest.mark.parametrize(
    ("name", "value", "needs", "path"),
    [
        pytest.param(name, value, needs, path, id=f"{name}={value}-{path[0]}={path[1]}", marks=marks)
        for path in PATHS
        for name, value, needs in OPTIONS
        for marks in [[pytest.mark.slow] * (not is_refused(name, value, path))]
    ],
)
def test_each_option_on_each_path(name, value, needs, path):
    base = needs | dict([path])
    options = (*(base | {name: value}).items(),)
    if is_refused(name, value, path):
        with pytest.raises(UsageError) as refusal:
            learned(options)
        for word in (name, str(value), *path):
            assert word in str(refusal.value)
        return
    weights, before = learned(options), learned((*base.items(),))
    assert np.isfinite(weights).all()
    changed = weights.shape != before.shape or np.abs(weights - before).max() > 1e-6
    assert changed == ((name, value, path[1]) not in SAME)
