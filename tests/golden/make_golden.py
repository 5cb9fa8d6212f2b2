"""Compute the golden files with TensorFlow 1.15 and tflearn 0.5, or compare the results with the stored files.

    python tests/golden/make_golden.py verify          # largest difference of every file to the stored values
    python tests/golden/make_golden.py make FOLDER     # recompute the files into FOLDER

Inputs (minibatches, initial weights, hyperparameters) are read from the stored files, and results are computed; the
stored files must contain nothing else. Everything is plain graph-mode TensorFlow and tflearn, as tutorials of that time
were written, and does not import this package's mathematics. It runs on Python 3.7 with TensorFlow 1.15, and on today's
TensorFlow through ``tf.compat.v1``. See README.md in this folder.
"""

# ruff: noqa: B905 - Python 3.7, for which this is written, has no zip(strict=)

import argparse
import os
import platform
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

HERE = Path(__file__).resolve().parent
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()
v1.logging.set_verbosity(v1.logging.ERROR)

if tf.__version__.startswith("1."):
    import tflearn
else:  # unmodified tflearn 0.5 cannot be imported with today's TensorFlow
    sys.path.insert(0, str(HERE.parents[1]))
    from ddpg._tflearn import tflearn

STORED_TO = 1e-5  # relative to the largest value of the array, as in the tests


class Inputs:
    """A stored file that records which of its keys were read."""

    def __init__(self, name):
        with np.load(str(HERE / (name + ".npz")), allow_pickle=False) as file:
            self.stored = {key: file[key] for key in file.files}
        self.used = set()

    def __getitem__(self, key):
        self.used.add(key)
        return self.stored[key]

    def list(self, key):
        count = sum(name.rpartition("/")[0] == key for name in self.stored)
        return [self[f"{key}/{index}"] for index in range(count)]


def put(results, key, value):
    """Store an array, or a list of arrays as key/0, key/1, ..."""
    if isinstance(value, list):
        for index, array in enumerate(value):
            put(results, f"{key}/{index}", array)
    else:
        results[key] = np.asarray(value)


def assign(session, variables, arrays):
    assert len(variables) == len(arrays) > 0
    for variable, array in zip(variables, arrays):
        variable.load(array, session)


class Built:
    """The output of a function that builds layers, with the variables in the order of their creation."""

    def __init__(self, build, *inputs):
        before = len(v1.trainable_variables())
        self.out = build(*inputs)
        self.variables = v1.trainable_variables()[before:]


def hidden(net):
    for units in (8, 6):
        net = tflearn.fully_connected(net, units, activation="relu")
    return net


def tflearn_value(*inputs):
    """The critic of the DDPG tutorials: 8-6 ReLU on the concatenated inputs, and a linear output."""
    net = inputs[0] if len(inputs) == 1 else tf.concat(inputs, 1)
    return tflearn.fully_connected(hidden(net), 1)


def ddpg_chain_rule(data):
    """Five updates of DDPG: fed targets, the action gradient fetched and fed back, soft targets by assignment."""
    bound, tau, gamma = data["bound"], float(data["tau"]), float(data["gamma"])
    placeholder = v1.placeholder

    def policy(states):
        return tflearn.fully_connected(hidden(states), 2, activation="tanh") * bound

    s, a = placeholder(tf.float32, [None, 4]), placeholder(tf.float32, [None, 2])
    y, dqda_fed = placeholder(tf.float32, [None, 1]), placeholder(tf.float32, [None, 2])
    actor, critic = Built(policy, s), Built(tflearn_value, s, a)
    actor_target, critic_target = Built(policy, s), Built(tflearn_value, s, a)

    loss = tflearn.mean_square(critic.out, y)
    critic_optimizer = v1.train.AdamOptimizer(float(data["critic_lr"]))
    critic_pairs = critic_optimizer.compute_gradients(loss, critic.variables)
    critic_step = critic_optimizer.apply_gradients(critic_pairs)
    dqda = tf.gradients(critic.out, a)[0]
    batch_size = len(data["0/state"])
    summed = tf.gradients(actor.out, actor.variables, -dqda_fed)
    actor_gradients = [gradient / batch_size for gradient in summed]
    actor_step = v1.train.AdamOptimizer(float(data["actor_lr"])).apply_gradients(
        list(zip(actor_gradients, actor.variables))
    )
    soft = [
        target.assign(tau * online + (1 - tau) * target)
        for online, target in zip(actor.variables + critic.variables, actor_target.variables + critic_target.variables)
    ]

    results = {}
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for name, networks in (("init_actor", (actor, actor_target)), ("init_critic", (critic, critic_target))):
            for network in networks:
                assign(session, network.variables, data.list(name))
        for t in range(int(data["steps"])):
            names = ("state", "action", "reward", "next_state", "terminal")
            state, action, reward, next_state, terminal = (data[f"{t}/{name}"] for name in names)
            next_action = session.run(actor_target.out, {s: next_state})
            next_q = session.run(critic_target.out, {s: next_state, a: next_action})
            target = (reward + gamma * (1 - terminal) * next_q).astype(np.float32)
            feed = {s: state, a: action, y: target}
            put(results, f"{t}/y", target)
            put(results, f"{t}/critic_grads", session.run([gradient for gradient, _ in critic_pairs], feed))
            put(results, f"{t}/loss", session.run(loss, feed))
            session.run(critic_step, feed)
            feed = {s: state, a: session.run(actor.out, {s: state})}
            put(results, f"{t}/dqda", session.run(dqda, feed))
            feed = {s: state, dqda_fed: results[f"{t}/dqda"]}
            put(results, f"{t}/actor_grads", session.run(actor_gradients, feed))
            session.run(actor_step, feed)
            session.run(soft)
            for name, network in (
                ("actor", actor),
                ("critic", critic),
                ("actor_target", actor_target),
                ("critic_target", critic_target),
            ):
                put(results, f"{t}/{name}", session.run(network.variables))
    return results


