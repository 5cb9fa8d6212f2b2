"""Exports reproduce trained agents of every preset, recipe, network, bounding, normalisation and format.

The axes are read from the registries, so that new entries are tested without a change here.
"""

import functools
import itertools
from typing import NamedTuple

import c_compilers
import gymnasium as gym
import numpy as np
import pytest
from environments import Reaching, Shaped
from refusals import refuses

import ddpg
from ddpg import DDPGConfig, DQNConfig
from ddpg.agents.off_policy import agent_for, load_agent
from ddpg.config.algorithm_options import NORMS
from ddpg.config.options import from_toml
from ddpg.config.presets import PRESETS, RECIPES, SUITES, preset_config, read_recipe
from ddpg.exports import export as exporting
from ddpg.exports import formats, policy_file, policy_graph
from ddpg.exports.export import FORMATS, Rounding, compare, sample_observations
from ddpg.exports.policy_graph import ACTIONS, VALUES, ActingPolicy
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.interaction.action_mask import FORBIDDEN
from ddpg.policies import standalone
from ddpg.runs.env_factory import make_env

UNCHANGED = "unchanged"  # keeps the value of the recipe or the preset
STEPS = 120
RUNNERS = {"savedmodel": formats.run_savedmodel, "tflite": formats.run_tflite, "onnx": formats.run_onnx}


class Case(NamedTuple):
    """One policy: a preset's environment, options, and a format."""

    preset: str
    recipe: str
    bounding: str
    norm: str | None
    normalize: bool
    layers: int
    format: str
    network: str = "mlp"


AXES = Case(
    preset=[*SUITES, "custom", *PRESETS],  # a suite's own options, unchanged, are the first case
    recipe=[UNCHANGED, *RECIPES],
    bounding=[UNCHANGED, *BOUNDINGS],
    norm=[UNCHANGED, None, *NORMS],
    normalize=[False, True],
    layers=[2, 1],
    format=[*FORMATS],
    network=["mlp", "conv", "shared_encoder"],
)


def fits(case: Case) -> bool:
    """Return whether the options go together: images of bytes are not normalised."""
    return case.network == "mlp" or not case.normalize


def pairwise(axes: Case) -> list[Case]:
    """Return one case per preset, chosen greedily to cover many pairs of the other axes' values."""
    rest = [case for values in itertools.product(*axes[1:]) if fits(case := Case(None, *values))]
    pairs = {case: {*itertools.combinations(enumerate(case[1:]), 2)} for case in rest}
    missing = set().union(*pairs.values())
    cases = []
    for preset in axes.preset:
        best = max(rest, key=lambda case: len(pairs[case] & missing))
        missing -= pairs[best]
        cases.append(best._replace(preset=preset))
    return cases


def product(axes: Case) -> list[Case]:
    """Return all combinations of recipe, bounding, norm and normalize, and all of preset and recipe.

    And of networks on images all of recipe and norm, and each preset; of actors that read their critic's convolutions
    each recipe. Their dense layers are as the others.
    """
    presets, recipes = itertools.cycle(axes.preset), itertools.cycle(axes.recipe)
    rest = itertools.product(axes.recipe, axes.bounding, axes.norm, axes.normalize)
    cases = [Case(next(presets), *values, layers=2, format="all") for values in rest]
    pairs = itertools.product(axes.preset, axes.recipe)
    cases += [Case(preset, recipe, UNCHANGED, UNCHANGED, False, 2, "all") for preset, recipe in pairs]
    images = [(next(presets), recipe, norm) for recipe, norm in itertools.product(axes.recipe, axes.norm)]
    images += [(preset, next(recipes), UNCHANGED) for preset in axes.preset]
    cases += [Case(preset, recipe, UNCHANGED, norm, False, 1, "all", "conv") for preset, recipe, norm in images]
    shared = [Case("custom", recipe, UNCHANGED, UNCHANGED, False, 1, "all", "shared_encoder") for recipe in axes.recipe]
    return cases + shared


