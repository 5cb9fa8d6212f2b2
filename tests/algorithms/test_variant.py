"""A new algorithm is an update that changes a term of another, a class of options, and a line in the registry."""

import dataclasses
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.agents.off_policy import agent_for
from ddpg.algorithms import crossq, ddpg, dqn, td3_bc
from ddpg.algorithms.registry import ALGORITHMS, Algorithm, algorithm_named, update_of
from ddpg.config.imports import imports_allowed

SPACES = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))


@dataclasses.dataclass(frozen=True)
class CautiousConfig(DDPGConfig):
    caution: float = 0.0


@dataclasses.dataclass(frozen=True)
class CautiousUpdate(ddpg.DDPGUpdate):
    """DDPG with a target that is lowered by a constant."""

    def target(self, batch):
        return super().target(batch) - self.config.caution


class CautiousCloning(td3_bc.TD3BCUpdate):
    """TD3+BC with the same target."""

    def target(self, batch):
        return super().target(batch) - self.config.caution


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, CautiousUpdate))


def learned(config, reward=1.0):
    agent = DDPG(SPACES, config, seed=0)
    for number in range(8):
        agent.observe([0.1 * number, 0.5], [0.0], reward, [0.0, 0.0], True, False)
    return agent, agent.update(8)


OPTIONS = {"hidden": (4,), "batch_size": 4, "updates_per_call": 4, "learning_starts": 0, "optimizer": "sgd"}


@pytest.mark.parametrize("jit", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_variant_changes_only_its_term(registered, jit, tmp_path):
    """Rewards of 1 with a caution of 3 equal rewards of −2, also compiled."""
    plain, plain_metrics = learned(DDPGConfig(**OPTIONS, jit=jit), reward=-2.0)
    agent, metrics = learned(CautiousConfig(**OPTIONS, jit=jit, caution=3.0))
    assert metrics == plain_metrics
    np.testing.assert_equal(*(a.session.run(a.critic.variables) for a in (plain, agent)))

    agent.save(tmp_path / "c")
    loaded = DDPG.load(tmp_path / "c")
    assert loaded.config == agent.config
    assert type(loaded.symbolic_update) is CautiousUpdate
    assert agent.update(4) == loaded.update(4)


@pytest.mark.parametrize(
    "options",
    [{"bc_alpha": 2.5}, *(pytest.param(options, marks=pytest.mark.slow) for options in ({"bc_only": True}, {}))],
)
def test_an_update_derived_from_behaviour_cloning_has_its_own_target_and_clones_as_its_options_say(
    options, monkeypatch
):
    """Rewards of 1 with a caution of 3 equal rewards of −2 in the supplied update, for actor and critic."""
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, CautiousCloning))
    options = OPTIONS | options | {"n_critics": 2, "jit": False}
    agent, metrics = learned(CautiousConfig(**options, caution=3.0))
    assert type(agent.symbolic_update) is CautiousCloning
    plain, plain_metrics = learned(DDPGConfig(**options), reward=-2.0)
    assert metrics == plain_metrics
    np.testing.assert_equal(agent.get_parameters(), plain.get_parameters())


def test_options_without_a_registry_entry_are_refused():
    with refuses(UsageError, "CautiousConfig"):
        DDPG(SPACES, CautiousConfig())


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"td_target": "placeholder", "updates_per_call": 1}]
)
def test_metrics_are_those_named_by_the_class(registered, options, monkeypatch):
    config = CautiousConfig(**OPTIONS | options, jit=False)
    monkeypatch.setattr(CautiousUpdate, "metrics", (*ddpg.DDPGUpdate.metrics, "nope"))
    with refuses(UsageError, "CautiousUpdate.metrics ['nope']"):
        learned(config)
    monkeypatch.setattr(CautiousUpdate, "metrics", ddpg.DDPGUpdate.metrics[1:])
    with refuses(UsageError, "CautiousUpdate.metrics ['critic_loss']"):
        learned(config)


def of_update(**members):
    """Return the algorithm of an update that has ``members`` in place of DDPG's."""
    own = type("Own", (ddpg.DDPGUpdate,), {"__module__": __name__, **members})
    return Algorithm(CautiousConfig, dataclasses.dataclass(frozen=True)(own))


def late_target(update, batch):
    with tf.compat.v1.variable_scope("late", reuse=tf.compat.v1.AUTO_REUSE):
        shift = tf.compat.v1.get_variable("shift", [], use_resource=True)
    return ddpg.DDPGUpdate.target(update, batch) + shift


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"target": lambda update, batch: update.config.cautoin}, "Own cautoin test_variant.py line"),
        ({"target": lambda update, batch: None}, "Own.target None"),
        ({"critic_step": lambda update, batch, y: None}, "Own None metrics"),
        ({"target": late_target}, "late/shift:0 Own.build"),
        ({"build": classmethod(lambda kind, config, spaces: config.cautoin)}, "Own cautoin test_variant.py line"),
        ({"build": classmethod(lambda kind, config, spaces: None)}, "Own.build NoneType DDPGUpdate"),
    ],
)
def test_a_mistake_in_an_update_is_one_line(members, message, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "Cautious", of_update(**members))
    with refuses(UsageError, message):
        learned(CautiousConfig(**OPTIONS, jit=False))


class Silent(ddpg.DDPGUpdate):
    """DDPG whose critic reports no TD errors."""

    def critic_step(self, batch, y):
        return ddpg.critic_step(self.critic, batch, y)


@pytest.mark.parametrize("driver", [{}, {"jit": False}])
def test_prioritised_replay_without_td_errors_is_refused(driver, monkeypatch):
    """Otherwise the priorities would never change, and sampling would stay uniform."""
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, Silent))
    with refuses(UsageError, "prioritised='lap' Silent td_errors"):
        learned(CautiousConfig(**OPTIONS | driver, prioritised="lap"))