def q_network(states, arrays):
    """One hidden layer of 8 ReLU units, and 3 actions; the arrays are the initial values."""
    layers = [v1.get_variable(str(index), initializer=array) for index, array in enumerate(arrays)]
    return tf.nn.relu(states @ layers[0] + layers[1]) @ layers[2] + layers[3], layers


def dqn_targets(data):
    """Five updates of a Q-network with each of three TD paths; mean over [B] of the taken action's error."""
    results = {}
    for path in ("placeholder", "stop_gradient", "leaking"):
        with tf.Graph().as_default(), v1.Session() as session:
            s, s_next = (v1.placeholder(tf.float32, [None, 4]) for _ in range(2))
            a, r = v1.placeholder(tf.int32, [None]), v1.placeholder(tf.float32, [None])
            fed = v1.placeholder(tf.float32, [None])
            with v1.variable_scope("eval"):
                q_eval, w_eval = q_network(s, data.list("init_eval"))
            with v1.variable_scope("next"):
                q_next, w_next = q_network(s_next, data.list("init_next"))
            target = r + float(data["gamma"]) * tf.reduce_max(q_next, axis=1)
            used = {"placeholder": fed, "stop_gradient": tf.stop_gradient(target), "leaking": target}[path]
            taken = tf.reduce_sum(q_eval * tf.one_hot(a, 3), axis=1)
            loss = tf.reduce_mean(v1.squared_difference(used, taken))
            optimizer = v1.train.RMSPropOptimizer(float(data["lr"]))
            pairs = optimizer.compute_gradients(loss, w_eval)
            into_next = [
                tf.zeros_like(variable) if gradient is None else gradient
                for gradient, variable in zip(tf.gradients(loss, w_next), w_next)
            ]
            step = optimizer.apply_gradients(pairs)
            session.run(v1.global_variables_initializer())
            for t in range(int(data["steps"])):
                feed = {s: data[f"{t}/state"], s_next: data[f"{t}/next_state"]}
                feed.update({a: data[f"{t}/action"], r: data[f"{t}/reward"]})
                if path == "placeholder":
                    feed[fed] = session.run(target, feed)
                fetches = loss, [gradient for gradient, _ in pairs], into_next
                for name, value in zip(("loss", "grads", "target_net_grads"), session.run(fetches, feed)):
                    put(results, f"{path}/{t}/{name}", value)
                session.run(step, feed)
                put(results, f"{path}/{t}/weights", session.run(w_eval))
    return results


def dqn3_output_delta(data):
    """DQN 3.0's getQUpdate, line by line, and the backward pass from the output in its qLearnMinibatch."""
    results = {}
    action, terminal = data["action"], data["terminal"]
    rows = np.arange(len(action))
    with v1.Session() as session:
        with v1.variable_scope("network"):
            q_all, w = q_network(tf.constant(data["state"]), data.list("init"))
        with v1.variable_scope("target_network"):
            q2_all, _ = q_network(tf.constant(data["next_state"]), data.list("init_target"))
        start = v1.placeholder(tf.float32, [None, 3])
        backward = tf.gradients(q_all, w, grad_ys=start)
        session.run(v1.global_variables_initializer())
        for clip in (None, 1.0):
            for r_max in (None, 2.5):
                case = f"clip_{clip}_rmax_{r_max}"
                q2_max = session.run(tf.reduce_max(q2_all, axis=1))
                delta = data["reward"] if r_max is None else data["reward"] / np.float32(r_max)
                delta = delta + np.float32(data["gamma"]) * (1 - terminal) * q2_max
                delta = delta - session.run(q_all)[rows, action]
                if clip is not None:
                    delta = np.clip(delta, -clip, clip)
                targets = np.zeros((len(action), 3), np.float32)
                targets[rows, action] = delta
                put(results, case + "/delta", delta.astype(np.float32))
                put(results, case + "/targets", targets)
                put(results, case + "/q2_max", q2_max)
                put(results, case + "/dw", session.run(backward, {start: targets}))
    return results


