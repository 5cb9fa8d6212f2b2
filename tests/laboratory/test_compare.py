"""``compare_paths`` finds equivalent paths equal and correct, and reports where each path stops its gradient."""

import contextlib
import dataclasses
import io
import itertools
import json
import types

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from environments import Shaped
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from refusals import refuses

from ddpg import DDPGConfig, UsageError, compare_paths, draw_paths
from ddpg.cli.main import main
from ddpg.config import presets
from ddpg.config.algorithm_options import SAMPLE_NORMS
from ddpg.gradients import policy, td
from ddpg.laboratory import compare, fixture, flow, picture
from ddpg.laboratory.fixture import Fixture
from ddpg.laboratory.text import paths_text

CONFIG = DDPGConfig(hidden=(12, 8), batch_size=50, gamma=0.9)  # 1/50 is inexact: equal paths differ in last digits


@pytest.fixture(scope="module")
def compare_on_shared_fixture():
    """Return a function that compares custom paths on a shared fixture, without the slow compiled timings.

    The laboratory runs updates op by op, which an agent with ``precision="bfloat16"`` refuses: its fixture ignores it.
    """
    with gym.make("Pendulum-v1") as env:
        fixture = Fixture(env, CONFIG.replace(hidden=(8,), precision="bfloat16", optimizer="sgd"), seed=0)

    def compared(**paths):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compare, "Fixture", lambda *_: fixture)
            patch.setattr(compare, "_compiled", lambda *_: None)
            return compare_paths(env, CONFIG, **({"td_targets": {}, "policy_gradients": {}} | paths))

    return compared


def compile_some(trial, batch, compiled=compare._compiled):
    """Compile two paths only, which saves time; test_every_path_but_the_fed_target_can_be_compiled compiles all."""
    return compiled(trial, batch) if trial.name in ("stop_gradient", "placeholder") else None


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The output of ``ddpg paths --json`` for a preset with the options of CONFIG, and the picture's path."""
    file, out = tmp_path_factory.mktemp("paths") / "picture.png", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        options = {"hidden": CONFIG.hidden, "batch_size": CONFIG.batch_size, "gamma": CONFIG.gamma}
        patch.setitem(presets.PRESETS, "Pendulum-v1", presets.Preset(1, options))
        patch.setattr(compare, "_compiled", compile_some)
        assert main(["paths", "Pendulum-v1", "--seed", "0", "--picture", str(file), "--json"]) == 0
    return out.getvalue(), file


def test_a_preset_with_a_recipe_compares_the_paths_of_plain_ddpg(monkeypatch):
    """The NumPy reference may not support the recipe's networks."""
    monkeypatch.setitem(presets.PRESETS, "Pendulum-v1", presets.Preset(1, recipe="td3"))
    configs = []

    def compared(env, config, *_, **__):
        configs.append(config)
        raise UsageError("stop here")

    monkeypatch.setattr("ddpg.laboratory.compare.compare_paths", compared)
    assert main(["paths", "Pendulum-v1"]) == 2
    assert configs == [DDPGConfig()]


@pytest.fixture(scope="module")
def report(printed):
    return json.loads(printed[0])


@pytest.fixture(scope="module")
def figures(report):
    """The pictures of two boundings; that of squashing is drawn by the same code."""
    return {bounding: picture.paths_figure(report, bounding, "T") for bounding in ("inverting", "zeroing")}


def edges(row):
    return {(edge["source"], edge["destination"]): edge for edge in row["edges"]}


def flowing(row):
    return {pair for pair, edge in edges(row).items() if edge["norm"] is not None}


def stopped(row):
    return {pair for pair, edge in edges(row).items() if edge["stopped"]}


def rows_of(report, path):
    return [row for row in [*report["td"], *report["policy"]] if row["path"] == path]


