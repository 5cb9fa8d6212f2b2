"""Values computed by TensorFlow 1.15 and tflearn 0.5, reproduced by the public classes."""

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import Golden, assert_golden
from driven import learner_of

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, mlp
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.gradients import td
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1


def box(size, bound=np.inf):
    bound = np.broadcast_to(np.asarray(bound, np.float32), (size,))
    return gym.spaces.Box(-bound, bound)


@pytest.fixture(scope="module")
def networks():
    """The actor and critic of ``ddpg_chain_rule``, built once, and their initializer."""
    data = Golden("ddpg_chain_rule")
    tau = float(data["tau"])
    spaces = box(4), box(2, data["bound"])
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        actor = ActorNetwork(*spaces, network=mlp((8, 6)), learning_rate=float(data["actor_lr"]), tau=tau)
        critic = CriticNetwork(*spaces, network=mlp((8, 6)), learning_rate=float(data["critic_lr"]), tau=tau)
        yield data, actor, critic, session, v1.global_variables_initializer()


@pytest.fixture
def chain_rule(networks):
    """The actor and critic of ``ddpg_chain_rule`` with their initial weights, and the session."""
    data, actor, critic, session, initializer = networks
    with session.graph.as_default(), session.as_default():
        session.run(initializer)  # also the optimizer slots
        actor.set_network_params(data.list("init_actor"))
        critic.set_network_params(data.list("init_critic"))
        actor.sync_target_network()
        critic.sync_target_network()
        yield data, actor, critic, session


def batch_of(data, t):
    names = ("state", "action", "reward", "next_state", "terminal")
    return Batch(*(data[f"{t}/{name}"] for name in names))


def assert_weights(data, t, actor, critic, session):
    assert_golden(actor.get_network_params(), data.list(f"{t}/actor"))
    assert_golden(critic.get_network_params(), data.list(f"{t}/critic"))
    assert_golden(session.run(actor.target_variables), data.list(f"{t}/actor_target"))
    assert_golden(session.run(critic.target_variables), data.list(f"{t}/critic_target"))


def test_chain_rule_step_by_step(chain_rule):
    data, actor, critic, session = chain_rule
    for t in range(int(data["steps"])):
        batch = batch_of(data, t)
        next_q = critic.predict_target(batch.next_observations, actor.predict_target(batch.next_observations))
        y = batch.rewards + float(data["gamma"]) * (1 - batch.terminated) * next_q
        assert_golden(y, data[f"{t}/y"])
        assert_golden(critic.get_gradients(batch.observations, batch.actions, y), data.list(f"{t}/critic_grads"))
        assert_golden(critic.train(batch.observations, batch.actions, y), data[f"{t}/loss"])
        dqda = critic.action_gradients(batch.observations, actor.predict(batch.observations))
        assert_golden(dqda, data[f"{t}/dqda"])
        assert_golden(actor.get_gradients(batch.observations, dqda), data.list(f"{t}/actor_grads"))
        actor.train(batch.observations, dqda)
        actor.update_target_network()
        critic.update_target_network()
        assert_weights(data, t, actor, critic, session)


@pytest.mark.parametrize("driver", [pytest.param("compiled", marks=pytest.mark.slow), "uncompiled"])
def test_chain_rule_fused(chain_rule, driver):
    data, actor, critic, session = chain_rule
    update = DDPGUpdate(actor, critic, DDPGConfig(gamma=float(data["gamma"])))
    learner = learner_of(driver, update, 16, 1, fetch=actor.variables)
    for t in range(int(data["steps"])):
        batch = Batch(*(field[None] for field in batch_of(data, t)))
        metrics, weights, *_ = learner.update(session, batch, 1)
        assert_golden(metrics["critic_loss"], data[f"{t}/loss"])
        assert_golden(weights, data.list(f"{t}/actor"))
        assert_weights(data, t, actor, critic, session)


def test_ema_targets(golden, session, initialize):
    """Of a linear critic, whose layer has the golden file's W [4, 2] and b [2]."""
    data = golden("ema_targets")
    actor = ActorNetwork(box(4), box(2, 1.0), network=lambda states: states, tau=float(data["tau"]))
    initialize()
    actor.set_network_params(data.list("init"))
    actor.sync_target_network()
    assert_golden(session.run(actor.target_variables), data.list("shadow_init"))
    for t in range(int(data["steps"])):
        changes = zip(actor.get_network_params(), data.list(f"{t}/delta"), strict=True)
        actor.set_network_params([value + change for value, change in changes])
        actor.update_target_network()
        assert_golden(session.run(actor.target_variables), data.list(f"{t}/shadow"))


