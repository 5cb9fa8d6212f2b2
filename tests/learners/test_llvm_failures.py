"""If any stage of LLVM fails, XLA compiles the updates and NumPy acts, after a one-line warning."""

import inspect
import re

import gymnasium as gym
import numpy as np
import pytest
from llvmlite import binding as llvm
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.compiler import jit
from ddpg.learners import updater

CONFIG = DDPGConfig(hidden=(4,), buffer_size=500, batch_size=8, optimizer="sgd")
SPACES = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-2, 2, (1,))
FUNCTIONS = sorted(set(re.findall(r"llvm(?:\(\))?\.([a-z]\w+)\(", inspect.getsource(jit))))
STAGES = [
    *((llvm, name) for name in FUNCTIONS),
    (llvm, "initialize_native_target"),
    (llvm, "initialize_native_asmprinter"),
    (llvm.Target, "from_default_triple"),
    (llvm.Target, "create_target_machine"),
    (llvm.ModuleRef, "verify"),
    (llvm.newpassmanagers.PassBuilder, "getModulePassManager"),
    (llvm.newpassmanagers.ModulePassManager, "run"),
    (llvm.ExecutionEngine, "set_object_cache"),
    (llvm.ExecutionEngine, "finalize_object"),
    (llvm.ExecutionEngine, "get_function_address"),
]


@pytest.fixture
def nothing_compiled(monkeypatch):
    """Clear the caches of compiled code, and afterwards also what was loaded with the fault."""
    monkeypatch.setenv("DDPG_CACHE", "off")
    yield jit.compile_module.cache_clear(), jit._llvm.cache_clear()
    jit.compile_module.cache_clear()
    jit._llvm.cache_clear()


class Instead:
    """Stands for XLA's learner, whose graph takes most of the time to build; test_native updates with the real one."""

    def __init__(self, *arguments, **options):
        pass


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize(
    ("owner", "name"),
    [pytest.param(*stage, marks=[pytest.mark.slow] * (index % 4 > 0)) for index, stage in enumerate(STAGES)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_failure_in_any_stage(monkeypatch, capfd, owner, name):
    planted = []

    def fails(*arguments, **options):
        planted.append(name)
        raise RuntimeError("planted\nsecond line")

    monkeypatch.setattr(owner, name, fails)
    monkeypatch.setattr(updater, "XLALearner", Instead)
    agent = DDPG(SPACES, CONFIG, seed=0)
    assert isinstance(agent.updater.learner, Instead)
    assert planted
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "planted" in line]
    assert "XLA" in line
    observation = np.full(3, 0.5, np.float32)
    np.testing.assert_array_equal(agent.predict(observation)[0], agent.predict(observation[None])[0][0])
    assert agent._native_policy is None


@pytest.mark.usefixtures("nothing_compiled")
def test_a_failure_is_an_error_if_the_compiler_is_required(monkeypatch):
    def fails(text):
        raise OSError(8)

    monkeypatch.setattr(llvm, "parse_assembly", fails)
    agent = DDPG(SPACES, CONFIG.replace(compiler="native"), seed=0)
    with refuses(UsageError, "auto xla"):
        _ = agent.updater.learner


def test_the_names_of_llvms_functions_exist():
    assert {"parse_assembly", "create_mcjit_compiler", "create_pass_builder"} <= set(FUNCTIONS)
