"""``trace_update`` shows where gradients flow in an agent's update, and how options change it."""

import dataclasses
import functools
import itertools
import json
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from environments import Screen
from refusals import lacking, refuses

from ddpg import DDPG, DDPGConfig, UsageError, compare_paths
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.registry import ALGORITHMS, Algorithm
from ddpg.checkpoints import atomic_write
from ddpg.cli.main import main
from ddpg.laboratory import flow
from ddpg.laboratory.flow import RANDOM_STEPS, trace_update
from ddpg.laboratory.picture import draw_update, layout_nodes
from ddpg.laboratory.text import update_text

CONFIG = DDPGConfig(hidden=(8,), batch_size=16, optimizer="sgd")
TWINS = {"n_critics": 2, "target_policy_noise": 0.2}
ONLINE = {"target": "online", "bc_alpha": 2.5}
RESIDUAL = {"n_critics": 2, "td_target": "residual_gradient", "policy_gradient": "direct"}
JOINT = {"target": "none", "critic_norm": "renorm", "n_critics": 2}
AVERAGES = {**JOINT, "target": "joint_ema"}
NOT_TRACED = {"n_steps": 5, "normalize_rewards": True, "prioritised": "proportional", "precision": "bfloat16"}


UPDATES = 10  # instead of a hundred, which take longer than the tracing


@pytest.fixture(autouse=True)
def few_updates(monkeypatch):
    monkeypatch.setattr(flow, "UPDATES", UPDATES)


@functools.cache
def trace(**options):
    with gym.make("Pendulum-v1") as env:
        return trace_update(env, CONFIG.replace(**options), seed=0)


def backward(edges):
    """Return the edges that carry a gradient to a node other than data: ``{(from, to): trained}``."""
    data = {"s", "a", "r", "next_s"}
    return {
        (edge["destination"], edge["source"]): edge["trained"]
        for edge in edges
        if edge["norm"] is not None and edge["source"] not in data
    }


def stops(edges):
    return {(edge["destination"], edge["source"]) for edge in edges if edge["stopped"]}


def feeding(edges, destination):
    return {edge["source"] for edge in edges if edge["destination"] == destination}


SEMI = {("start", "q"): True, ("q", "critic"): True}