def make_environment(preset: str) -> gym.Env:
    """Return the preset's environment, or a stand-in with its spaces if it needs a package that the tests lack."""
    stand_ins = {
        "LunarLander-v3": lambda: Shaped(gym.spaces.Box(-5, 5, (8,)), gym.spaces.Discrete(4)),
        "LunarLanderContinuous-v3": lambda: Shaped(gym.spaces.Box(-5, 5, (8,)), gym.spaces.Box(-1, 1, (2,))),
        "BipedalWalker-v3": lambda: Shaped(gym.spaces.Box(-5, 5, (24,)), gym.spaces.Box(-1, 1, (4,))),
        "FetchReach-v4": lambda: gym.wrappers.FlattenObservation(Reaching()),
        "dmc/": lambda: Shaped(gym.spaces.Box(-np.inf, np.inf, (24,)), gym.spaces.Box(-1, 1, (6,))),
        "custom": lambda: Shaped(
            gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
            gym.spaces.Box(np.float32([[-1, 0.5], [0, -30]]), np.float32([[3, 1], [1, 30]])),
        ),
    }
    return stand_ins.get(preset, functools.partial(make_env, preset))()


class Drawn(gym.ObservationWrapper):
    """The numbers of an observation, repeated, as an image of bytes with 11 x 9 pixels of two channels."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (11, 9, 2), np.uint8)

    def observation(self, observation):
        return np.resize(127 * (1 + np.tanh(observation)), self.observation_space.shape).astype(np.uint8)


def train(case: Case, steps: int = STEPS, **options):
    """Return an agent with small networks after a short run, which has changed its statistics."""
    env = make_environment(case.preset)
    env = env if case.network == "mlp" else Drawn(env)
    kind = agent_for(env.action_space)
    schema = DQNConfig if kind is ddpg.DQN else DDPGConfig
    changes = {"normalize_observations": case.normalize}
    if case.recipe == UNCHANGED or schema is DQNConfig:
        config = preset_config(case.preset, schema)
    else:
        config = schema().replace(**from_toml(schema, read_recipe(case.recipe), case.recipe))
    if case.bounding != UNCHANGED and schema is DDPGConfig:
        changes["bounding"] = case.bounding
        if case.bounding != "squashing":
            changes["pre_activation_penalty"] = 0.0
    if case.norm != UNCHANGED:
        changes["norm"] = case.norm
        if getattr(config, "target", None) == "none" and schema is DDPGConfig:  # which requires a norm of the critics
            changes["critic_norm"] = config.norm
    if case.network != "mlp":
        changes |= {"network": "conv", "normalize_observations": False, "hindsight": 0}
    if case.network == "shared_encoder" and schema is DDPGConfig:
        changes["shared_encoder"] = True
    small = {"batch_size": 16, "learning_starts": 64, "buffer_size": 1000, "updates_per_step": 0.5, "jit": False}
    if "weight_decay" not in options:  # exports hold neither slots nor target networks: half as much is built
        small |= {"optimizer": "sgd", "adam_beta1": 0.9, "weight_decay": 0.0}
    if config.target == "ema":
        small["target"] = "online"
    hidden = (8,) * min(case.layers, len(config.hidden))
    if schema is DDPGConfig:  # exports hold the actor only
        layer = 0 if case.network != "mlp" else min(config.action_layer, len(hidden) - 1)
        changes |= {"n_critics": 1, "action_layer": layer}
    config = config.replace(**{**small, **changes, **options, "hidden": hidden})
    agent = kind(env, config, seed=0)
    agent.learn(total_timesteps=steps)
    return agent


def with_random_weights(agent):
    """Change the policy's variables at random, more than a short run would; variances stay positive."""
    rng, values = np.random.default_rng(0), agent.get_parameters()
    for name in [variable.name for variable in agent.symbolic_update.greedy_policy.acting_variables]:
        noise = 0.2 * rng.standard_normal(values[name].shape)
        values[name] = values[name] * np.exp(noise) if "variance" in name else values[name] + noise
    agent.set_parameters(values)
    return agent