def test_tflearn_critic(golden, session, initialize):
    """A value network of 4 inputs is the critic of 3 observations and 1 action, concatenated at the input."""
    data = golden("tflearn_critic")
    critic = CriticNetwork(
        box(3), box(1, 10.0), network=mlp((8, 6)), optimizer=v1.train.RMSPropOptimizer, learning_rate=float(data["lr"])
    )
    initialize()
    critic.set_network_params(data.list("init"))
    for t in range(int(data["steps"])):
        states, actions = np.split(data[f"{t}/state"], [3], axis=1)
        y = data[f"{t}/y"]
        assert_golden(y - critic.predict(states, actions), data[f"{t}/td"])
        assert_golden(critic.get_gradients(states, actions, y), data.list(f"{t}/grads"))
        assert_golden(critic.train(states, actions, y), data[f"{t}/loss"])
        assert_golden(critic.get_network_params(), data.list(f"{t}/weights"))


def test_square(golden, graph, session):
    """y = w² + 2 at w = 10: compute_gradients returns (gradient, variable), tf.gradients only the gradient."""
    data = golden("square")
    w = v1.get_variable("w", initializer=10.0)
    y = w**2 + 2
    pair = v1.train.GradientDescentOptimizer(0.1).compute_gradients(y, [w])[0]
    session.run(v1.global_variables_initializer())
    assert_golden(np.array(session.run(pair)), data["compute_gradients"])
    assert_golden(np.array(session.run(tf.gradients(y, [w]))), data["gradients"])


@pytest.mark.slow
def test_make_golden_reproduces_the_golden_files():
    """In its own process, because the script disables eager mode. The README has the result of TensorFlow 1.15."""
    script = Path(__file__).parents[1] / "golden" / "make_golden.py"
    done = subprocess.run([sys.executable, script, "verify"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    verified = {line.split()[0] for line in done.stdout.splitlines() if "largest relative difference" in line}
    assert verified == {path.stem for path in script.parent.glob("*.npz")} - {"plain_runs"}  # written by plain_runs.py
    assert len(verified) == 6


# -- DQN: a Q-network's value of the taken action, with DDPG's TD paths ---------------------------------


def q_values(states, layers):
    """A Q-network of two layers [W, b, W, b]."""
    hidden = tf.nn.relu(states @ layers[0] + layers[1])
    return hidden @ layers[2] + layers[3]


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("r_max", [None, 2.5])
def test_dqn3_output_delta(golden, graph, session, clip, r_max):
    """Backpropagation of the delta from the output. DQN 3.0's dw is a sum for ascent: −B/2 times our gradient."""
    data = golden("dqn3_output_delta")
    case = f"clip_{clip}_rmax_{r_max}"
    variables = [v1.get_variable(f"v{i}", initializer=array) for i, array in enumerate(data.list("init"))]
    outputs = q_values(tf.constant(data["state"]), variables)
    q = tf.gather(outputs, data["action"][:, None], batch_dims=1)
    next_q = tf.reduce_max(q_values(tf.constant(data["next_state"]), data.list("init_target")), axis=1)
    rewards = data["reward"] / (r_max or 1.0)
    y = rewards + float(data["gamma"]) * (1 - data["terminal"]) * next_q
    gradients = [gradient for gradient, _ in td.output_delta(q, y[:, None], variables, clip_delta=clip)]
    batch_size = len(rewards)
    start = tf.gradients(q, outputs, td.output_delta(q, y[:, None], [q], clip_delta=clip)[0][0])[0]
    session.run(v1.global_variables_initializer())
    assert_golden(session.run(next_q), data[f"{case}/q2_max"])
    assert_golden([-batch_size / 2 * array for array in session.run(gradients)], data.list(f"{case}/dw"))
    assert_golden(-batch_size / 2 * session.run(start), data[f"{case}/targets"])
    assert_golden(session.run(start).sum(axis=1) * -batch_size / 2, data[f"{case}/delta"])
