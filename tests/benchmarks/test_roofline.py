"""Operations counted in an update's program and in XLA's HLO, against values worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed.roofline.count import Product, cost
from benchmarks.speed.roofline.hlo import kernels
from benchmarks.speed.roofline.least import least
from benchmarks.speed.roofline.measure import Subject, blas_product, medians, xla_product
from benchmarks.speed.roofline.profile import profile_table, profile_update
from benchmarks.speed.roofline.recipes import count_update
from benchmarks.speed.roofline.report import bound, roofline_tables
from benchmarks.speed.tasks import Task
from ddpg import DDPGConfig
from ddpg.compiler.ir import Program
from ddpg.compiler.schedule import schedule
from ddpg.config.presets import RECIPES, recipe_options

ROOT = Path(__file__).parents[2]


def test_a_layer_is_counted_by_hand():
    """relu(x·w + b), x [8, 3], w [3, 4]: one product, and one pass that also sums the result for a metric."""
    program = Program()
    x, w, b = program.input("x", (8, 3)), program.var_read(0, (3, 4)), program.var_read(1, (1, 4))
    product = program.matmul(x, w, False, False)
    layer = program.elementwise("max", program.elementwise("add", product, b), program.literal(0.0))
    total = program.reduce_sum(layer, "all")
    counted = cost(schedule(program, [total]), [total])
    assert counted.products == (Product(8, 3, 4, (False, False)),)
    assert counted.product_flop == 2 * 8 * 3 * 4
    assert counted.product_bytes == 4 * (8 * 3 + 3 * 4 + 8 * 4)
    assert counted.passes == 1
    assert counted.pass_flop == 3 * 32  # add, max, sum
    assert counted.pass_bytes == 4 * (32 + 4 + 1)  # the product and b are read, the sum is written


def test_a_transposed_product_is_counted_by_hand():
    """xᵀ·d, x [8, 3], d [8, 4]: the gradient [3, 4] of a layer's weights."""
    program = Program()
    gradient = program.matmul(program.input("x", (8, 3)), program.input("d", (8, 4)), True, False)
    total = program.reduce_sum(gradient, "all")
    counted = cost(schedule(program, [total]), [total])
    assert counted.products == (Product(3, 8, 4, (True, False)),)
    assert counted.product_flop == 2 * 3 * 8 * 4


def test_an_assignment_reads_and_writes_the_variable_once():
    """w ← w·0.5, in the same pass as a metric that reads w."""
    program = Program()
    w = program.var_read(0, (3, 4))
    total = program.reduce_sum(w, "all")
    program.write(0, program.elementwise("mul", w, program.literal(0.5)))
    counted = cost(schedule(program, [total]), [total])
    assert (counted.products, counted.passes, counted.pass_flop) == ((), 1, 24)
    assert counted.pass_bytes == 4 * (12 + 12 + 1)


HLO = """
%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p)
}

%body.1 (arg: (s32[], f32[2])) -> (s32[], f32[2]) {
  %arg = (s32[], f32[2]{0}) parameter(0)
  %g = f32[2]{0} get-tuple-element(%arg), index=1
  %dot.1 = f32[2]{0} dot(%g, %g), lhs_contracting_dims={}
  %f.1 = f32[2]{0} fusion(%dot.1), kind=kLoop, calls=%fused
  %f.2 = (f32[2]{0}, f32[2]{0}) fusion(%f.1), kind=kLoop, calls=%fused
  ROOT %t = (s32[], f32[2]{0}) tuple(%g, %f.2)
}

ENTRY %main (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  ROOT %w = (s32[], f32[2]{0}) while(%a), condition=%c, body=%body.1
}
"""


def test_kernels_are_counted_in_the_loop_body():
    assert kernels(HLO) == {"fusion": 2, "dot": 1}
    assert kernels("ENTRY %main () -> f32[] {\n  ROOT %c = f32[] constant(0)\n}\n") == {}


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_blas_multiplies_the_product_s_shapes(transposed):
    product = Product(8, 3, 4, transposed)
    assert blas_product(product)().shape == (8, 4)