def observations(space: gym.spaces.Box) -> np.ndarray:
    """Return standard normal numbers, and numbers up to a million times as large, within the space."""
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (64, *space.shape)).astype(np.float32)
    sizes = np.concatenate([np.ones(32), 10 ** rng.uniform(-3, 6, 32)]).reshape(-1, *(1,) * len(space.shape))
    return np.clip(sizes * rng.standard_normal((64, *space.shape)), space.low, space.high).astype(np.float32)


def flat(actions) -> np.ndarray:
    """Return a batch of actions, as ``predict`` returns it, in one array ``[B, A]``."""
    if isinstance(actions, tuple):
        choice, parameters = actions
        return np.concatenate([choice[:, None], *parameters], axis=1)
    return np.asarray(actions).reshape(len(actions), -1)


def run_c(path, agent, states) -> formats.Outputs:
    """Return the outputs of a C policy: compiled if there is a compiler, else computed by NumPy from the source."""
    native = [compiler for compiler in c_compilers.KNOWN[:4] if c_compilers.works(compiler)]
    if native:
        outputs, choices, numbers = c_compilers.acted(path, native[0], agent.actions, states)
    else:
        outputs, choices, numbers = c_compilers.read_and_acted(path, agent, states)
    if isinstance(agent, ddpg.DQN):
        return {"values": outputs, "actions": choices}
    return {"actions": np.concatenate([np.clip(outputs[:, : agent.actions.scores], -1, 1), numbers], axis=1)}


def saved_and_loaded(agent, folder):
    """Return a copy of the agent that acts the same."""
    states = observations(agent.observation_space)
    loaded = load_agent(agent.save(folder / "saved"))
    np.testing.assert_array_equal(flat(loaded.predict(states)[0]), flat(agent.predict(states)[0]))
    return loaded


def check_exports(loaded, case: Case, folder) -> None:
    """Export an agent, and compare the actions."""
    states = observations(loaded.observation_space)
    expected = flat(loaded.predict(states)[0])
    assert np.isfinite(expected).all()
    acting = ActingPolicy.of(loaded)
    for kind in FORMATS if case.format == "all" else [case.format]:
        path = loaded.export(folder / kind, kind)
        if kind == "numpy":
            found = flat(ddpg.load_policy(path).predict(states)[0])
            # Observations normalised by the session and by NumPy differ in the last bit, which the network amplifies.
            bound = Rounding(acting, states).bound(lambda outputs: np.clip(outputs, -1, 1)).max()
            half = np.ptp(loaded.actions.bounds, axis=0)[-found.shape[1] :].max() / 2 if loaded.actions.size > 1 else 1
            np.testing.assert_allclose(found, expected, atol=(1e-5 + bound) * max(1, half))
        else:
            found = run_c(path, loaded, states) if kind == "c" else RUNNERS[kind](path)(states)
            difference, allowed = compare(found, acting, states)
            assert difference <= allowed
            assert allowed < 1e-2


PAIRWISE = pairwise(AXES)


def first_of_values(cases: list[Case]) -> list[Case]:
    """Return few cases that have every value of each axis but two: the presets, and the norms.

    Of these there are more than of anything else; two are left to the slow cases.
    """
    left = {(axis, value) for case in cases for axis, value in case._asdict().items() if axis not in ("preset", "norm")}
    found = []
    while left:
        found.append(max(cases, key=lambda case: len(left & {*case._asdict().items()})))
        left -= {*found[-1]._asdict().items()}
    return found