@pytest.mark.parametrize(
    ("options", "flows", "stopped", "sources_of_y"),
    [
        ({}, SEMI, {("start", "y")}, {"next_q", "r"}),
        (TWINS, SEMI, {("start", "y")}, {"next_q", "next_q_2", "r"}),
        (ONLINE, SEMI, {("start", "y")}, {"next_q", "r"}),
        pytest.param(
            *({"critic": "categorical", "v_min": -99.0}, SEMI, {("start", "y")}, {"next_q", "r"}),
            marks=pytest.mark.slow,
        ),
        (
            RESIDUAL,
            # Through y into φ, which is trained, and into θ and the second critic, which are not.
            {**SEMI, ("start", "y"): True, ("y", "next_q"): True, ("next_q", "critic"): True}
            | {("next_q", "next_mu"): False, ("next_mu", "actor"): False}
            | {("y", "next_q_2"): False, ("next_q_2", "critic_2"): False, ("next_q_2", "next_mu"): False},
            set(),
            {"next_q", "next_q_2", "r"},
        ),
        (
            JOINT,
            # The differentiated pass includes s' and the policy's action, whose gradient is stopped.
            {("start", "joint"): True, ("joint", "critic"): True},
            {("start", "y"), ("joint", "next_mu")},
            {"joint", "joint_2", "r"},
        ),
        pytest.param(
            AVERAGES,  # y is computed by the averaged critics in another pass
            {("start", "joint"): True, ("joint", "critic"): True},
            {("start", "y"), ("joint", "next_mu")},
            {"next_q", "next_q_2", "r"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["default", "twins", "online", "categorical", "residual", "joint", "joint averages"],
)
def test_the_critics_update(options, flows, stopped, sources_of_y):
    edges = trace(**options)["critic"]
    assert backward(edges) == flows
    assert stops(edges) == stopped
    assert feeding(edges, "y") == sources_of_y


@pytest.mark.parametrize(("options", "critic"), [({}, "target_critic"), (ONLINE, "critic")])
def test_which_critic_computes_y(options, critic):
    edges = trace(**options)["critic"]
    assert critic in feeding(edges, "next_q")


def test_the_actors_update_trains_only_the_actor():
    for options in (TWINS, RESIDUAL):
        edges = trace(**options)["actor"]
        flows = backward(edges)
        assert flows["mu", "actor"] is True
        assert not any(trains for (_, end), trains in flows.items() if end.startswith(("critic", "target")))
    assert backward(edges)["q", "critic"] is False  # differentiating Q(s, μ(s)) passes φ


def test_norms_are_those_of_the_agents_gradients():
    """An equal agent makes the same steps and updates, and computes its gradients on the traced minibatch."""
    report = trace()
    with gym.make("Pendulum-v1") as env:
        config = CONFIG.replace(jit=False, updates_per_call=1, learning_starts=RANDOM_STEPS)
        agent = DDPG(env, config, seed=0)
        agent.learn(RANDOM_STEPS)
        agent.update(UPDATES)
    batch = agent.replay.sample(agent.behaviour.rng, 1, 16).map(lambda field: field[0])
    with agent.session.as_default():
        actions = agent.actor.predict_target(batch.next_observations)
        y = batch.rewards + 0.99 * (1 - batch.terminated) * agent.critic.predict_target(
            batch.next_observations, actions
        )
        gradients = agent.critic.get_gradients(batch.observations, batch.actions, y)
        states = batch.observations
        policy = agent.actor.get_gradients(states, agent.critic.action_gradients(states, agent.actor.predict(states)))
    for step, end, expected in (("critic", "critic", gradients), ("actor", "actor", policy)):
        (norm,) = (edge["norm"] for edge in report[step] if edge["source"] == end and edge["trained"])
        assert norm == pytest.approx(np.sqrt(sum(np.square(array).sum() for array in expected)), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "next_encoder", "behind_y"),
    [
        ({}, "target_critic", {}),
        (
            {"td_target": "residual_gradient", "policy_gradient": "direct"},
            "critic",
            {("next_mu", "actor"), ("next_q", "next_mu")},
        ),
        ({"target": "none", "critic_norm": "renorm", "n_critics": 2}, "critic", {}),
    ],
    ids=["default", "residual", "joint"],
)
def test_a_shared_encoder_is_behind_a_stop(options, next_encoder, behind_y, drawn):
    """The actor's gradient ends in front of it, in both steps; nothing but the critic's loss trains φ."""
    config = CONFIG.replace(network="conv", buffer_size=1_000, shared_encoder=True, **options)
    report = trace_update(Screen((4, 4), discrete=False, length=1), config, seed=0)
    critic, actor = report["critic"], report["actor"]
    assert feeding(actor, "mu") == {"encoded", "actor"}
    assert feeding(actor, "encoded") == {"s", "critic"}
    assert ("mu", "encoded") in stops(actor)
    assert feeding(critic, "next_mu") >= {"next_encoded"}
    assert feeding(critic, "next_encoded") == {"next_s", next_encoder}
    assert (("next_mu", "next_encoded") in stops(critic)) == bool(behind_y)
    assert {*behind_y} <= backward(critic).keys()
    for edges in (critic, actor):
        assert not any(end.endswith("encoded") or start.endswith("encoded") for start, end in backward(edges))
    assert not any(trains for (_, end), trains in backward(actor).items() if end == "critic")
    texts = texts_of(drawn(report).axes[1])
    assert "encoder\nf(s)" in texts


def custom_target(q, target, variables):
    loss = tf.reduce_mean(tf.square(q - tf.stop_gradient(target)))
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


@pytest.mark.slow
def test_a_custom_path_is_traced():
    for options in ({}, {"n_critics": 2}):
        assert trace(td_target=custom_target, **options)["critic"] == trace(**options)["critic"]


def without_a_gradient(x):
    """An op for which TensorFlow registers no gradient; the paths below need none."""
    return tf.raw_ops.IgammaGradA(a=tf.abs(x) + 1, x=tf.abs(x) + 1)


def odd_target(q, target, variables):
    loss = tf.reduce_mean(tf.square(q - without_a_gradient(target)))
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


def odd_clone(actor, critic, states, batch):
    loss = tf.reduce_mean(tf.square(actor(states, training=True) - without_a_gradient(batch.actions)))
    return actor.optimizer.compute_gradients(loss, actor.trainable_variables)


@pytest.mark.parametrize(
    "path",
    [{"td_target": odd_target}, {"policy_gradient": odd_clone}],
    ids=["td", "policy"],
)
@pytest.mark.slow  # test_compare.py has another path that cannot be traced
def test_an_op_without_a_gradient_is_named_with_its_path(path):
    """In a whole update, and among the paths that are compared."""
    with refuses(UsageError, f"{next(iter(path))} IgammaGradA stop_gradient"):
        trace(**path)
    paths = {f"{option}s": {"own": own} for option, own in path.items()}
    with gym.make("Pendulum-v1") as env, refuses(UsageError, "'own' IgammaGradA stop_gradient"):
        compare_paths(env, CONFIG, seed=0, **{"td_targets": {}, "policy_gradients": {}, **paths})


def test_lap_is_traced_with_its_huber_loss():
    """|∂L/∂q| is at most 2/B for each of B = 16 samples, so the norm is at most 2/√16; mean squares exceed this."""
    report = trace(prioritised="lap", priority_exponent=0.5)
    (norm,) = (edge["norm"] for edge in report["critic"] if (edge["source"], edge["destination"]) == ("q", "start"))
    assert 0 < norm <= 2 / 4
    assert report["options"].keys() >= {"prioritised", "priority_exponent"}
    assert trace()["critic"][0]["norm"] > 2 / 4


def test_options_that_are_not_traced_are_listed_separately_and_change_nothing():
    """Tracing runs updates op by op, which an agent with ``precision="bfloat16"`` refuses."""
    report = trace(**NOT_TRACED)
    assert report["options"] == {"hidden": [8], "batch_size": 16, "optimizer": "sgd"}
    assert report["not_traced"] == NOT_TRACED
    assert report["critic"] == trace()["critic"]
    head = update_text({**report, "env_id": "Pendulum-v1"}).split("\n\n")[0].splitlines()
    assert head[1] == "hidden=[8], batch_size=16, optimizer=sgd"
    assert {*head[2].removeprefix("not traced: ").split(", ")} == {f"{name}={NOT_TRACED[name]}" for name in NOT_TRACED}


def test_the_text_names_options_edges_and_stops():
    report = trace(**TWINS)
    assert report["options"] == {"hidden": [8], "batch_size": 16, "optimizer": "sgd", **TWINS}
    text = update_text({**report, "env_id": "Pendulum-v1"})
    assert "start → y" in text
    assert "stopped" in text
    assert "n_critics=2" in text


@pytest.mark.slow
def test_the_pictures_title_names_recipe_bounding_and_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("hidden = [8]\nbatch_size = 16\n")
    titles = []

    def drawn(report, path, title):
        titles.append(title)
        return path

    monkeypatch.setattr("ddpg.laboratory.picture.draw_update", drawn)
    for flags in ([], ["--bounding", "zeroing"]):
        assert main(["paths", "Pendulum-v1", "--recipe", "mine.toml", "--seed", "5", *flags]) == 0
    assert "zeroing" not in titles[0]
    for title, bounding in zip(titles, ("mine.toml", "zeroing"), strict=True):
        assert bounding in title
        assert "Pendulum-v1" in title
        assert "seed 5" in title


def test_the_command_traces_a_recipe_and_closes_the_agent(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = 'hidden = [8]\nbatch_size = 16\noptimizer = "sgd"\ntd_target = "residual_gradient"\n'
    (tmp_path / "mine.toml").write_text(options)
    closed = []
    monkeypatch.setattr(DDPG, "close", lambda agent, close=DDPG.close: closed.append(agent) or close(agent))
    assert main(["paths", "Pendulum-v1", "--recipe", "mine.toml", "--seed", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert ("start", "y") in backward(report["critic"])
    assert (tmp_path / report["picture"]).stat().st_size > 10_000
    assert len(closed) == 1


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Return a function that draws a report and asserts that texts neither overlap nor leave their panel."""
    figures = []
    monkeypatch.setattr(atomic_write, "write_figure", lambda path, figure: figures.append(figure))

    def figure_of(report, **options):
        draw_update(report, tmp_path / "p.png", **options)
        figure = figures.pop()
        figure.draw_without_rendering()
        title = figure._suptitle.get_window_extent()
        assert figure.bbox.x0 <= title.x0 < title.x1 <= figure.bbox.x1
        for axes in figure.axes:
            extents = [(text.get_bbox_patch() or text).get_window_extent() for text in axes.texts]
            assert all(axes.bbox.containsx(e.x0) and axes.bbox.containsx(e.x1) for e in extents)
            pairs = itertools.combinations(zip(axes.texts, extents, strict=True), 2)
            assert [(a.get_text(), b.get_text()) for (a, one), (b, other) in pairs if one.overlaps(other)] == []
        return figure

    return figure_of


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"n_critics": 8}, marks=pytest.mark.slow),
        pytest.param({**JOINT, "n_critics": 3}, marks=pytest.mark.slow),
        RESIDUAL,
        pytest.param({"n_critics": 4, "td_target": "residual_gradient"}, marks=pytest.mark.slow),
    ],
    ids=["eight", "joint", "residual", "four residual"],
)
def test_two_of_many_critics_are_drawn_with_a_note(options, drawn):
    critic, actor = drawn(trace(**options)).axes
    note = f"2 of {options['n_critics']} critics drawn"
    assert any(note in text for text in texts_of(critic)) == (options["n_critics"] > 2)
    assert not any("critics drawn" in text for text in texts_of(actor))


@pytest.mark.slow
def test_a_stop_mark_does_not_overlap_other_arrows(drawn):
    """TD3+BC stops λ; the edge from s to λ passes above the actor and the arrow that trains it."""
    actor = drawn(trace(policy_gradient="direct", bc_alpha=2.5)).axes[1]
    (box,) = (text.get_bbox_patch().get_window_extent() for text in actor.texts if text.get_text().startswith("actor"))
    bars = [line.get_window_extent() for line in actor.lines]
    assert len(bars) == 2  # on the edges of s and φ
    assert all(bar.y0 > box.y1 for bar in bars)


@pytest.mark.parametrize(
    ("options", "label"),
    [
        pytest.param({"bc_only": True}, "cloning term", marks=pytest.mark.slow),
        (ONLINE, "∇ₐQ\nand cloning"),
        ({}, "of ∇ₐQ"),
    ],
    ids=["only", "with", "without"],
)
def test_the_bounding_is_labelled_with_what_it_bounds(options, label, drawn):
    (text,) = (text for text in texts_of(drawn(trace(**options)).axes[1]) if "bounding" in text)
    assert text.endswith(label)


def test_a_long_title_fits(drawn):
    figure = drawn(trace(), title=f"{'a title without spaces' * 10}, seed 12345")
    assert figure.get_suptitle().endswith("seed 12345")


def test_the_picture_names_what_is_not_traced(drawn):
    (text,) = (text for text in texts_of(drawn(trace(**NOT_TRACED)).axes[0]) if text.startswith("not traced: "))
    assert {*text.removeprefix("not traced: ").split(", ")} == NOT_TRACED.keys()


@pytest.mark.slow
def test_a_recipe_may_name_custom_code_with_allow_import(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.toml").write_text('hidden = [8]\nbatch_size = 16\npolicy_gradient = "lab_paths:direct"\n')
    (tmp_path / "lab_paths.py").write_text("from ddpg.gradients.policy import direct\n")
    words = ["paths", "Pendulum-v1", "--recipe", "mine.toml", "--seed", "0", "--json"]
    assert main(words) == 2
    assert not lacking(capsys.readouterr().err, "policy_gradient lab_paths:direct --allow-import lab_paths")
    assert main([*words, "--allow-import", "lab_paths"]) == 0
    assert ("q", "critic") in backward(json.loads(capsys.readouterr().out)["actor"])


def test_a_bounding_overrides_the_recipes_and_none_keeps_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('hidden = [8]\nbounding = "squashing"\n')
    boundings = []

    def refusing(env, config, seed):
        boundings.append(config.bounding)
        raise UsageError("stop here")

    monkeypatch.setattr("ddpg.laboratory.flow.trace_update", refusing)
    for flags in ([], ["--bounding", "zeroing"], ["--bounding", "none"]):
        assert main(["paths", "Pendulum-v1", "--recipe", "mine.toml", *flags]) == 2
    assert boundings == ["squashing", "zeroing", "squashing"]


@pytest.mark.slow
def test_an_own_algorithms_options_are_named_if_they_differ_from_its_defaults(monkeypatch):
    own = dataclasses.make_dataclass("Own", [("caution", float, 0.5)], bases=(DDPGConfig,), frozen=True)
    monkeypatch.setitem(ALGORITHMS, "Own", Algorithm(own, DDPGUpdate))
    with gym.make("Pendulum-v1") as env:
        options = {name: getattr(CONFIG, name) for name in ("hidden", "batch_size", "optimizer")}
        report = trace_update(env, own(**options, caution=0.25), seed=0)
    assert report["options"] == {"hidden": [8], "batch_size": 16, "optimizer": "sgd", "caution": 0.25}
    assert report["critic"] == trace()["critic"]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=[pytest.mark.slow] * (target == "joint_ema"))
        for target in DDPGConfig.__dataclass_fields__["target"].metadata["choices"]
    ],
)
def test_every_choice_of_target_can_be_traced(target):
    """A gradient trains the critic, and none reaches a target network; the picture's boxes do not overlap."""
    edges = trace(**{"ema": TWINS, "online": ONLINE, "none": JOINT, "joint_ema": AVERAGES}[target])["critic"]
    boxes = [*layout_nodes(edges).items()]
    assert all(
        abs(box.y - other.y) >= 1.3 or abs(box.x - other.x) >= 0.8
        for place, (_, box) in enumerate(boxes)
        for _, other in boxes[:place]
    ), boxes
    ends = {to for _, to in backward(edges)}
    assert "critic" in ends
    assert "target_critic" not in ends