def test_a_target_without_its_second_axis_is_refused_with_a_loss_of_ones_own(monkeypatch):
    """q [B, 1] and y [B] would broadcast to [B, B]."""
    flat = of_update(target=lambda update, batch: ddpg.DDPGUpdate.target(update, batch)[:, 0])
    monkeypatch.setitem(ALGORITHMS, "Cautious", flat)
    with refuses(UsageError, "(4, 1) (4,) [B, 1]"):
        learned(CautiousConfig(**OPTIONS, jit=False, critic_loss=lambda q, y: tf.reduce_mean(tf.abs(q - y))))


class Shifted(ddpg.DDPGUpdate):
    """DDPG with a variable that its target assigns to."""

    def __post_init__(self):
        super().__post_init__()
        with self.actor.graph.as_default():
            shift = tf.compat.v1.get_variable("own/shift", initializer=0.0, trainable=False, use_resource=True)
        object.__setattr__(self, "shift", shift)

    def target(self, batch):
        self.shift.assign_add(tf.reduce_mean(batch.rewards))
        return super().target(batch) - self.shift


class ShiftedInOrder(Shifted):
    """The same, and y waits for the assignment."""

    def target(self, batch):
        with tf.control_dependencies([self.shift.assign_add(tf.reduce_mean(batch.rewards), read_value=False)]):
            return ddpg.DDPGUpdate.target(self, batch) - self.shift.read_value()


DRIVERS = {
    "native": {},
    "uncompiled": {"jit": False},
    "stepped": {"jit": False, "td_target": "placeholder", "updates_per_call": 1},
    "xla": {"compiler": "xla"},
}


@pytest.mark.parametrize(
    "driver", ["native", "stepped", *(pytest.param(d, marks=pytest.mark.slow) for d in ("uncompiled", "xla"))]
)
def test_an_assignment_that_nothing_waits_for_is_refused_by_every_driver(driver, monkeypatch):
    """In a session and in native code it would never be done, and under XLA it would be."""
    config = CautiousConfig(**OPTIONS | DRIVERS[driver])
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, Shifted))
    with refuses(UsageError, "Shifted own/shift tf.control_dependencies"):
        learned(config)
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, ShiftedInOrder))
    agent, _ = learned(config)
    assert agent.session.run(agent.symbolic_update.shift) == 8  # one reward of 1 in each of 8 updates


@pytest.mark.parametrize("agent", ["test_variant:Missing", "test_variant.Agent", "test_variant:CautiousConfig"])
def test_an_agent_that_is_none_is_refused(agent, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, CautiousUpdate, agent))
    with refuses(UsageError, agent):
        agent_for(SPACES[1], CautiousConfig())


def test_classes_of_an_algorithm_in_the_wrong_order_are_refused(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Swapped", Algorithm(CautiousUpdate, CautiousConfig), raising=False)
    with imports_allowed([__name__]), refuses(UsageError, "Swapped CautiousUpdate AgentConfig"):
        algorithm_named(f"{__name__}:Swapped")


def own_options(kind, check=DDPGConfig.__post_init__, **field):
    """Return a class of options with one more, ``caution`` of a type."""
    own = ("caution", kind, dataclasses.field(**field))
    namespace = {"__post_init__": check}
    return dataclasses.make_dataclass("Own", [own], bases=(DDPGConfig,), namespace=namespace, frozen=True, kw_only=True)


def too_much(config):
    raise ValueError(f"{config.caution} is too much")


class Undecorated(DDPGConfig):
    caution: float = 0.0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Undecorated, "Undecorated @dataclasses.dataclass(frozen=True)"),
        (own_options(float), "Own caution default"),
        (own_options(dict, default=None), "Own caution dict tuple"),
        (own_options(tuple[str, ...], default=()), "Own caution tuple[str, ...] numbers"),
        (own_options(float, too_much, default=3.0), "Own ValueError 3.0 too much"),
    ],
)
def test_a_class_of_options_that_flags_and_files_cannot_set_is_refused(kind, message, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Odd", Algorithm(kind, CautiousUpdate), raising=False)
    with imports_allowed([__name__]), refuses(UsageError, f"algorithm '{__name__}:Odd' {message}"):
        algorithm_named(f"{__name__}:Odd")


def test_options_of_dqn_need_its_agent(monkeypatch):
    kind = dataclasses.make_dataclass("Own", [], bases=(DQNConfig,), frozen=True)
    update = dataclasses.dataclass(frozen=True)(type("Update", (dqn.DQNUpdate,), {}))
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(kind, update))
    with refuses(UsageError, "DDPG Cautious Own 'ddpg.agents.dqn:DQN'"):
        agent_for(gym.spaces.Discrete(2), kind())
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(kind, update, "ddpg.agents.dqn:DQN"))
    assert agent_for(gym.spaces.Discrete(2), kind()) is DQN


def test_a_name_that_no_module_has_registered_yet_is_refused_with_what_to_do():
    with refuses(UsageError, "algorithm 'Elsewhere' module:Name imported in Python"):
        algorithm_named("Elsewhere")


def test_an_update_derived_from_crossq_without_its_joint_pass_is_refused(monkeypatch):
    own = type("Own", (crossq.CrossQUpdate,), {})
    monkeypatch.setitem(ALGORITHMS, "Cautious", Algorithm(CautiousConfig, own))
    assert update_of(CautiousConfig(target="none", norm="renorm")) is own
    with refuses(UsageError, "Cautious Own target='ema' 'none' 'joint_ema' TD3Update"):
        update_of(CautiousConfig())