def test_the_report_holds_every_combination(report):
    assert [row["path"] for row in report["td"]] == list(td.TD_TARGETS)
    assert {(row["path"], row["bounding"]) for row in report["policy"]} == {
        (path, bounding) for path in policy.POLICY_GRADIENTS for bounding in ("squashing", "inverting", "zeroing")
    }


def test_only_the_residual_gradient_differs(report):
    for row in [*report["td"], *report["policy"]]:
        difference = row["difference"]
        if row["path"] == "residual_gradient":
            assert difference["max_relative"] > 0.01
            assert not difference["equal"]
        else:
            assert difference["max_relative"] < 1e-5
            assert difference["equal"]
    assert any(row["difference"]["max_abs"] > 0 for row in report["policy"])  # computed separately


def test_every_gradient_agrees_with_finite_differences(report):
    for row in [*report["td"], *report["policy"]]:
        found = row["finite_difference"]
        assert found["max_relative"] < 1e-4
        assert found["cosine"] > 0.999999
        assert found["coordinates"] > 5 * found["dropped"]
        assert found["coordinates"] + found["dropped"] >= 70
        assert row["gradient_norm"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("norm", SAMPLE_NORMS)
def test_every_path_through_a_norm_agrees_with_finite_differences(norm, monkeypatch):
    """Includes inverting and zeroing, whose gradients pass through the actor's norms; one norm has two layers."""
    monkeypatch.setattr(compare, "_compiled", lambda *_: None)
    hidden = CONFIG.hidden if norm == SAMPLE_NORMS[0] else (24,)
    with gym.make("Pendulum-v1") as env:
        report = compare_paths(env, CONFIG.replace(norm=norm, hidden=hidden, activation="tanh"), seed=0)
    for row in [*report["td"], *report["policy"]]:
        found = row["finite_difference"]
        assert found["max_relative"] < 1e-4
        assert found["coordinates"] + found["dropped"] >= 70
        assert row["difference"]["equal"] == (row["path"] != "residual_gradient")
        assert row["gradient_norm"] > 1e-3


def test_a_bfloat16_gradient_is_off_by_rounding_errors(report):
    """With eight significant bits, numbers are off by up to 2⁻⁸; errors partly cancel in a gradient's sums."""
    for row in [*report["td"], *report["policy"]]:
        assert 2**-12 < row["bfloat16"]["relative_norm"] < 2**-3
        assert row["bfloat16"]["cosine"] > 0.99
        assert 0 < row["bfloat16x3"]["relative_norm"] < 2**-6 * row["bfloat16"]["relative_norm"]


def test_target_networks_differ_from_the_online_networks(report):
    """If they were equal, y would be the same in every path."""
    norms = [edges(rows_of(report, path)[0])["q", "start"]["norm"] for path in ("stop_gradient", "residual_gradient")]
    assert abs(norms[0] - norms[1]) > 1e-3 * norms[0]


def test_boundings_give_different_gradients(report):
    """With a linear head some actions are outside the box, so the three gradients differ."""
    assert report["outside"]["squashing"] == 0
    assert 0.02 < report["outside"]["inverting"] == report["outside"]["zeroing"] < 0.6
    norms = [row["gradient_norm"] for row in rows_of(report, "chain_rule")]
    assert min(abs(a - b) / a for a, b in zip(norms, np.roll(norms, 1), strict=True)) > 0.01


def test_compiled_paths_have_a_compiled_timing(report):
    for row in [*report["td"], *report["policy"]]:
        assert row["milliseconds"] > 0
        assert (row["milliseconds_compiled"] is not None) == (row["path"] == "stop_gradient")


@pytest.mark.slow
def test_every_path_but_the_fed_target_can_be_compiled():
    with gym.make("Pendulum-v1") as env:
        report = compare_paths(env, CONFIG, seed=0)
    for row in [*report["td"], *report["policy"]]:
        assert (row["milliseconds_compiled"] is None) == (row["path"] == "placeholder")


def test_which_variables_each_path_reaches(report):
    none = {"actor": 0, "critic": 0, "target_actor": 0, "target_critic": 0}
    for path, reached in {
        "stop_gradient": {"critic": 6},
        "placeholder": {"critic": 6},
        "output_delta": {"critic": 6},
        "residual_gradient": {"actor": 6, "critic": 6},
        "chain_rule": {"actor": 6},
        "direct": {"actor": 6, "critic": 6},
        "surrogate": {"actor": 6},
    }.items():
        for row in rows_of(report, path):
            assert row["reached"] == none | reached


def test_where_the_td_paths_stop(report):
    stops = {row["path"]: stopped(row) for row in report["td"]}
    assert stops == {
        "stop_gradient": {("y", "start")},
        "placeholder": {("y", "fed_y")},
        "output_delta": {("y", "start")},
        "residual_gradient": set(),
    }
    for row in report["td"][:3]:
        assert {("target_critic", "next_q"), ("next_q", "y")} <= edges(row).keys() - flowing(row)
        assert edges(row)["critic", "q"]["trained"]
    residual = edges(report["td"][3])
    assert residual["critic", "next_q"]["trained"]
    assert residual["actor", "next_mu"]["norm"] > 0
    assert not residual["actor", "next_mu"]["trained"]  # reached, but not in var_list


def test_where_the_policy_paths_flow(report):
    for path in ("chain_rule", "surrogate"):
        for row in rows_of(report, path):
            assert stopped(row) == {("bounding", "start")}
            assert {("mu", "start"), ("actor", "mu")} <= flowing(row)
            assert {("critic", "action_gradient"), ("action_gradient", "bounding")} <= edges(row).keys() - flowing(row)
    for row in rows_of(report, "direct"):
        assert stopped(row) == set()
        for pair in (("q", "start"), ("bounding", "q"), ("mu", "bounding"), ("actor", "mu")):
            assert edges(row)[pair]["trained"]
        assert not edges(row)["critic", "q"]["trained"]
        bounded = edges(row)["mu", "bounding"]["norm"] / edges(row)["bounding", "q"]["norm"]
        assert (bounded == pytest.approx(1)) == (row["bounding"] == "squashing")


def test_the_edge_to_the_weights_has_the_norm_of_the_gradient(report):
    for row in report["td"][:3]:
        assert edges(row)["critic", "q"]["norm"] == pytest.approx(row["gradient_norm"], rel=1e-5)
    for row in report["policy"]:
        assert edges(row)["actor", "mu"]["norm"] == pytest.approx(row["gradient_norm"], rel=1e-5)


def leaking(q, target, variables, compute_gradients=td.gradients):
    return compute_gradients(td.mean_square(q, target), var_list=variables)  # stop_gradient without its stop


def leaking_online(q, target, variables, compute_gradients=td.gradients):
    return leaking(q, target, variables, compute_gradients)


leaking.bootstraps_online, leaking_online.bootstraps_online = False, True


def leaking_surrogate(actor, critic, states):
    actions = actor(states, training=True)
    gradient = actor.bound_action_gradient(critic.action_gradient(states, actions), actions)
    loss = -(gradient * actions)
    return actor.optimizer.compute_gradients(loss, var_list=actor.trainable_variables)


@pytest.fixture(scope="module")
def leaks(compare_on_shared_fixture):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "BOUNDINGS", ("inverting",))
        return compare_on_shared_fixture(
            td_targets={"leaking": leaking, "leaking_online": leaking_online},
            policy_gradients={"leaking": leaking_surrogate},
        )


