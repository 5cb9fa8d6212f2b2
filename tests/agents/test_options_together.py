"""Each option of the family on each way of the gradient: it changes what is learned, or both are refused by name."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from plain_runs import ACTIONS, SMALL, Swing

from ddpg import DDPG, DDPGConfig, UsageError

# Name, value, and what it needs beside it.
OPTIONS = [
    ("n_critics", 2, {}),
    ("policy_delay", 2, {}),
    ("target_policy_noise", 0.2, {}),
    ("target_noise_clip", 0.1, {"target_policy_noise": 0.5}),
    ("n_steps", 3, {}),
    ("prioritised", "proportional", {}),
    ("prioritised", "lap", {}),
    ("normalize_observations", True, {}),
    ("normalize_rewards", True, {}),
    ("pre_activation_penalty", 0.1, {}),
    ("max_gradient_norm", 0.01, {}),
    ("critic_l2", 0.1, {}),
    ("weight_decay", 0.1, {}),
    ("bc_alpha", 2.5, {}),
    ("bc_only", True, {}),
    ("weight_projection", True, {}),
    ("block", "residual", {}),
    ("norm", "layer", {}),
    ("parameter_noise", 0.2, {}),
    ("noise_schedule", "linear", {"exploration_steps": 60}),
    ("learning_rate_schedule", "linear", {}),
    ("actor_learning_rate_schedule", "linear", {}),
    ("updates_per_step", 2.0, {}),
    ("gamma", 0.9, {}),
    ("target", "online", {}),
    ("target", "none", {"critic_norm": "renorm"}),
    ("critic", "categorical", {}),
    ("critic", "distributional", {}),
    ("critic_loss", "huber", {}),
    ("clip_delta", 0.01, {"td_target": "output_delta"}),
]
PATHS = [
    *(("td_target", path) for path in ("stop_gradient", "placeholder", "output_delta", "residual_gradient")),
    *(("bounding", way) for way in ("inverting", "zeroing")),
    *(("policy_gradient", path) for path in ("direct", "surrogate")),
]
IN_EVERY_RUN = ("n_critics", "pre_activation_penalty", "critic", "clip_delta")
REFUSED = {
    *(("clip_delta", path) for path in ("stop_gradient", "placeholder", "residual_gradient")),
    *(("critic", path) for path in ("output_delta", "residual_gradient")),
    ("none", "residual_gradient"),
    ("huber", "output_delta"),
    *(("pre_activation_penalty", way) for way in ("inverting", "zeroing")),
}
SAME = [("target", "online", "residual_gradient")]  # what goes back through y has y of the online critic anyhow


@functools.cache
def learned(options):
    """Return the weights after 30 steps of which the last 14 learned, all in one row."""
    small = SMALL | {"hidden": (8, 8), "batch_size": 8, "learning_starts": 16, "output_init": "fan_in", "jit": False}
    one_by_one = ("td_target", "placeholder") in options
    env = gym.wrappers.TransformReward(Swing(ACTIONS), lambda reward: 10 * reward)
    config = DDPGConfig(**small | {"updates_per_call": 1 if one_by_one else 2} | dict(options))
    agent = DDPG(env, config, seed=1)
    agent.learn(30)
    with agent.session.as_default():
        weights = [np.ravel(a) for net in (agent.actor, agent.critic) for a in net.get_network_params()]
    return np.concatenate(weights)


@pytest.mark.parametrize("path", PATHS, ids="=".join)
@pytest.mark.parametrize(
    ("name", "value", "needs"),
    [
        pytest.param(name, value, needs, id=f"{name}={value}", marks=() if name in IN_EVERY_RUN else pytest.mark.slow)
        for name, value, needs in OPTIONS
    ],
)
def test_each_option_on_each_path(name, value, needs, path):
    base = needs | dict([path])
    options = (*(base | {name: value}).items(),)
    if (name, path[1]) in REFUSED or (value, path[1]) in REFUSED:
        with pytest.raises(UsageError) as refusal:
            learned(options)
        for told in (name, str(value), *path):
            assert told in str(refusal.value)
        return
    weights, before = learned(options), learned((*base.items(),))
    assert np.isfinite(weights).all()
    changed = weights.shape != before.shape or np.abs(weights - before).max() > 1e-6
    assert changed == ((name, value, path[1]) not in SAME)
