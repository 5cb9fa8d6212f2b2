"""``compare_paths`` with custom paths: those of the documentation, with their own losses, or of the wrong sign."""

import warnings

import gymnasium as gym
import pytest
import tensorflow as tf

from ddpg import DDPGConfig, compare_paths
from ddpg.gradients.policy import chain_rule
from ddpg.gradients.td import stop_gradient
from ddpg.laboratory.compare import milliseconds_compiled

CONFIG = DDPGConfig(hidden=(8,), batch_size=16, optimizer="sgd")


@pytest.fixture
def without_compiled_timings(monkeypatch):
    """Skip timing the compiled paths, which takes most of a comparison's time."""
    monkeypatch.setattr("ddpg.laboratory.compare._compiled", lambda *_: None)


def expectile_loss(q, target):
    error = tf.stop_gradient(target) - q
    weight = tf.where(error > 0, tf.constant(0.9, error.dtype), tf.constant(0.1, error.dtype))
    return tf.reduce_mean(weight * tf.square(error))


def expectile(q, target, variables):
    return list(zip(tf.gradients(expectile_loss(q, target), variables), variables, strict=True))


expectile.loss = expectile_loss


def halved(q, target, variables):
    """Return the gradient of half its declared loss."""
    return [(gradient / 2, variable) for gradient, variable in expectile(q, target, variables)]


halved.loss = expectile_loss


def plain(q, target, variables):
    """Mean squares by ``tf.gradients``, as in the documentation, without a declared loss."""
    loss = tf.reduce_mean(tf.square(q - tf.stop_gradient(target)))
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


def by_rows(q, target, variables):
    """The same, with the gradients of matrices as the rows of an embedding have them."""
    return [
        (tf.IndexedSlices(gradient, tf.range(variable.shape[0]), tf.shape(variable)), variable)
        if variable.shape.rank == 2
        else (gradient, variable)
        for gradient, variable in plain(q, target, variables)
    ]


def negated(actor, critic, states):
    return [(-gradient, variable) for gradient, variable in chain_rule(actor, critic, states)]


def cloning(actor, critic, states, batch):
    """The path of docs/how_to/path.md: −∇θJ of Q, with the gradient of mean (μ(s) − a)² added."""
    actions = actor(states, training=True)
    towards_q = actor.policy_gradients(actions, critic.action_gradient(states, actions))
    error = tf.reduce_mean(tf.square(actions - batch.actions))
    towards_replayed = actor.optimizer.compute_gradients(error, actor.trainable_variables)
    return [(g + h, variable) for (g, variable), (h, _) in zip(towards_q, towards_replayed, strict=True)]


def mostly_online(q, target, variables):
    """Baird's mix of the residual gradient, weighted by 0.1, and the semi-gradient."""
    loss = tf.reduce_mean(0.1 * tf.square(q - target) + 0.9 * tf.square(q - tf.stop_gradient(target)))
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


mostly_online.bootstraps_online = True


def compare(td_targets, policy_gradients, config=CONFIG, seed=0):
    env = gym.make("Pendulum-v1")
    return compare_paths(env, config, seed=seed, td_targets=td_targets, policy_gradients=policy_gradients)


@pytest.mark.usefixtures("without_compiled_timings")
def test_a_path_may_return_gradients_of_rows():
    _, row = compare({"stop_gradient": stop_gradient, "rows": by_rows}, {})["td"]
    assert row["difference"]["equal"]
    assert row["finite_difference"]["max_relative"] < 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiled_timings")