FAST = first_of_values(PAIRWISE)  # the others are slow


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(map(str, case)), marks=[pytest.mark.slow] * (case not in FAST))
        for case in PAIRWISE
    ],
)
def test_pairwise_combinations(case, tmp_path):
    """With weights at random: building the updates takes longer than all the rest."""
    check_exports(with_random_weights(train(case, STEPS // 2)), case, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                *({"weight_decay": 0.1}, {"bc_only": True}, {"bc_alpha": 2.5}, {"weight_projection": True}),
                *({"critic": "distributional", "atoms": 5}, {"actor_average": 50}),
            )
        ),
        {"affine_projection": True, "norm": "layer"},
    ],
    ids=str,
)
def test_options_that_only_affect_learning(options, tmp_path):
    case = Case("Pendulum-v1", UNCHANGED, UNCHANGED, UNCHANGED, False, 1, "numpy")
    check_exports(saved_and_loaded(train(case, **options), tmp_path), case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", product(AXES), ids=lambda case: "-".join(map(str, case)))
def test_all_combinations(case, tmp_path):
    check_exports(saved_and_loaded(train(case), tmp_path), case, tmp_path)


def test_the_pairwise_cases_cover_every_value():
    for values, found in zip(AXES, zip(*PAIRWISE, strict=True), strict=True):
        assert set(values) == set(found)


def test_the_rounding_bound_follows_the_networks_amplification():
    """A bias adds 10,000 and a norm subtracts it again: most of float32's seven digits are lost."""
    spaces = gym.spaces.Box(-np.inf, np.inf, (4,)), gym.spaces.Box(-1, 1, (2,))
    agent = ddpg.DDPG(spaces, DDPGConfig(hidden=(32, 32), norm="renorm", jit=False, output_init="fan_in"), seed=0)
    acting = ActingPolicy.of(agent)
    states = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)

    def bound_and_error():
        program = policy_graph.numpy_program(acting)
        program.load([array.astype(np.float64) for array in agent.session.run(agent.policy.variables)])
        rounding = Rounding(acting, states)
        error = np.abs(program(states.astype(np.float64)) - rounding.outputs)
        return rounding.bound(lambda outputs: outputs.astype(np.float64)), error

    bound, error = bound_and_error()
    assert error.max() < bound.max() < 1e-5
    far = [v for v in agent.actor.variables if v.name in ("actor/hidden_0/b:0", "actor/norm_1/moving_mean:0")]
    assert len(far) == 2
    agent.session.run([v.initializer for v in far], {v.initializer.inputs[1]: np.full(v.shape, 1e4) for v in far})
    bound, error = bound_and_error()
    assert 1e-5 < error.max() < bound.max() < 0.1


