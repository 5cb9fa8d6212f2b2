"""Properties of every environment of the package, whatever its rules."""

import contextlib
import copy
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector.utils import iterate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refuses

import ddpg_envs  # noqa: F401 - registers them

ENV_IDS = sorted(env_id for env_id in gym.registry if env_id.startswith("ddpg_envs/"))
PARAMETERIZED = [env_id for env_id in ENV_IDS if isinstance(gym.make(env_id).action_space, spaces.Tuple)]
every_environment = pytest.mark.parametrize("env_id", ENV_IDS)
every_parameterized = pytest.mark.parametrize("env_id", PARAMETERIZED)
# An action may take hundreds of substeps: few examples, and no deadline.
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def actions_of(space):
    """Return a strategy for the actions of a space, including the corners of boxes."""
    if isinstance(space, spaces.Discrete):
        return st.integers(0, int(space.n) - 1)
    if isinstance(space, spaces.Tuple):
        return st.tuples(*map(actions_of, space.spaces))
    bounds = zip(space.low.tolist(), space.high.tolist(), strict=True)
    numbers = [st.one_of(st.sampled_from([low, high]), st.floats(low, high, width=32)) for low, high in bounds]
    return st.tuples(*numbers).map(lambda values: np.array(values, np.float32))


def play(env, actions):
    """Play an episode of these actions until its end; check that all values are valid, and return them."""
    steps = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(observation), observation
        assert np.isfinite(observation).all()
        assert math.isfinite(reward)
        steps.append((observation.tolist(), reward, terminated, truncated, info))
        if terminated or truncated:
            break
    return steps


def test_all_environments_are_registered():
    assert {f"ddpg_envs/{name}-v0" for name in ("Goal", "HalfFieldOffense", "LQR", "Platform")} <= {*ENV_IDS}
    assert {"ddpg_envs/Goal-v0", "ddpg_envs/Platform-v0"} <= set(PARAMETERIZED)


@every_environment
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_check_env(env_id):
    check_env(gym.make(env_id, render_mode="rgb_array").unwrapped)


@every_environment
@few
@given(data=st.data())
def test_any_actions_in_the_space(env_id, data):
    """Observations are in the space and nothing is NaN, also at corners; the seed determines everything."""
    env, twin = gym.make(env_id), gym.make(env_id)
    seed = data.draw(st.integers(0, 2**31), label="seed")
    actions = data.draw(st.lists(actions_of(env.action_space), min_size=1, max_size=8), label="actions")
    first, _ = env.reset(seed=seed)
    again, _ = twin.reset(seed=seed)
    assert env.observation_space.contains(first)
    np.testing.assert_array_equal(first, again)
    assert play(env, actions) == play(twin, actions)


@every_environment
def test_random_actions_of_one_environment_do_not_depend_on_another(env_id):
    one, other = gym.make(env_id), gym.make(env_id)
    drawn = []
    for both in (True, False):
        one.action_space.seed(3)
        for _ in range(2):
            if both:
                other.action_space.seed(4)
            drawn.append(str(one.action_space.sample()))
    assert drawn[:2] == drawn[2:]


@every_environment
def test_another_seed_is_another_episode(env_id):
    env = gym.make(env_id)
    episodes = []
    for seed in (1, 2):
        env.action_space.seed(0)
        env.reset(seed=seed)
        episodes.append(play(env, (env.action_space.sample() for _ in range(3))))
    assert episodes[0] != episodes[1]


@every_environment
def test_an_episode_ends_within_its_limit(env_id):
    env = gym.make(env_id)
    limit = env.spec.max_episode_steps or env.unwrapped.max_actions
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(5):
        env.reset()
        steps = play(env, (env.action_space.sample() for _ in range(limit)))
        *_, terminated, truncated, _ = steps[-1]
        assert terminated or truncated


@every_environment
def test_a_copy_continues_like_the_original(env_id):
    env = gym.make(env_id)
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(3)]
    assert play(env, actions) == play(twin, actions)


