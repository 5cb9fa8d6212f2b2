"""tf.gradients, compute_gradients, minimize and the gates: one gradient, and one race."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference

from ddpg.laboratory import taken

v1 = tf.compat.v1


@pytest.mark.parametrize("gate", list(taken.GATES))
@pytest.mark.parametrize("way", ["gradients", "compute_gradients", "minimize"])
def test_every_way_is_the_same_step(way, gate, session, rng):
    inputs = rng.normal(size=(5, 4)).astype(np.float32)
    start = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]
    variables = [v1.get_variable(f"W{i}", initializer=array, use_resource=True) for i, array in enumerate(start)]
    step = taken.steps(taken.two_layer_loss(tf.constant(inputs), variables), variables, 0.5, gate)[way]
    session.run(v1.global_variables_initializer())
    session.run(step)
    moved = [(array - after) / 0.5 for array, after in zip(start, session.run(variables), strict=True)]
    assert relative_difference(moved, taken.by_hand(inputs, start)) < 1e-5


@pytest.mark.parametrize(("way", "gate"), [("gradients", "GATE_OP"), ("minimize", "GATE_NONE")])
def test_ungated_gradients_of_reference_variables_race(way, gate):
    """Counted in batches until one is seen: half of the tries are wrong on a machine of two cores."""
    assert any(taken.count_races(way, gate, use_resource=False) > 0 for _ in range(10))


@pytest.mark.parametrize(
    ("way", "gate", "use_resource"),
    [
        ("minimize", "GATE_OP", False),
        ("minimize", "GATE_GRAPH", False),
        ("compute_gradients", "GATE_OP", False),
        ("gradients", "GATE_OP", True),
        ("minimize", "GATE_NONE", True),
    ],
)
def test_gates_and_resource_variables_never_race(way, gate, use_resource):
    assert taken.count_races(way, gate, use_resource) == 0