@pytest.mark.parametrize("online", [False, True])
def test_a_td_path_without_its_stop_is_shown_to_leak(online, leaks):
    """It leaks into the target networks or, if online networks compute y, into these a second time."""
    row = {row["path"]: row for row in leaks["td"]}["leaking_online" if online else "leaking"]
    critic, actor = ("critic", "actor") if online else ("target_critic", "target_actor")
    assert stopped(row) == set()
    assert {("y", "start"), ("next_q", "y"), (critic, "next_q"), (actor, "next_mu")} <= flowing(row)
    assert edges(row)["y", "start"]["trained"] == edges(row)[critic, "next_q"]["trained"] == online
    assert row["reached"][critic] == row["reached"][actor] == 4


def test_a_surrogate_without_its_stop_is_shown_to_leak(leaks):
    (row,) = leaks["policy"]
    assert {("bounding", "start"), ("action_gradient", "bounding"), ("critic", "action_gradient")} <= flowing(row)
    assert row["reached"]["critic"] > 0
    assert row["finite_difference"]["max_relative"] > 1e-4


def test_a_path_that_cannot_be_traced_is_refused_by_name(compare_on_shared_fixture):
    def minimize_mean_square(q, target, variables):
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        return optimizer.compute_gradients(td.mean_square(q, tf.stop_gradient(target)), variables)

    with refuses(UsageError, "'mine' tf.gradients compute_gradients"):
        compare_on_shared_fixture(td_targets={"mine": minimize_mean_square})


