"""The fuzzer of the compilers: a fixed sample of cases agrees, and faults are detected."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.faults import compilers
from benchmarks.faults.compiler_cases import VALUES, Case, minibatches, options_of, sample, simpler, values_of
from benchmarks.faults.disturbed import _halved, _in_two_halves
from ddpg import DQN
from ddpg.compiler import llvm_builder
from ddpg.config.algorithm_options import CONFIGS

# Small networks that use many parts of the compiler.
SAMPLE = [
    (Case({"hidden": [3], "max_gradient_norm": 1.0, "norm": "layer"}, actions=2), ("plain", "mixed magnitudes")),
    (Case({"hidden": [1], "optimizer": "rmsprop", "bounding": "inverting", "policy_delay": 2}, 7, 1), VALUES),
    # Infinite products of both signs: the order of the sum decides between NaN and the first infinity.
    (
        Case({"hidden": [1], "activation": "leaky_relu", "optimizer": "sgd", "gamma": 0.0}, 7, 1, 1, 1, seed=1),
        ("huge",),
    ),
    (
        Case({"hidden": [3], "double_q": True, "action_mask": True, "norm": "rms"}, 7, 2, 3, algorithm="DQN"),
        values_of("DQN"),
    ),
    (Case({"hidden": [3], "network": "conv", "norm": "layer"}, 3, 4), ("plain", "ties", "huge")),
    (Case({"hidden": [3], "network": "conv", "shared_encoder": True}, 3, 4), ("plain",)),
]
# Options that do not affect an update of a given minibatch, or are sampled under another name.
ELSEWHERE = {
    *("hidden", "batch_size", "updates_per_call", "jit", "compiler", "precision", "buffer_size", "learning_starts"),
    *("updates_per_step", "overlap", "exploration_steps", "rescale_rewards", "priority_exponent", "hindsight"),
    *("priority_correction", "priority_correction_steps", "normalize_observations", "normalize_rewards"),
    *("on_bad_transition", "step_timeout", "noise", "noise_scale", "noise_schedule", "noise_final", "noise_theta"),
    *("noise_dt", "parameter_noise", "exploration_initial", "exploration_final", "learning_rate_schedule"),
    *("actor_learning_rate_schedule", "critic_learning_rate_schedule", "dataset_share", "bc_steps"),
    *("actor_network", "critic_network", "q_network", "random_shift"),
}


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_every_option_of_an_update_is_sampled(algorithm):
    fields = {field.name for field in dataclasses.fields(CONFIGS[algorithm])}
    assert fields - ELSEWHERE == set(options_of(algorithm))


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_every_name_that_an_option_of_an_update_may_have_is_sampled(algorithm):
    """But ``placeholder``, whose target is computed in a session call of its own."""
    sampled, left_out = options_of(algorithm), set()
    for field in dataclasses.fields(CONFIGS[algorithm]):
        if field.name in sampled:
            left_out |= {*(field.metadata.get("choices") or ())} - {field.default, *sampled[field.name][1]}
    assert left_out == {"placeholder"}


def test_a_disturbed_convolution_adds_two_random_halves():
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        images, filters = (tf.constant(rng.normal(size=size), tf.float32) for size in ((3, 5, 6, 2), (3, 2, 2, 4)))
        result = tf.nn.conv2d(images, filters, 2, "SAME")
        gradients = tf.gradients(tf.square(result), [images, filters])
        for tensor in (result, *gradients):
            function = _in_two_halves(tensor.op)
            assert function is not None
            halved = function(*(given for given in tensor.op.inputs if given.dtype == tf.float32))
            expected, found = session.run((tensor, halved))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            assert (found != expected).any()
        assert _in_two_halves(tf.nn.conv2d(images[..., :1], filters[:, :, :1], 1, "VALID").op) is None


def test_a_disturbed_sum_adds_two_random_halves():
    """1e30·1e30 and 1e30·(−1e30) add to ∞ − ∞ or to the first infinity; ordinary sums change only by rounding."""
    large = tf.constant([[1e30, 1e30]]), tf.constant([[1e30], [-1e30]])
    found = {str(_halved((1, 0), tf.matmul)(*large).numpy().item()) for _ in range(100)}
    assert found == {"nan", "inf", "-inf"}
    with tf.Graph().as_default() as graph:
        x, y = (tf.compat.v1.placeholder(tf.float32, (3, 4)) for _ in range(2))
        sums = [
            tf.matmul(x, y, transpose_a=True),
            tf.matmul(x, y, transpose_b=True),
            *(tf.reduce_sum(x, axes) for axes in (0, 1, -1, [0, 1])),
            tf.reduce_sum(x, 1, keepdims=True),
            tf.raw_ops.BiasAddGrad(out_backprop=x),
        ]
        halved = []
        for total in sums:
            function = _in_two_halves(total.op)
            assert function is not None
            halved.append(function(*(tensor for tensor in total.op.inputs if tensor.dtype == tf.float32)))
        assert _in_two_halves(tf.square(x).op) is None
    one, other = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    with tf.compat.v1.Session(graph=graph) as session:
        pairs = list(zip(*session.run((sums, halved), {x: one, y: other}), strict=True))
    for expected, found in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert any((found != expected).any() for expected, found in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "kinds"), SAMPLE, ids=["adam", "rmsprop", "overflow", "dqn", "images", "shared"])
def test_native_agrees_with_the_session(case, kinds):
    rivals = compilers.Rivals(case)
    try:
        found = {kind: rivals.compare(dataclasses.replace(case, values=kind))["native"].wrong for kind in kinds}
    finally:
        rivals.close()
    assert {kind: wrong for kind, wrong in found.items() if wrong} == {}


@pytest.mark.slow
def test_a_fault_of_the_compiler_is_detected(monkeypatch):
    """Flags that once removed the guard of a gradient's norm and estimated 1/√0."""
    monkeypatch.setattr(llvm_builder, "ELEMENTWISE", "reassoc nsz arcp contract")
    options = {"hidden": [1], "critic_norm": "layer", "max_gradient_norm": 0.01}
    case = Case(options, batch=1, observations=1, updates=1, values="saturated actor")
    assert compilers.disagreements(case)


