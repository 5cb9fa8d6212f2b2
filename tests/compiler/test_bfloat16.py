"""``precision="bfloat16"``: products of rounded numbers, summed in float32; an error if the processor cannot do it."""

import functools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close
from emulated_amx import emulated
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding as llvm
from refusals import lacking, refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.compiler import compiled_update, jit
from ddpg.compiler.codegen_gemm import RegisterFile, register_file
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.interpreter import interpret, rounded_to_bfloat16
from ddpg.compiler.ir import Unsupported
from ddpg.compiler.lowering import lower
from ddpg.learners import updater
from ddpg.learners.graph import XLALearner
from ddpg.learners.native import NativeLearner

v1 = tf.compat.v1
AVX512_BF16 = jit.host_registers().bfloat16
here = pytest.mark.skipif(not AVX512_BF16, reason="this processor has no AVX512-BF16")
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
# Both factors as they are, or both transposed: seldom in an update.
SOME_LAYOUTS = [pytest.param(layout, marks=[pytest.mark.slow] * (layout[0] == layout[1])) for layout in LAYOUTS]
SIZES = 1, 7, 97, 256
# Every pair of sizes as rows and columns, as rows and inner size, and as columns and inner size.
SHAPES = [(one, other, SIZES[(i + j) % 4]) for i, one in enumerate(SIZES) for j, other in enumerate(SIZES)]


def compile_for(monkeypatch, amx, emulate=False):
    """Compile updates for AVX512-BF16, with AMX's instructions or without them."""
    compile_module = jit.compile_module
    registers = RegisterFile(16, 14, bfloat16=True, amx=amx)
    monkeypatch.setattr(compiled_update, "host_registers", lambda: registers)
    if emulate:
        monkeypatch.setattr(compiled_update, "compile_module", lambda text, n: compile_module(emulated(text), n))


@pytest.fixture(params=["AVX512-BF16", "AMX"])
def instructions(request, monkeypatch):
    """Compile updates with each of these instruction sets; AMX is emulated where the processor lacks it."""
    amx = request.param == "AMX"
    compile_for(monkeypatch, amx, emulate=amx and not jit.host_registers().amx)
    return request.param


@pytest.fixture
def rounded_products(compiled_products):
    return functools.partial(compiled_products, precision="bfloat16")


def arrays_of(shapes, layout, draw):
    """Return both factors of a product for each (rows, columns, inner size) in ``shapes``, transposed by ``layout``."""
    pairs = [((rows, inner), (inner, columns)) for rows, columns, inner in shapes]
    turned = [[shape[::-1] if flip else shape for shape, flip in zip(pair, layout, strict=True)] for pair in pairs]
    return [[draw(shape).astype(np.float32) for shape in pair] for pair in turned]


def exact_products(pairs, layout):
    """Return the products in float64, and the sums of the terms' magnitudes, which scale the error of float32 sums."""
    results = []
    for pair in pairs:
        matrices = [matrix.T if flip else matrix for matrix, flip in zip(pair, layout, strict=True)]
        with_a_vector = matrices[1].shape[1] == 1 or matrices[1].shape[0] == 1  # computed by float32 loops
        if not with_a_vector:
            matrices = [tf.cast(tf.cast(matrix, tf.bfloat16), tf.float32).numpy() for matrix in matrices]
        one, other = (np.asarray(matrix, np.float64) for matrix in matrices)
        results.append((one @ other, np.abs(one) @ np.abs(other)))
    return results


@here
@pytest.mark.parametrize("layout", SOME_LAYOUTS, ids=str)
@pytest.mark.usefixtures("instructions")
def test_products_are_those_of_the_rounded_numbers(layout, rng, rounded_products):
    pairs = arrays_of(SHAPES, layout, lambda shape: rng.normal(size=shape))
    for found, (exact, size) in zip(rounded_products(pairs, layout), exact_products(pairs, layout), strict=True):
        assert (np.abs(found - exact) <= 2e-6 * size).all(), found.shape


