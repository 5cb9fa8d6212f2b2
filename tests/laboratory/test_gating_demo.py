"""``tf.gradients``, ``compute_gradients`` and ``minimize`` give the same gradient, and only ungated ones can race."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference
from refusals import refuses

from ddpg.laboratory import gating_demo

v1 = tf.compat.v1


@pytest.mark.parametrize("gate", list(gating_demo.GATES))
@pytest.mark.parametrize("way", ["gradients", "compute_gradients", "minimize"])
def test_all_ways_make_the_same_step(way, gate, session, rng):
    inputs = rng.normal(size=(5, 4)).astype(np.float32)
    start = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]
    variables = [v1.get_variable(f"W{i}", initializer=array, use_resource=True) for i, array in enumerate(start)]
    step = gating_demo.steps(gating_demo.two_layer_loss(tf.constant(inputs), variables), variables, 0.5, gate)[way]
    session.run(v1.global_variables_initializer())
    session.run(step)
    moved = [(array - after) / 0.5 for array, after in zip(start, session.run(variables), strict=True)]
    assert relative_difference(moved, gating_demo.by_hand(inputs, start)) < 1e-5


UNGATED = [("gradients", "GATE_OP"), ("compute_gradients", "GATE_NONE"), ("minimize", "GATE_NONE")]
GATED = [(way, gate) for way in ("compute_gradients", "minimize") for gate in ("GATE_OP", "GATE_GRAPH")]


@pytest.fixture
def problem(rng):
    inputs = rng.normal(size=(5, 4)).astype(np.float32)
    return inputs, [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize(("way", "gate"), UNGATED)
def test_an_ungated_reader_of_a_reference_variable_sees_the_update(way, gate, problem):
    moved = gating_demo.gradient_in_order(way, gate, False, "update", *problem, learning_rate=0.5)
    wrong = gating_demo.after_update(*problem, learning_rate=0.5)
    assert relative_difference([moved], [wrong]) < 1e-5
    assert relative_difference([moved], gating_demo.by_hand(*problem)[:1]) > 0.1


@pytest.mark.parametrize(("way", "gate"), [*UNGATED, *GATED])
@pytest.mark.parametrize("use_resource", [False, True])
def test_a_reader_before_the_update_is_right(way, gate, use_resource, problem):
    moved = gating_demo.gradient_in_order(way, gate, use_resource, "read", *problem, learning_rate=0.5)
    assert relative_difference([moved], gating_demo.by_hand(*problem)[:1]) < 1e-5


@pytest.mark.parametrize(("way", "gate"), UNGATED)
def test_a_reader_of_a_resource_variable_never_sees_the_update(way, gate, problem):
    moved = gating_demo.gradient_in_order(way, gate, True, "update", *problem, learning_rate=0.5)
    assert relative_difference([moved], gating_demo.by_hand(*problem)[:1]) < 1e-5


@pytest.mark.parametrize(("way", "gate"), GATED)
@pytest.mark.parametrize("use_resource", [False, True])
def test_a_gate_forbids_the_update_before_the_reader(way, gate, use_resource, problem):
    with refuses(ValueError, "cycle"):
        gating_demo.gradient_in_order(way, gate, use_resource, "update", *problem)


def test_after_update_by_hand():
    """x = 1 and W1, W2 are numbers. W1 = 0 gives h = 0, so W2 does not move; W1 = 1 gives h = tanh 1, with W2 = 2."""
    assert gating_demo.after_update(np.ones((1, 1)), [np.zeros((1, 1)), np.full((1, 1), 2.0)], 1.0) == 0
    h = np.tanh(1.0)
    expected = 2 * h * (2 - 0.1 * h * 2 * h) * (1 - h**2)
    moved = gating_demo.after_update(np.ones((1, 1)), [np.ones((1, 1)), np.full((1, 1), 2.0)], 0.1)
    np.testing.assert_allclose(moved, [[expected]], rtol=1e-12)


@pytest.mark.parametrize(("gate", "use_resource"), [("GATE_OP", False), ("GATE_GRAPH", False), ("GATE_NONE", True)])
def test_gated_and_resource_variables_do_not_race(gate, use_resource):
    assert gating_demo.count_races("minimize", gate, use_resource, tries=5, size=100) == 0


def test_every_wrong_step_is_counted(monkeypatch):
    """Compared with the gradient of another problem, every step is wrong."""
    monkeypatch.setattr(gating_demo, "by_hand", lambda inputs, start: [np.ones_like(start[0])])
    assert gating_demo.count_races("minimize", "GATE_OP", True, tries=4, size=10) == 4