@every_environment
def test_render(env_id):
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    start = env.render()
    play(env, [env.action_space.sample()])
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.shape[2] == 3
    assert frame.shape == start.shape
    assert (frame != start).any()
    assert gym.make(env_id).unwrapped.render() is None


@pytest.mark.parametrize("env_id", ["ddpg_envs/Platform-v0", "ddpg_envs/Goal-v0"])
def test_rendering_before_the_first_reset_is_refused(env_id):
    with refuses(gym.error.ResetNeeded, "reset() render()"):
        gym.make(env_id, render_mode="rgb_array").unwrapped.render()


@every_environment
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(env_id, mode):
    """An environment of a vector does what it does alone."""
    envs, alone = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode), gym.make(env_id)
    with contextlib.closing(envs):
        observations, _ = envs.reset(seed=5)
        np.testing.assert_array_equal(observations[1], alone.reset(seed=6)[0])
        envs.action_space.seed(0)
        for _ in range(5):
            actions = envs.action_space.sample()
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            assert envs.observation_space.contains(observations)
            _, action = iterate(envs.action_space, actions)
            observation, *expected, _ = alone.step(action)
            np.testing.assert_array_equal(observations[1], observation)
            assert [rewards[1], terminated[1], truncated[1]] == expected
            if terminated[1] or truncated[1]:
                break


# -- parameterised actions ---------------------------------------------------------------------------------------


@every_parameterized
@few
@given(data=st.data())
def test_parameters_outside_their_boxes_are_clipped_and_counted(env_id, data):
    env, twin = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    choice, inside = data.draw(actions_of(env.action_space))
    boxes = env.action_space[1].spaces
    sides = [np.where(v > (b.low + b.high) / 2, b.high + 1, b.low - 1) for v, b in zip(inside, boxes, strict=True)]
    beyond = tuple(side.astype(np.float32) for side in sides)
    clipped = tuple(np.clip(v, b.low, b.high) for v, b in zip(beyond, boxes, strict=True))
    assert env.reset(seed=0)[0].tolist() == twin.reset(seed=0)[0].tolist()
    ((*step, info),) = play(env, [(choice, beyond)])
    ((*same_step, same_info),) = play(twin, [(choice, clipped)])
    assert step == same_step
    assert (info.pop("action_clipped"), same_info.pop("action_clipped")) == (True, False)
    assert info == same_info


@every_parameterized
def test_unchosen_parameters_do_not_matter(env_id):
    env, twin = gym.make(env_id), gym.make(env_id)
    for choice, _ in enumerate(env.action_space[1]):
        env.reset(seed=0)
        twin.reset(seed=0)
        low = [box.low for box in env.action_space[1]]
        other = [box.low if n == choice else box.high for n, box in enumerate(env.action_space[1])]
        assert play(env, [(choice, tuple(low))]) == play(twin, [(choice, tuple(other))])


@every_parameterized
@pytest.mark.parametrize(
    "spoil",
    [
        lambda choice, parameters: choice,
        lambda choice, parameters: parameters,
        lambda choice, parameters: None,
        lambda choice, parameters: (-1, parameters),
        lambda choice, parameters: (len(parameters), parameters),
        lambda choice, parameters: (0.5, parameters),
        lambda choice, parameters: (choice, parameters[0]),
        lambda choice, parameters: (choice, parameters[1:]),
        lambda choice, parameters: (choice, [np.zeros(9), *parameters[1:]]),
        lambda choice, parameters: (choice, [0.0 for _ in parameters]),
        lambda choice, parameters: (choice, [np.full(p.shape, np.nan) for p in parameters]),
        lambda choice, parameters: (choice, [*parameters[:-1], np.full(parameters[-1].shape, np.inf)]),
    ],
)
def test_an_invalid_action_is_refused(env_id, spoil):
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    with refuses(ValueError, "expected"):
        env.step(spoil(*env.action_space.sample()))
    # It was refused before anything happened, so the episode continues.
    action = env.action_space.sample()
    step = play(env, [action])
    env.reset(seed=0)
    assert play(env, [action]) == step