@here
@pytest.mark.parametrize(
    ("layout", "precision"),
    [
        ((False, True), "bfloat16"),
        ((True, False), "bfloat16x3"),
        pytest.param((False, True), "bfloat16x3", marks=pytest.mark.slow),
        pytest.param((True, False), "bfloat16", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_several_threads_compute_the_same_products(layout, precision, instructions, rng, compiled_products):
    """One thread computes the whole of a row, so the bits do not depend on the number of threads."""
    if (precision, instructions) == ("bfloat16x3", "AVX512-BF16"):
        pytest.skip("AMX's alone")
    pairs = arrays_of([(97, 7, 33), (7, 40, 5), (2, 3, 4)], layout, lambda shape: rng.normal(size=shape))
    alone, shared = (compiled_products(pairs, layout, workers, precision=precision) for workers in (1, 3))
    np.testing.assert_equal(alone, shared)


@pytest.mark.skipif(not jit.host_registers().amx, reason="this processor has no AMX, or the system does not permit it")
@pytest.mark.parametrize("layout", [(False, True), (True, False)], ids=str)
def test_the_emulator_computes_what_the_processor_does(layout, rng, rounded_products, monkeypatch):
    """It adds the pairs in another order."""
    pairs = arrays_of([(97, 7, 33), (7, 40, 5), (2, 3, 4)], layout, lambda shape: rng.normal(size=shape))
    results = []
    for emulate in (False, True):
        with monkeypatch.context() as patch:
            compile_for(patch, amx=True, emulate=emulate)
            results.append(rounded_products(pairs, layout))
    for one, other, (_, size) in zip(*results, exact_products(pairs, layout), strict=True):
        assert (np.abs(one - other) <= 2e-6 * size).all()


@here
@pytest.mark.usefixtures("instructions")
def test_products_by_hand(rounded_products):
    """bfloat16 has 8 significant bits, and ties go to the even number. Sums, here 257, have float32's precision."""
    eighth = 2.0**-8
    one = np.float32([[1 + eighth, 1 + 3 * eighth, 1 + 1.5 * eighth], [256, 1, 0]])
    other = np.float32([[1, 0], [1, 1], [1, 0]])
    (found,) = rounded_products([(one, other)])
    rounded = [1, 1 + 4 * eighth, 1 + 2 * eighth]
    np.testing.assert_array_equal(found, [[sum(rounded), rounded[1]], [257, 1]])


@here
@pytest.mark.usefixtures("instructions")
def test_nan_and_infinities_stay_in_their_rows(rounded_products):
    """Numbers above 3.39e38 round to infinity. NaN and infinities affect only the rows that they are in."""
    one = np.float32([[np.nan, 1, 0], [np.inf, 1, 0], [-np.inf, 1, 0], [3.4e38, 1, 0], [1, 1, 0]])
    (found,) = rounded_products([(one, np.full((3, 5), 2, np.float32))])
    np.testing.assert_array_equal(found[:, 0], [np.nan, np.inf, -np.inf, np.inf, 4])
    np.testing.assert_array_equal(found, np.repeat(found[:, :1], 5, 1))


@here
@pytest.mark.parametrize("instructions", ["AMX"], indirect=True)
@pytest.mark.parametrize("layout", SOME_LAYOUTS, ids=str)
@pytest.mark.usefixtures("instructions")
def test_three_products_are_as_good_as_sixteen_bits(layout, rng, compiled_products):
    """The error is at most 3·2⁻¹⁶ of the terms' magnitudes; with bfloat16 alone it is above 2⁻¹² of them."""
    shapes = [(rows, columns, inner) for rows, columns, inner in SHAPES if min(columns, inner) > 1][::3]
    pairs = arrays_of(shapes, layout, lambda shape: rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3))
    split, rounded = (compiled_products(pairs, layout, precision=name) for name in ("bfloat16x3", "bfloat16"))
    for one, other, pair in zip(split, rounded, pairs, strict=True):
        left, right = (np.float64(matrix.T if flip else matrix) for matrix, flip in zip(pair, layout, strict=True))
        exact, size = left @ right, np.abs(left) @ np.abs(right)
        assert (np.abs(one - exact) <= 3 * 2.0**-16 * size).all()
        if size.size > 100:
            assert (np.abs(other - exact) / size).max() > 2.0**-12


@here
@pytest.mark.parametrize("instructions", ["AMX"], indirect=True)
@pytest.mark.usefixtures("instructions")
def test_three_products_by_hand(compiled_products):
    """1 + 2⁻¹⁰ is 1 and 2⁻¹⁰; its square lacks that of the rest, 2⁻²⁰. NaN and infinities stay in their rows."""
    one = np.float32([[1 + 2.0**-10, 0], [np.nan, 1], [np.inf, 1], [1, 2]])
    (found,) = compiled_products([(one, np.float32([[1 + 2.0**-10, 0, 1], [0, 0, 1]]))], precision="bfloat16x3")
    np.testing.assert_array_equal(found[0], np.float32([1 + 2.0**-9, 0, 1 + 2.0**-10]))
    assert not np.isfinite(found[1:3]).any()
    np.testing.assert_array_equal(found[3], np.float32([1 + 2.0**-10, 0, 3]))


@given(st.lists(st.floats(width=32), min_size=1, max_size=9))
def test_the_interpreter_rounds_as_tensorflow_does(numbers):
    numbers = np.float32(numbers)
    numbers[np.abs(numbers) < 1.2e-38] = 0  # TensorFlow keeps subnormals, which an update flushes to 0
    expected = tf.cast(tf.cast(numbers, tf.bfloat16), tf.float32).numpy()
    np.testing.assert_array_equal(rounded_to_bfloat16(numbers), expected)


@here
@pytest.mark.parametrize("precision", ["bfloat16", "bfloat16x3"])
def test_a_compiled_update_equals_the_interpreter(precision, instructions, session, rng):
    """A forward pass, a backward pass and a step of Adam.

    The tolerance allows for a sum whose last bit makes the next product's argument round the other way.
    """
    if (precision, instructions) == ("bfloat16x3", "AVX512-BF16"):
        pytest.skip("AMX's alone")
    x, y = v1.placeholder(tf.float32, (9, 5)), v1.placeholder(tf.float32, (9, 3))
    w1, w2 = (v1.get_variable(name, shape) for name, shape in (("w1", (5, 17)), ("w2", (17, 3))))
    loss = tf.reduce_mean(tf.square(tf.tanh(x @ w1) @ w2 - y))
    with tf.control_dependencies([v1.train.AdamOptimizer(1e-2).minimize(loss)]):
        metrics = [tf.identity(loss)]
    session.run(v1.global_variables_initializer())
    variables, fields = v1.global_variables(), {"x": x, "y": y}
    compiled = CompiledUpdate(metrics, fields, variables, 1, precision=precision)
    start = session.run(variables)
    batch = {name: rng.normal(size=field.shape).astype(np.float32) for name, field in fields.items()}
    results = {}
    for name in ("float32", precision):
        values = [np.array(value) for value in start]
        program, outputs = lower(metrics, fields, variables, name)
        results[name] = interpret(program, outputs, batch, values)[0].item(), values
    for value, before in zip(compiled.values, start, strict=True):
        value[...] = before
    (found,), _ = compiled.run(1, [array[None] for array in batch.values()])
    expected, values = results[precision]
    assert found == pytest.approx(expected, rel=1e-5)
    assert (abs(found / results["float32"][0] - 1) < 1e-4) == (precision == "bfloat16x3")
    assert_close(compiled.values, values, rtol=1e-3, atol=1e-6)


def module_text(precision, monkeypatch, amx=False):
    """Return the LLVM code of an update with one product, compiled as for a processor with AVX512-BF16."""
    texts = []
    with monkeypatch.context() as patch, tf.Graph().as_default():
        patch.setattr(compiled_update, "host_registers", lambda: RegisterFile(16, 14, bfloat16=True, amx=amx))
        patch.setattr(compiled_update, "compile_module", lambda text, count: texts.append(text))
        x, y = v1.placeholder(tf.float32, (8, 33)), v1.placeholder(tf.float32, (33, 20))
        CompiledUpdate([tf.reduce_sum(x @ y)], {"x": x, "y": y}, [], 1, precision=precision)
    return jit.with_denormal_mode(texts[0])


@pytest.mark.parametrize(
    ("processor", "instructions", "others"),
    [
        ("znver4", ("vdpbf16ps", "vcvtne2ps2bf16"), ("tdpbf16ps",)),
        ("sapphirerapids", ("tdpbf16ps", "ldtilecfg", "tilerelease", "vcvtne2ps2bf16"), ("vdpbf16ps",)),
    ],
)
def test_the_assembly_uses_the_processors_bfloat16_instructions(processor, instructions, others, monkeypatch):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "x86_64-unknown-linux-gnu"
    text = module_text("bfloat16", monkeypatch, amx=processor == "sapphirerapids")
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    used = set(re.findall(r"^\t(\w+)", target.emit_assembly(jit.optimised(text, target, triple)), re.MULTILINE))
    assert used.issuperset(instructions)
    assert used.isdisjoint(others)
    plain = module_text("float32", monkeypatch, amx=True)
    assert "bf16" not in plain
    assert "tilecfg" not in plain


def test_the_code_cache_distinguishes_precisions_and_instruction_sets(monkeypatch):
    texts = [module_text(*which) for which in (("float32", monkeypatch), ("bfloat16", monkeypatch))]
    texts += [module_text(precision, monkeypatch, amx=True) for precision in ("bfloat16", "bfloat16x3")]
    assert len({jit._key(text) for text in texts}) == 4


@pytest.mark.parametrize(
    ("features", "bfloat16", "amx"),
    [
        ("+avx512f,+avx512bf16", True, False),
        ("+avx512f,-avx512bf16", False, False),
        ("+avx512f", False, False),
        ("+avx2,+avx512bf16", False, False),  # a hypervisor that hides AVX-512 may report this
        ("+amx-bf16,+amx-tile,+avx512f,+avx512bf16", True, True),
        ("+amx-bf16,-amx-tile,+avx512f,+avx512bf16", True, False),
        ("-amx-bf16,+amx-tile,+avx512f,+avx512bf16", True, False),
        ("+amx-bf16,+amx-tile,+avx512f", False, False),  # AMX does not convert float32 to bfloat16
    ],
)
def test_instruction_sets_are_recognised_by_the_processors_features(features, bfloat16, amx):
    registers = register_file(features)
    assert (registers.bfloat16, registers.amx) == (bfloat16, amx)


@pytest.mark.parametrize("allowed", [True, False])
def test_amx_is_used_only_if_the_system_permits_it(allowed, monkeypatch):
    """Linux, for example in a virtual machine, may deny a process the tile registers that the processor has."""
    features = "+amx-bf16,+amx-tile,+avx512f,+avx512bf16"
    monkeypatch.setattr(jit._llvm(), "get_host_cpu_features", lambda: SimpleNamespace(flatten=lambda: features))
    monkeypatch.setattr(jit, "_may_use_amx", lambda: allowed)
    assert jit.host_registers() == RegisterFile(16, 14, bfloat16=True, amx=allowed)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux requires permission")
def test_linux_permits_amx_if_the_processor_has_it():
    """Otherwise Linux refuses with ENOTSUPP; /proc/cpuinfo lists the processor's features."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    assert jit._may_use_amx() is ("amx_tile" in flags)


def agent_of(precision, **options):
    spaces = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
    config = DDPGConfig(hidden=(17,), batch_size=31, updates_per_call=3, precision=precision, **options)
    agent, rng = DDPG(spaces, config, seed=0), np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, (51, 3)).astype(np.float32), rng.uniform(-1, 1, (50, 2)).astype(np.float32)
    ends = np.zeros(50, bool)
    agent.remember(states[:-1], actions, rng.normal(size=50), states[1:], ends, ends)
    return agent


def learned(precision, **options):
    """Return an agent's parameters, as one array, after six updates."""
    with agent_of(precision, **options) as agent:
        agent.update(6)
        parameters = agent.get_parameters()
    return np.concatenate([parameters[name].ravel() for name in sorted(parameters)])


@pytest.mark.slow
@here
@pytest.mark.parametrize("instructions", ["AMX"], indirect=True)
@pytest.mark.usefixtures("instructions")
def test_three_products_change_the_weights_a_thousand_times_less():
    plain, narrow, split = map(learned, ("float32", "bfloat16", "bfloat16x3"))
    assert 0 < np.median(np.abs(split - plain)) < np.median(np.abs(narrow - plain)) / 100


@here
def test_precision_changes_the_weights_and_runs_are_reproducible():
    plain, narrow = learned("float32"), learned("bfloat16")
    assert 1e-6 < np.abs(plain - narrow).max() < 1e-2  # six steps of Adam of at most 1e-3 each
    np.testing.assert_array_equal(narrow, learned("bfloat16"))


@pytest.mark.parametrize(
    ("processor", "amx", "chosen"),
    [
        ("znver5", False, "bfloat16"),
        pytest.param("cooperlake", False, "float32", marks=pytest.mark.slow),
        ("emeraldrapids", True, "bfloat16x3"),
    ],
)
def test_auto_chooses_the_faster_precision(processor, amx, chosen, monkeypatch, capsys):
    """``auto`` decides by LLVM's name of the processor or by AMX; one line explains a choice of float32.

    The update is then compiled in float32, which every processor has.
    """
    native = NativeLearner
    chosen_precisions = []
    monkeypatch.setattr(jit._llvm(), "get_host_cpu_name", lambda: processor)
    monkeypatch.setattr(jit, "host_registers", lambda: RegisterFile(16, 14, bfloat16=True, amx=amx))

    def learner(*arguments, precision, **options):
        chosen_precisions.append(precision)
        return native(*arguments, **options)

    monkeypatch.setattr(updater, "NativeLearner", learner)
    with agent_of("auto") as agent:
        assert isinstance(agent.updater.learner, native)
    assert chosen_precisions == [chosen]
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == (chosen == "float32")
    assert not any(lacking(line, f"precision auto {processor} float32") for line in lines)


@pytest.fixture
def older_processor(monkeypatch):
    """This processor without AVX512-BF16."""
    features = jit._llvm().get_host_cpu_features()
    features["avx512bf16"] = False
    monkeypatch.setattr(jit._llvm(), "get_host_cpu_features", lambda: features)


def test_a_processor_without_the_instructions_is_refused(older_processor):
    with refuses(Unsupported, "AVX512-BF16"), tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (3, 3))
        CompiledUpdate([tf.reduce_sum(x @ x)], {"x": x}, [], precision="bfloat16")
    with agent_of("bfloat16") as agent, refuses(UsageError, "precision bfloat16 AVX512-BF16 float32 auto") as caught:
        agent.update(1)
    assert "\n" not in str(caught.value)


def test_three_products_need_amx(monkeypatch):
    monkeypatch.setattr(compiled_update, "host_registers", lambda: RegisterFile(16, 14, bfloat16=True))
    with agent_of("bfloat16x3") as agent, refuses(UsageError, "precision bfloat16x3 AMX float32 auto"):
        agent.update(1)


def test_auto_without_the_instructions_is_float32_with_a_message(older_processor, capsys):
    narrow = learned("auto")
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert not lacking(line, "precision auto AVX512-BF16 float32")
    np.testing.assert_array_equal(narrow, learned("float32"))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
@pytest.mark.parametrize("options", [{"compiler": "xla"}, {"jit": False}], ids=["xla", "session"])
def test_precision_requires_the_native_driver(precision, options):
    with refuses(UsageError, f"precision {precision} native"):
        DDPGConfig(precision=precision, **options)
    with refuses(UsageError, "precision", "half"):
        DDPGConfig(precision="half")


@here
def test_an_untranslatable_update_is_refused_by_bfloat16_and_reported_by_auto(capsys):
    with agent_of("bfloat16", activation=tf.sin) as agent, refuses(UsageError, "precision bfloat16 Sin"):
        agent.update(1)
    with agent_of("auto", activation=tf.sin) as agent:
        agent.update(1)
        assert isinstance(agent.updater.learner, XLALearner)
    assert not lacking(capsys.readouterr().err, "precision auto Sin float32")


@here
def test_bfloat16_selects_the_native_driver_on_a_machine_with_a_gpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    with agent_of("bfloat16") as agent:
        assert isinstance(agent.updater.learner, NativeLearner)
