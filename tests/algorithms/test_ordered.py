"""Within one update no read of a variable races with a write: a session runs ops without dependencies in any order.

The order matters if y is computed by the online networks in inference mode, with moving statistics, which the training
pass of the same update moves.
"""

import itertools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from ddpg import DDPGConfig, DQNConfig
from ddpg.algorithms.registry import update_of
from ddpg.learners.graph import UncompiledLearner

v1 = tf.compat.v1

STATES, ACTIONS = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
IMAGES = gym.spaces.Box(-1, 1, (4, 4, 1), np.float32)
SMALL = {"hidden": (4,), "batch_size": 4}
TD3 = {"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2}
CONFIGS = {
    "ddpg": DDPGConfig(**SMALL),
    "ddpg, batch norm": DDPGConfig(**SMALL, norm="batch"),
    "online": DDPGConfig(**SMALL, target="online"),
    "online, batch norm": DDPGConfig(**SMALL, target="online", norm="batch"),
    "online, batch renorm, lap": DDPGConfig(**SMALL, target="online", norm="renorm", prioritised="lap"),
    "residual gradient, batch norm": DDPGConfig(**SMALL, td_target="residual_gradient", norm="batch"),
    "surrogate, batch norm": DDPGConfig(**SMALL, policy_gradient="surrogate", norm="batch"),
    "td3, batch norm": DDPGConfig(**SMALL, **TD3, norm="batch"),
    "td3, online, batch renorm": DDPGConfig(**SMALL, **TD3, target="online", norm="renorm"),
    "crossq": DDPGConfig(**SMALL, **TD3, target="none", norm="renorm_soft"),
    "crossq, categorical": DDPGConfig(**SMALL, **TD3, target="none", norm="renorm_soft", critic="categorical"),
    "ddpg, weight decay": DDPGConfig(**SMALL, weight_decay=0.1, critic_l2=0.1, max_gradient_norm=1.0),
    "td3+bc, batch norm": DDPGConfig(**SMALL, **TD3, norm="batch", bc_alpha=2.5),
    "crossq, projections, averaged actor": DDPGConfig(
        **SMALL | TD3 | {"target": "none", "norm": "renorm_soft", "actor_average": 10},
        **{"weight_projection": True, "affine_projection": True},
    ),
    "crossq, distributional": DDPGConfig(**SMALL, **TD3, target="none", norm="renorm_soft", critic="distributional"),
    "joint pass of averages": DDPGConfig(**SMALL, **TD3, target="joint_ema", norm="renorm_soft"),
    "shared encoder": DDPGConfig(**SMALL, network="conv", shared_encoder=True),
    "crossq, shared encoder, averaged actor": DDPGConfig(
        **SMALL | TD3 | {"target": "none", "norm": "renorm_soft", "actor_average": 10},
        **{"network": "conv", "shared_encoder": True},
    ),
    "dqn, batch norm": DQNConfig(**SMALL, norm="batch"),
    "double dqn, batch norm": DQNConfig(**SMALL, norm="batch", double_q=True),
    "dqn, online, renorm": DQNConfig(**SMALL, norm="renorm", target="online"),
    "dqn, affine projection": DQNConfig(**SMALL, norm="batch", affine_projection=True),
    "dqn, hard copies": DQNConfig(**SMALL, norm="batch", target_update_interval=3),
}


# Slow: other cases read and write the same variables, and more.
LONG = (
    *("ddpg", "ddpg, batch norm", "td3, batch norm", "td3+bc, batch norm", "surrogate, batch norm"),
    *("online", "online, batch norm", "online, batch renorm, lap", "crossq", "crossq, categorical"),
    *("td3, online, batch renorm", "crossq, distributional", "joint pass of averages"),
    "crossq, shared encoder, averaged actor",
    *("dqn, batch norm", "dqn, online, renorm", "dqn, affine projection"),
)


def whole_update(config):
    """Return the operations that one update of ``config`` fetches."""
    kind = update_of(config)
    space = gym.spaces.Discrete(3) if isinstance(config, DQNConfig) else ACTIONS
    update = kind.build(config, (IMAGES if config.network == "conv" else STATES, space))
    learner = UncompiledLearner(update, batch_size=config.batch_size, updates_per_call=1)
    return [tensor.op for tensor in learner._whole.values()]


def accesses(operations):
    """Return for each variable the operations that read it, and those that may write it."""
    found = {}
    for operation in operations:
        for handle in operation.inputs:
            if handle.dtype == tf.resource and operation.type != "VarIsInitializedOp":
                reads, writes = found.setdefault(handle.op.name, (set(), set()))
                (reads if operation.type == "ReadVariableOp" else writes).add(operation)
    return found


class Order:
    """Every operation that ``fetched`` depends on, with all that run before it, as a bit set."""

    def __init__(self, fetched):
        self._before, self._bits, stack = {}, {}, [*fetched]
        while stack:
            operation = stack[-1]
            earlier = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
            missing = [one for one in earlier if one not in self._before]
            if missing:
                stack += missing
                continue
            stack.pop()
            if operation not in self._before:
                self._bits[operation] = before = 1 << len(self._bits)
                for one in earlier:
                    before |= self._before[one]
                self._before[operation] = before

    def __iter__(self):
        return iter(self._bits)

    def is_ordered(self, one, other):
        """Return whether one of two operations always runs before the other."""
        return bool(self._before[other] & self._bits[one] or self._before[one] & self._bits[other])


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in CONFIGS])
def test_every_read_and_write_of_a_variable_are_in_order(name, graph):
    order = Order(whole_update(CONFIGS[name]))
    found = accesses(order)
    assert any(writes for _, writes in found.values())
    races = [
        (variable, one.name, write.name)
        for variable, (reads, writes) in found.items()
        for one, write in itertools.chain(itertools.product(reads, writes), itertools.combinations(writes, 2))
        if not order.is_ordered(one, write)
    ]
    assert not races, races[:3]