class HalfMasked(gym.Env):
    """Two of four actions are allowed in every step."""

    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Dict(
        {"observation": gym.spaces.Box(-1, 1, (3,)), "action_mask": gym.spaces.MultiBinary(4)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action):
        return self._observed(), float(action), False, bool(self.np_random.random() < 0.1), {}

    def _observed(self):
        mask = self.np_random.permutation(np.int8([1, 1, 0, 0]))
        return {"observation": self.np_random.uniform(-1, 1, 3).astype(np.float32), "action_mask": mask}


@pytest.fixture(scope="module")
def masked_agent():
    config = ddpg.DQNConfig(hidden=(8,), batch_size=8, learning_starts=20, jit=False)
    with ddpg.DQN(ddpg.ActionMask(HalfMasked()), config, seed=0) as agent:
        agent.learn(60)
        yield agent


@pytest.mark.parametrize("kind", FORMATS)
def test_a_masked_policy_chooses_the_agents_actions(kind, masked_agent, tmp_path):
    """Compare actions, not values: relative to the -1e9 of forbidden actions, differences of values vanish."""
    agent, rng = masked_agent, np.random.default_rng(0)
    masks = rng.permuted(np.tile([1, 1, 0, 0], (200, 1)), axis=1)
    states = np.concatenate([rng.uniform(-1, 1, (200, 3)), masks], axis=1).astype(np.float32)
    expected = agent.predict(states)[0]
    path = agent.export(tmp_path / kind, kind)
    if kind == "numpy":
        actions = ddpg.load_policy(path).predict(states)[0]
    else:
        actions = np.ravel((run_c(path, agent, states) if kind == "c" else RUNNERS[kind](path)(states))["actions"])
    np.testing.assert_array_equal(actions, expected)
    assert masks[np.arange(200), expected].all()
    assert len(set(expected.tolist())) > 1


def test_the_c_header_documents_the_mask(masked_agent, tmp_path):
    header = (masked_agent.export(tmp_path / "c", "c") / "policy.h").read_text()
    assert "last 4 numbers are the action mask" in header
    assert f"{FORBIDDEN:g}" in header


def test_a_mask_that_allows_nothing_gives_the_first_action(masked_agent, tmp_path):
    """Such a mask can follow an episode's last step; no environment receives the action."""
    states = np.zeros((1, 7), np.float32)
    assert (
        masked_agent.predict(states)[0] == ddpg.load_policy(masked_agent.export(tmp_path / "p")).predict(states)[0] == 0
    )


def test_sampled_masks_are_binary_and_allow_an_action(masked_agent):
    space = masked_agent.observation_space
    for size in (1, 2, 3, 4):
        for drawn in (sample_observations(space, size), policy_file.check_observations(space, size)):
            masks = drawn[:, -size:]
            assert np.isin(masks, (0, 1)).all()
            assert masks.any(axis=1).all()
            assert len(np.unique(drawn[:, :-size])) > 8


def wrong_exports(outputs, observations):
    """Return possible outputs of a wrong export of a masked policy, by the fault."""
    masks = observations[:, -4:] > 0.5
    best = outputs.argmax(axis=1)
    forbidden = np.argmin(masks, axis=1)
    raw = np.where(masks, outputs, 0.5).astype(np.float32)
    return {
        "values of allowed actions": {
            VALUES: np.where(masks, outputs + 0.01, outputs).astype(np.float32),
            ACTIONS: best,
        },
        "one value": {VALUES: outputs + 0.01 * np.eye(64, 4, dtype=np.float32) * masks, ACTIONS: best},
        "a forbidden action is taken": {VALUES: outputs, ACTIONS: forbidden},
        "another allowed action is taken": {VALUES: outputs, ACTIONS: np.where(masks, outputs, 1e9).argmin(axis=1)},
        "nothing is forbidden": {VALUES: raw, ACTIONS: best},
        "all is forbidden": {VALUES: np.full_like(outputs, FORBIDDEN), ACTIONS: best},
    }


def test_a_wrong_export_of_a_masked_policy_is_detected(masked_agent):
    """Relative to the -1e9 of forbidden actions, all but two of these faults would be negligible."""
    acting = ActingPolicy.of(masked_agent)
    observations = sample_observations(masked_agent.observation_space, 4)
    outputs = exporting._outputs(acting, observations)
    difference, allowed = compare({VALUES: outputs, ACTIONS: outputs.argmax(axis=1)}, acting, observations)
    assert difference <= allowed < 1e-4
    for fault, found in wrong_exports(outputs, observations).items():
        difference, allowed = compare(found, acting, observations)
        assert difference > 0.001 > allowed, fault


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in ("numpy", "savedmodel"))) for kind in FORMATS]
)
def test_a_masked_policy_with_a_wrong_weight_is_not_written(kind, masked_agent, tmp_path, monkeypatch):
    """The agent's value of the first action is 0.01 above the export's, which is 1e-11 of the forbidden -1e9."""
    outputs = exporting._outputs

    def shifted_outputs(acting, observations):
        found = outputs(acting, observations)
        return np.where(found > FORBIDDEN / 2, found + np.float32([0.01, 0, 0, 0]), found).astype(np.float32)

    monkeypatch.setattr(exporting, "_outputs", shifted_outputs)
    with refuses(ddpg.UsageError, f"{kind} export differs"):
        masked_agent.export(tmp_path / kind, kind)
    assert list(tmp_path.iterdir()) == []


def test_act_py_detects_a_wrong_value_of_a_masked_policy(masked_agent, tmp_path):
    policy = standalone.load(masked_agent.export(tmp_path / "policy", "numpy"))
    difference, tolerance = policy.check()
    assert difference <= tolerance
    assert policy.about["check"]["mask"] == 4
    expected = np.array(policy.about["check"]["outputs"])
    assert (expected == FORBIDDEN).sum(axis=1).tolist() == [2] * 8
    row, action = np.argwhere(expected > FORBIDDEN / 2)[0]
    policy.about["check"]["outputs"][row][action] += 0.01
    difference, tolerance = policy.check()
    assert difference > 0.001 > tolerance