def test_a_path_that_lacks_a_gradient_is_refused_by_name(compare_on_shared_fixture):
    def without_the_first(q, target, variables):
        (_, first), *others = td.stop_gradient(q, target, variables)
        return [(None, first), *others]

    with refuses(UsageError, "td_target=short gradients hidden_0/W:0"):
        compare_on_shared_fixture(td_targets={"short": lambda q, y, variables: td.stop_gradient(q, y, variables[1:])})
    with refuses(UsageError, "td_target=mine None W:0"):
        compare_on_shared_fixture(td_targets={"mine": without_the_first})
    with refuses(UsageError, "'mine' None gradient"):
        compare_on_shared_fixture(policy_gradients={"mine": lambda actor, critic, states: None})


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda q, target: tf.reduce_mean(tf.constant(0.5) * tf.square(q - target)), "loss float64 test_compare.py"),
        (lambda q, target: tf.square(q - target), "loss float64 (None, 1) reduce_mean"),
    ],
    ids=["float32", "per sample"],
)
def test_a_loss_that_is_no_number_of_float64_is_refused(loss, words, compare_on_shared_fixture):
    def path(q, target, variables):
        return td.stop_gradient(q, target, variables)

    path.loss = loss
    with refuses(UsageError, words):
        compare_on_shared_fixture(td_targets={"mine": path})


@pytest.mark.slow
def test_gradients_of_convolutions_agree_with_central_differences():
    class Noise(Shaped):
        def _observation(self):
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)

    env = Noise(gym.spaces.Box(0, 255, (6, 5, 2), np.uint8), gym.spaces.Box(-1, 1, (2,)))
    found = compare_paths(env, DDPGConfig(network="conv", hidden=(4,), batch_size=8, buffer_size=200), seed=0)
    rows = [row["finite_difference"] for row in (*found["td"], *found["policy"])]
    assert len(rows) == 13
    assert all(row["max_relative"] < 1e-5 and row["coordinates"] > 90 for row in rows)


def test_networks_without_a_numpy_counterpart_are_refused():
    with gym.make("Pendulum-v1") as env, refuses(UsageError, "without NumPy"):
        compare_paths(env, CONFIG.replace(norm="batch", hidden=(4,)), seed=0)