def ema_targets(data):
    """Shadows of ExponentialMovingAverage while their variables change."""
    results = {}
    with v1.Session() as session:
        variables = [v1.get_variable(f"v{index}", initializer=array) for index, array in enumerate(data.list("init"))]
        average = tf.train.ExponentialMovingAverage(1 - float(data["tau"]))
        move = average.apply(variables)
        shadows = [average.average(variable) for variable in variables]
        session.run(v1.global_variables_initializer())
        put(results, "shadow_init", session.run(shadows))
        for t in range(int(data["steps"])):
            change = data.list(f"{t}/delta")
            session.run([v.assign_add(array) for v, array in zip(variables, change)])
            session.run(move)
            put(results, f"{t}/shadow", session.run(shadows))
    return results


def tflearn_critic(data):
    """Five steps of RMSProp on tflearn's mean_square."""
    results = {}
    s, y = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 1])
    critic = Built(tflearn_value, s)
    loss = tflearn.mean_square(critic.out, y)
    optimizer = v1.train.RMSPropOptimizer(float(data["lr"]))
    pairs = optimizer.compute_gradients(loss, critic.variables)
    step = optimizer.apply_gradients(pairs)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assign(session, critic.variables, data.list("init"))
        for t in range(int(data["steps"])):
            feed = {s: data[f"{t}/state"], y: data[f"{t}/y"]}
            fetches = y - critic.out, loss, [gradient for gradient, _ in pairs]
            for name, value in zip(("td", "loss", "grads"), session.run(fetches, feed)):
                put(results, f"{t}/{name}", value)
            session.run(step, feed)
            put(results, f"{t}/weights", session.run(critic.variables))
    return results


def square(data):
    """The results of compute_gradients and tf.gradients for y = w² + 2 at w = 10."""
    w = v1.get_variable("w", initializer=10.0)
    y = w**2 + 2
    pair = v1.train.GradientDescentOptimizer(0.1).compute_gradients(y, [w])[0]
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return {
            "compute_gradients": np.array(session.run(pair)),
            "gradients": np.array(session.run(tf.gradients(y, [w]))),
        }


FILES = (ddpg_chain_rule, dqn_targets, dqn3_output_delta, ema_targets, tflearn_critic, square)


def compute(function):
    """Return the stored file and the results, after checking that the file contains nothing else."""
    data = Inputs(function.__name__)
    with tf.Graph().as_default():
        results = function(data)
    assert data.used.isdisjoint(results), "an input is also a result"
    assert data.used | set(results) == set(data.stored), sorted(set(data.stored) ^ (data.used | set(results)))
    return data, results


def difference(one, other):
    """Return the largest difference, relative to the largest value of the second."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    largest = np.abs(other).max() or 1.0
    return float(np.abs(one.astype(np.float64) - other).max() / largest)


def verify():
    """Print the largest difference of each file to the stored values; return whether all are within STORED_TO."""
    good = True
    for function in FILES:
        data, results = compute(function)
        differences = {key: difference(array, data.stored[key]) for key, array in results.items()}
        worst = max(differences, key=differences.get)
        same = sum(value == 0 for value in differences.values())
        good = good and differences[worst] <= STORED_TO
        print(
            f"{function.__name__:18} {len(results):4} arrays, {same:4} the same to the last bit; "
            f"largest relative difference {differences[worst]:.1e} ({worst})"
        )
    return good


def make(folder):
    """Write every file into a folder, with the stored inputs and the computed results."""
    folder.mkdir(parents=True, exist_ok=True)
    for function in FILES:
        data, results = compute(function)
        arrays = {key: results.get(key, array) for key, array in data.stored.items()}
        np.savez(str(folder / (function.__name__ + ".npz")), **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("verify", "make"))
    parser.add_argument("folder", nargs="?", type=Path, help="for make: where the files go")
    chosen = parser.parse_args()
    if chosen.mode == "make" and chosen.folder is None:
        parser.error("make needs a folder")
    print("Python", platform.python_version(), " TensorFlow", tf.__version__, " NumPy", np.__version__)
    if chosen.mode == "make":
        make(chosen.folder)
    else:
        sys.exit(0 if verify() else 1)