def test_a_td_path_is_compared_with_its_own_loss():
    paths = {"stop_gradient": stop_gradient, "plain": plain, "expectile": expectile, "halved": halved}
    original = tf.gradients
    rows = {row["path"]: row for row in compare(paths, {})["td"]}
    assert rows["plain"]["difference"]["equal"]
    for name in ("stop_gradient", "plain", "expectile"):
        assert rows[name]["finite_difference"]["max_relative"] < 1e-4, name
    assert rows["halved"]["finite_difference"]["max_relative"] == pytest.approx(0.5, abs=1e-3)
    assert rows["expectile"]["finite_difference"]["cosine"] == pytest.approx(1, abs=1e-6)
    assert tf.gradients is original


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiled_timings")
def test_a_wrong_sign_warns_by_name_unless_its_check_is_off():
    def unchecked(actor, critic, states):
        return negated(actor, critic, states)

    unchecked.sign_is_checked = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = compare({}, {"chain_rule": chain_rule, "negated": negated, "unchecked": unchecked})
    about_signs = [warning for warning in caught if "sign" in str(warning.message)]
    assert len(about_signs) == len({row["bounding"] for row in report["policy"]})
    assert all("'negated'" in str(warning.message) for warning in about_signs)
    assert {warning.filename for warning in about_signs} == {__file__}  # the caller of compare_paths


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiled_timings")
def test_a_wrong_sign_of_a_td_path_warns():
    def uphill(q, target, variables):
        return [(-gradient, variable) for gradient, variable in stop_gradient(q, target, variables)]

    with pytest.warns(UserWarning, match="'uphill'"):
        compare({"stop_gradient": stop_gradient, "uphill": uphill}, {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("without_compiled_timings")
def test_terms_without_q_and_moving_targets_do_not_warn(seed):
    """Their gradients point away from the central differences, which cover Q alone, and all of y's gradient."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = compare({"mostly_online": mostly_online}, {"cloning": cloning}, CONFIG.replace(hidden=(8, 8)), seed)
    cosines = [row["finite_difference"]["cosine"] for kind in ("td", "policy") for row in report[kind]]
    assert min(cosines) < 0


def constant_target(q, target, variables):
    """Hold the target constant by ``stop_gradients``; return the pairs in reverse order."""
    loss = tf.reduce_mean(tf.square(q - target))
    gradients = tf.gradients([loss], variables, stop_gradients=[target], unconnected_gradients="zero")
    return list(zip(gradients, variables, strict=True))[::-1]


def chained(actor, critic, states):
    """Apply the chain rule by ``tf.gradients``."""
    actions, variables = actor(states, training=True), actor.trainable_variables
    bounded = actor.bound_action_gradient(critic.action_gradient(states, actions), actions)
    gradients = tf.gradients(actions, variables, -bounded / tf.cast(tf.shape(actions)[0], tf.float32))
    return list(zip(gradients, variables, strict=True))


def weighed(actor, critic, states, batch):
    """Scale the gradient by Q of the replayed actions."""
    scale = tf.stop_gradient(1 / tf.reduce_mean(tf.abs(critic(states, batch.actions))))
    return [(scale * gradient, variable) for gradient, variable in chain_rule(actor, critic, states)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiled_timings")
def test_paths_of_other_calls_are_compared_and_traced():
    """The edge to the weights has the gradient's norm before ``weighed`` scales the result of the backward pass."""
    policies = {"chain_rule": chain_rule, "chained": chained, "cloning": cloning, "weighed": weighed}
    report = compare({"stop_gradient": stop_gradient, "constant_target": constant_target}, policies)
    rows = {(row["path"], row.get("bounding")): row for kind in ("td", "policy") for row in report[kind]}
    edges = {key: {(e["source"], e["destination"]): e for e in row["edges"]} for key, row in rows.items()}
    constant = rows["constant_target", None]
    assert constant["difference"]["equal"]
    assert constant["reached"] == rows["stop_gradient", None]["reached"]
    for path in ("stop_gradient", "constant_target"):
        assert edges[path, None]["y", "start"]["stopped"]
        norm = edges[path, None]["critic", "q"]["norm"]
        assert norm == pytest.approx(constant["gradient_norm"], rel=1e-5)
    for path, bounding in [key for key in rows if key[1] is not None]:
        row, drawn = rows[path, bounding], edges[path, bounding]
        assert (path in ("chain_rule", "chained")) == row["difference"]["equal"]
        unscaled = rows["chain_rule" if path == "weighed" else path, bounding]
        assert drawn["actor", "mu"]["norm"] == pytest.approx(unscaled["gradient_norm"], rel=1e-5)
        assert (path == "cloning") == (("a", "start") in drawn)
        assert drawn["bounding", "start"]["stopped"]


def dense_layer(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.nn.tanh(tf.matmul(x, tf.compat.v1.get_variable("w", [int(x.shape[-1]), 5])))


@pytest.mark.slow
@pytest.mark.usefixtures("without_compiled_timings")
def test_custom_networks_are_compared():
    config = CONFIG.replace(actor_network=dense_layer, critic_network=dense_layer)
    report = compare({"stop_gradient": stop_gradient, "plain": plain}, {"chain_rule": chain_rule}, config)
    assert all(row["finite_difference"]["max_relative"] < 1e-4 for kind in ("td", "policy") for row in report[kind])
    assert report["td"][1]["difference"]["equal"]
    assert report["td"][0]["reached"]["critic"] == 3  # w, and the output layer's weights and bias


def test_what_xla_cannot_compile_has_no_compiled_time():
    """tf.numpy_function runs in a session, and not in XLA."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2])

        def doubled(value):
            return 2 * value

        def doubled_in_numpy(value):
            return tf.numpy_function(doubled, [value], tf.float32)

        durations = [
            milliseconds_compiled(session, [tf.function(function, jit_compile=True, autograph=False)(x)], {x: [1, 2]})
            for function in (doubled, doubled_in_numpy)
        ]
    assert durations[0] > 0
    assert durations[1] is None