def test_xla_repeats_the_product():
    call, amount = xla_product(Product(8, 3, 4, (True, False)))
    rng = np.random.default_rng(0)
    one, other = rng.uniform(-1, 1, (3, 8)).astype(np.float32), rng.uniform(-1, 1, (3, 4)).astype(np.float32)
    np.testing.assert_allclose(call(), one.T @ other, rtol=1e-5, atol=1e-6)
    assert amount == 50


def test_times_are_per_repetition(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("benchmarks.speed.roofline.measure.time.perf_counter", lambda: now[0])
    calls = {"a": (lambda: now.__setitem__(0, now[0] + 2.0), 4)}
    assert medians(calls, repeats=3, seconds=3.0) == {"a": [0.5, 0.5, 0.5]}


TINY = Task("Pendulum-v1", (8, 8), 8, 0.99, 100)


@pytest.mark.slow
def test_a_part_of_an_update_leaves_out_the_other_kernels():
    """Passes change the weights, products alone do not; ``steps`` always holds the complete schedule."""
    moved = {}
    for part in ("whole", "products", "passes", "nothing"):
        subject = Subject(TINY, part)
        (before,) = [subject._agent.get_parameters()]
        subject.run()
        after = subject._agent.get_parameters()
        moved[part] = any(not np.array_equal(before[name], after[name]) for name in before)
        assert len(cost(subject.steps, subject.outputs).products) > 5
    assert moved == {"whole": True, "products": False, "passes": True, "nothing": False}


def test_the_bound_follows_from_the_machine_s_rates():
    """6 MFLOP at 100 GFLOP/s and 200 kB at 10 GB/s: 60 + 20 µs, for an update that takes 100 µs."""
    parts = ("native: products", "native: passes", "native: nothing", "blas: products", "xla: products", "xla: whole")
    seconds = {part: [50e-6, 40e-6, 60e-6] for part in parts}
    seconds |= {"native: whole": [100e-6, 90e-6, 110e-6], "blas: products": [80e-6] * 3}
    seconds |= {"machine: product": [1e-2] * 3, "machine: copy": [1e-4] * 3}
    found = {
        "cost": {
            **{"products": 2, "passes": 3, "product_flop": 6_000_000},
            **{"product_bytes": 1, "pass_flop": 1, "pass_bytes": 200_000},
        },
        "machine": {"flop": 10**9, "bytes": 10**6},
        "updates_per_call": 32,
        "threads": 1,
        "xla_kernels": {"dot": 4, "fusion": 5},
        "seconds": seconds,
    }
    assert bound(found) == pytest.approx(80e-6)
    text = roofline_tables({"tasks": {"T": found}})
    for line in (
        "| our update | 100.0 (90.0 to 110.0) |",
        "| GFLOP/s of products: ours | 120 |",
        "| GB/s of a copy in the cache | 10 |",
        "| bound / our update (share reached) | 80 % |",
        "| the same products by BLAS / our update | 80 % |",
        "| XLA's kernels per update | 9 |",
        "| calls from Python per update | 1/32 |",
    ):
        assert line in text, line


SMALL = {"hidden": (4, 5), "batch_size": 8, "buffer_size": 100}


def test_the_least_of_plain_ddpg_by_hand():
    """3 observations, 2 actions, actor 3-4-5-2, critic 5-4-5-1, whose last layer is not a product.

    One row of the actor's forward pass takes 2·(12 + 20 + 10) = 84 operations, of the critic's 2·(20 + 20) = 80.
    """
    need = least(DDPGConfig(**SMALL), 3, 2)
    y = 8 * (84 + 80)
    critic = 8 * (80 + 80 + 40)  # forward, weights' gradients, gradients between layers
    actor = 8 * (84 + 80 + (40 + 2 * 2 * 4) + 84 + 60)  # forward of both; back to the action; weights, between layers
    assert need.flop == y + critic + actor == 5824
    # y: 9 units of each network are read and written, without writing Q's 5 inputs. Critic: 13 + 22; actor: 18 + 27.
    activations = 8 * ((18 + 13) + (13 + 22) + (18 + 27) + (13 + 22))
    assert need.pass_bytes == 4 * (activations + (55 + 53) * 9)  # the critic has 55 weights and biases, the actor 53


def test_the_least_of_a_critic_with_layers_of_its_own_by_hand():
    """As above with a critic 5-6-1: one row of its forward pass takes 2·30 operations, in one product."""
    need = least(DDPGConfig(**SMALL, critic_hidden=(6,)), 3, 2)
    y = 8 * (84 + 60)
    critic = 8 * (60 + 60)  # forward and weights' gradients; there is no gradient between layers
    actor = 8 * (84 + 60 + 2 * 2 * 6 + 84 + 60)
    assert need.flop == y + critic + actor
    # y: 9 units of the actor; Q's 6 are only written. Critic: 6 written, 2·6 for the gradient; actor: 18 + 27.
    activations = 8 * ((18 + 6) + 18 + (18 + 27) + 18)
    assert need.pass_bytes == 4 * (activations + (43 + 53) * 9)


def test_the_least_of_a_joint_pass_by_hand():
    """Two critics 5-4-5-16 on 8 + 8 rows of 2·(20 + 20 + 80) = 240 operations; the actor in every third update."""
    config = DDPGConfig(
        **SMALL, n_critics=2, policy_delay=3, critic="categorical", atoms=16, target="none", norm="renorm"
    )
    need = least(config, 3, 2)
    forward = 8 * 84 + 2 * 16 * 240
    backward = 2 * (8 * 160 + 16 * 80 + 8 * 160 + 16 * 40)  # weights, between layers; the output layer on 8 rows only
    actor = 8 * (84 + 240 + (40 + 160 + 16) + 84 + 60)
    assert need.flop == forward + backward + actor / 3


@pytest.mark.parametrize("entry", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_small_update_needs_the_minimum_of_operations(entry):
    """Of the gradient of the critic's inputs, only the action's two columns are computed."""
    found = count_update(DDPGConfig(**SMALL, action_layer=entry), 3, 2)
    assert found["product_flop"] == found["least_flop"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_needs_the_minimum_of_operations(recipe):
    """Half of the output layer's gradient is 0; sums for γ and β of the inputs are part of the weights' gradient."""
    options = recipe_options(recipe, DDPGConfig, "HalfCheetah-v5") | SMALL
    found = count_update(DDPGConfig(**options), 3, 2)
    assert found["product_flop"] == pytest.approx(found["least_flop"])


@pytest.mark.slow
def test_a_profile_times_products_and_passes_and_counts_barriers():
    """One thread has no barriers; with two, the longer shares take between half of all work and all of it."""
    config = DDPGConfig(**SMALL, updates_per_call=2, compiler="native")
    (one,), (two,) = (profile_update(config.replace(threads=threads), threads, 3) for threads in (1, 2))
    assert (one["meetings"], two["meetings"] > 5) == (0, True)
    for found in (one, two):
        assert min(found["products"], found["passes"]) > 0
        assert found["longest"] <= (found["products"] + found["passes"]) * 1.001
    assert two["longest"] >= (two["products"] + two["passes"]) / 2.001


def test_the_speedup_by_a_second_core():
    """100 µs on one thread; on two the longer shares take 60 µs, and 10 barriers 4 µs."""
    one = {"products": 80.0, "passes": 20.0, "longest": 100.0, "meetings": 0}
    two = {"products": 90.0, "passes": 30.0, "longest": 60.0, "meetings": 10}
    text = profile_table({"recipes": {"ddpg": {"1": [one], "2": [two]}}})
    assert "| speedup by the second core if barriers took no time | 1.67 |" in text
    assert "| ... if a barrier takes 0.4 µs | 1.56 |" in text