def test_different_numbers_and_places_of_nan_are_wrong():
    expected = {"w": np.float32([1, 2, np.nan, np.inf])}
    moved = {"w": np.float32([1.000001, 2, np.nan, np.inf])}
    for ours, wrong in (
        ([1, 2, np.nan, np.inf], False),
        ([1.00001, 2, np.nan, np.inf], False),
        ([1.0001, 2, np.nan, np.inf], True),
        ([1, np.nan, np.nan, np.inf], True),
        ([1, 2, np.nan, -np.inf], True),
        ([1, 2, 3, np.inf], True),
    ):
        assert bool(compilers._compared({"w": np.float32(ours)}, expected, [moved]).wrong) == wrong


def test_the_float64_result_widens_the_tolerance_where_it_is_finite():
    expected, exact = {"w": np.float32([1, 2])}, {"w": np.float64([1.001, np.inf])}
    for ours, wrong in (([1.001, 2], False), ([1.1, 2], True), ([1, np.inf], True)):
        assert bool(compilers._compared({"w": np.float32(ours)}, expected, [expected], exact).wrong) == wrong
    assert compilers._compared({"w": np.float32([1.001, 2])}, expected, [expected]).wrong


@pytest.mark.slow
def test_the_float64_reference_agrees_with_float32_up_to_rounding():
    case = Case({"hidden": [3], "norm": "renorm", "target_policy_noise": 0.2}, updates=1)
    rivals = compilers.Rivals(case)
    start, batch = compilers.weights(case, rivals._initial), minibatches(case)
    exact, single = (
        rivals._disturbed.in_float64(start, batch, 1),
        rivals._after(rivals._reference, start, batch),
    )
    rivals.close()
    assert exact["critic/output/W:0"].dtype == np.float64
    for name in start:
        np.testing.assert_allclose(exact[name], single[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_infinities_may_differ_where_rounding_moves_them():
    expected, other = {"w": np.float32([3e38, 1])}, {"w": np.float32([np.inf, 1])}
    found = compilers._compared(other, expected, [other])
    assert found.at_overflow
    assert not found.wrong


def test_a_number_that_rounding_makes_nan_may_have_any_value_but_others_may_not():
    expected, other = {"w": np.float32([1e20, 1])}, {"w": np.float32([np.nan, 1])}
    found = compilers._compared({"w": np.float32([-1e20, 1])}, expected, [other])
    assert not found.wrong
    assert found.at_overflow
    assert compilers._compared({"w": np.float32([1e20, 1e19])}, expected, [other]).wrong


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_samples_are_the_same_for_a_seed_and_survive_json(algorithm):
    one, other = (sample(np.random.default_rng([3, 4]), algorithm) for _ in range(2))
    assert one == other == Case.from_json(one.to_json())
    for field, again in zip(minibatches(one), minibatches(other), strict=True):
        np.testing.assert_array_equal(field, again)


def test_zero_rewards_come_with_a_value_that_is_its_bias():
    case = Case({"hidden": [3]}, actions=2, values="zero rewards", algorithm="DQN")
    with DQN(case.spaces, case.config, seed=0) as agent:
        found = compilers.weights(case, agent.session.run(agent.global_variables))
    assert not found["q/output/W:0"].any()
    assert found["q/hidden_0/W:0"].all()


def test_simplifying_a_case_ends():
    """Always taking the first simpler case leads to one that cannot be simplified."""
    case, steps = sample(np.random.default_rng(0)), 0
    while (other := next(simpler(case), None)) is not None:
        case, steps = other, steps + 1
    assert steps < 100
    assert case.options == {"hidden": [1]}
    assert (case.batch, case.observations, case.actions, case.updates, case.values) == (1, 1, 1, 1, "plain")
