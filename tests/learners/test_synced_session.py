"""A session that shares its variables with other code: assigning them, waiting for the lock, and exact products."""

import threading

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import filled

from ddpg import DDPG, DDPGConfig, mlp
from ddpg.learners.synced_session import SyncedSession, assign_variables

v1 = tf.compat.v1


def test_variables_with_one_initial_tensor_are_assigned_separately(graph):
    ones = tf.ones([2])
    variables = [v1.get_variable(name, initializer=ones, use_resource=True) for name in "abc"]
    variables.append(v1.get_variable("d", [2], use_resource=True))
    values = [np.full(2, number, np.float32) for number in range(4)]
    calls = []
    with SyncedSession() as session:

        def run(operations, feeds):
            calls.append(len(operations))
            session.run(operations, feeds)

        assign_variables(run, variables, values)
        np.testing.assert_array_equal(session.run(variables), values)
    assert calls == [2, 1, 1]


def test_a_gpu_multiplies_in_full_float32_precision():
    """XLA's program states the precision of a product; by TensorFlow's default it does not, and a GPU may use TF32."""

    def product():
        with tf.init_scope():  # run eagerly
            ones = tf.ones([2, 2])
            compiled = tf.function(lambda a, b: a @ b, jit_compile=True, autograph=False)
            return compiled.experimental_get_compiler_ir(ones, ones)(stage="hlo")

    tf.config.experimental.enable_tensor_float_32_execution(True)
    assert "operand_precision" not in product()
    SyncedSession().close()
    assert "operand_precision={highest,highest}" in product()


def with_one_initial_tensor(states):
    """A custom network whose gain and bias have the same initial tensor."""
    ones, features = tf.ones([8]), mlp((8,))(states)
    gain, bias = (v1.get_variable(name, initializer=ones, use_resource=True) for name in ("gain", "bias"))
    return features * gain + bias


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"jit": False}, id="plain", marks=pytest.mark.slow),
        pytest.param({"compiler": "native"}, id="native"),
    ],
)
def test_such_variables_of_a_custom_network_stay_separate(options):
    """Weights learned natively are read back, and setting what was read restores them."""
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    config = DDPGConfig(hidden=(8,), batch_size=4, updates_per_call=1, actor_learning_rate=0.1, **options)
    agent = filled(DDPG((box, box), config, seed=0, actor_network=with_one_initial_tensor))
    agent.update(3)
    before = agent.get_parameters()
    gain, bias = (
        next(value for name, value in before.items() if name.endswith(f"{end}:0")) for end in ("gain", "bias")
    )
    assert (gain != bias).any()
    agent.set_parameters(before)
    np.testing.assert_equal(agent.get_parameters(), before)


def test_a_run_waits_for_the_holder_of_the_lock(graph):
    """Neither ``run`` nor a callable reads variables while an update elsewhere holds the lock."""
    value = v1.get_variable("value", initializer=0.0, use_resource=True)
    with SyncedSession() as session:
        session.run(value.initializer)
        read = session.make_callable(value)
        begun, seen = threading.Barrier(3), []

        def read_after_start(function):
            begun.wait(60)
            seen.append(function())

        threads = [threading.Thread(target=read_after_start, args=(f,)) for f in (lambda: session.run(value), read)]

        def update():
            for thread in threads:
                thread.start()
            begun.wait(60)
            for thread in threads:  # they have started, and must wait
                thread.join(0.1)
            session.run_as_is(value.assign(1.0))

        session.lock(update)
        for thread in threads:
            thread.join(60)
    assert seen == [1.0, 1.0]