def test_the_picture_draws_every_flowing_edge_and_every_stop(report):
    for row in [*report["td"], *report["policy"]]:
        axes = Figure().add_subplot()
        picture.draw_panel(axes, row, "td_target")
        colors = [to_hex(patch.get_edgecolor()) for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
        drawn = [e for e in row["edges"] if e["norm"] is not None and e["source"] not in picture.DATA]
        assert colors.count(picture.TRAINED) == sum(edge["trained"] for edge in drawn)
        assert colors.count(picture.PASSING) == sum(not edge["trained"] for edge in drawn)
        assert len(axes.lines) == len(stopped(row))
        texts = [text.get_text() for text in axes.texts]
        assert all(f"{edge['norm']:.3g}" in texts for edge in drawn)


@pytest.mark.parametrize("bounding", ["inverting", "zeroing"])
def test_texts_of_the_picture_do_not_overlap(figures, bounding):
    for axes in figures[bounding].axes:
        # The extent of the box around a text, or else of the text.
        extents = [(text.get_bbox_patch() or text).get_window_extent() for text in axes.texts]
        assert all(axes.bbox.containsx(e.x0) and axes.bbox.containsx(e.x1) for e in extents)
        pairs = itertools.combinations(zip(axes.texts, extents, strict=True), 2)
        assert [(a.get_text(), b.get_text()) for (a, one), (b, other) in pairs if one.overlaps(other)] == []


def single_choices():
    """Yield each named choice of an option of DDPG that is valid without other changes."""
    for field in dataclasses.fields(DDPGConfig):
        for choice in field.metadata.get("choices", ()):
            change = {field.name: (choice,) if isinstance(field.default, tuple) else choice}
            with contextlib.suppress(UsageError):
                DDPGConfig(**change)
                yield change


@pytest.mark.parametrize("change", [*single_choices()], ids=str)
def test_no_single_choice_contradicts_the_fixed_options(change):
    config = DDPGConfig(**change)
    config.replace(**fixture.FIXED_OPTIONS)
    config.replace(**flow.FIXED_OPTIONS)


def test_the_picture_says_which_gradients_are_equal(figures):
    texts = [text.get_text() for axes in figures["zeroing"].axes for text in axes.texts]
    assert texts.count("the same gradient as stop_gradient") == 2
    assert texts.count("the same gradient as chain_rule") == 2
    assert sum(text.startswith("not the gradient of stop_gradient: off by up to") for text in texts) == 1
    assert sum(text.startswith("in bfloat16\noff by ") for text in texts) == 7


def test_a_small_difference_is_not_shown_as_zero(report):
    row = rows_of(report, "residual_gradient")[0]
    for share, shown in ((1.643, "164%"), (0.0123, "1%"), (4.8e-4, "0.05%")):
        axes = Figure().add_subplot()
        difference = row["difference"] | {"max_relative": share}
        picture.draw_panel(axes, row | {"difference": difference}, "td_target")
        assert any(f"off by up to {shown} of" in text.get_text() for text in axes.texts)


@pytest.mark.slow
def test_td_paths_alone_are_drawn(report, tmp_path):
    figure = picture.paths_figure(report | {"policy": []}, "inverting", None)
    assert len(figure.axes) == len(report["td"]) + 1
    assert draw_paths(report | {"policy": []}, tmp_path / "p.png").stat().st_size > 10_000
    td = [row | {"path": r"cost $\x$", "difference": row["difference"] | {"from": "$^$"}} for row in report["td"]]
    draw_paths(report | {"td": td}, tmp_path / "p.png", title=r"$\frac$")  # dollars are no mathematics


def test_a_long_path_name_fits_its_panel(report):
    name = "a_path_with_a_name_that_is_much_longer_than_its_panel_is_wide"
    rows = [row | {"path": name, "difference": row["difference"] | {"from": name}} for row in report["td"]]
    figure = picture.paths_figure(report | {"td": rows}, "inverting", "T")
    for axes in figure.axes[: len(rows)]:
        (label,) = (text for text in axes.texts if text.get_text() == f"td_target = {name}")
        assert label.get_window_extent().x1 <= axes.bbox.x1


def test_a_bounding_that_was_not_measured_is_refused(report, tmp_path):
    with refuses(UsageError, "bounding invert report"):
        draw_paths(report, tmp_path / "p.png", "invert")


@pytest.mark.parametrize("draw", [draw_paths, picture.draw_update])
@pytest.mark.parametrize("name", ["", "a.txt", "missing/a.png"])
def test_a_file_name_without_a_picture_format_is_refused(draw, name, report, tmp_path):
    with refuses(UsageError, f"{str(tmp_path / name)!r} .png"):
        draw(report, tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_the_command_prints_a_report_and_draws_a_picture(printed):
    text, file = printed
    report = json.loads(text)
    assert (report["env_id"], report["seed"], report["batch_size"]) == ("Pendulum-v1", 0, 50)
    assert report["picture"] == str(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    assert len(report["td"]) + len(report["policy"]) == 13


def test_the_tables_list_every_path(report):
    lines = paths_text(report).splitlines()
    assert lines[0] == "Pendulum-v1: seed 0; hidden layers of 12, 8; a minibatch of 50"
    wider = paths_text({**report, "critic_hidden": [20, 9]}).splitlines()
    assert wider == [lines[0].replace("12, 8", "12, 8 (critics: 20, 9)"), *lines[1:]]
    assert lines[1].startswith("actions outside their box: squashing 0%, inverting ")
    assert lines[3].split()[:3] == ["td_target", "norm", "difference"]
    assert next(line for line in lines if line.startswith("residual_gradient")).split()[3] == "≠"
    assert sum(line.startswith(("chain_rule", "direct", "surrogate")) for line in lines) == 9
    assert next(line for line in lines if line.startswith("placeholder")).split()[9] == "-"
    assert lines[3].split()[6:8] == ["bfloat16", "bfloat16x3"]
    row = rows_of(report, "residual_gradient")[0]
    (line,) = (line.split() for line in lines if line.startswith("residual_gradient"))
    assert line[6:8] == [f"{row[name]['relative_norm']:.1e}" for name in ("bfloat16", "bfloat16x3")]


def test_the_command_refuses_an_unknown_environment_in_one_line(capsys):
    assert main(["paths", "Pendulum-v9"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_gradient_of_zeros_equals_itself(monkeypatch):
    """With two samples, standardised pre-activations are ±1: at the box's border, where zeroing gives 0.

    Rounding, which depends on the processor, can move one into the box; that of seed 0 or that of seed 1 stays outside.
    """
    monkeypatch.setattr(compare, "_compiled", lambda *_: None)
    monkeypatch.setattr(compare, "BOUNDINGS", ("squashing", "zeroing"))
    with gym.make("Pendulum-v1") as env:
        config = DDPGConfig(hidden=(8,), batch_size=2)
        reports = [compare_paths(env, config, seed=seed, td_targets={}) for seed in (0, 1)]
    zeros = [row for report in reports for row in report["policy"] if row["gradient_norm"] == 0]
    assert {row["bounding"] for row in zeros} == {"zeroing"}
    for row in zeros:
        assert (row["difference"]["max_relative"], row["difference"]["equal"]) == (0, True)
        # Rounding to bfloat16 can move an action into the box.
        assert (row["bfloat16"]["relative_norm"], row["bfloat16"]["cosine"]) in [(0, 1), (1, 0)]
    assert "NaN" not in json.dumps(reports)


def test_the_progress_bar_counts_building_and_measuring(compare_on_shared_fixture, monkeypatch):
    bars = []

    def tqdm_bar(**options):
        bars.append(types.SimpleNamespace(updates=0, **options))
        return contextlib.nullcontext(types.SimpleNamespace(update=lambda: count(bars[-1])))

    def count(shown):
        shown.updates += 1

    def built(fixture, trial, expected):
        return lambda: {"path": trial.name, "gradients": [np.ones(1)], "finite_difference": {"cosine": 1.0}}

    monkeypatch.setattr(compare, "tqdm_bar", tqdm_bar)
    monkeypatch.setattr(compare, "_built", built)
    compare_on_shared_fixture(
        td_targets={"stop_gradient": td.stop_gradient}, policy_gradients={"chain_rule": policy.chain_rule}
    )
    assert (bars[0].total, bars[0].updates, bars[0].disable) == (8, 8, True)
