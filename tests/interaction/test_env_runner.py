"""The env runner: same transitions from single environments and vectors, copied arrays, and refused values."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, Pixels, Reusing, ReusingVector, Shown, Still, transition_rows
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError, evaluate
from ddpg.errors import EnvironmentFault
from ddpg.interaction.env_runner import make_env_runner, success_of

LENGTHS = (3, 5)


def collect(env, steps):
    """Step ``steps`` times; return rows of (environment, s, r, s′, terminated, truncated), and the episodes."""
    runner = make_env_runner(env, seed=0)
    rows, episodes = [], []
    for _ in range(steps):
        actions = np.zeros((runner.count, 1), np.float32)
        step = runner.step(actions)
        rows += [tuple(row) for row in transition_rows(step.transitions)]
        episodes += step.episodes
    return rows, episodes


def vector(mode, kind=SyncVectorEnv, **options):
    makers = [lambda length=length: Counting(length, **options) for length in LENGTHS]
    return kind(makers, autoreset_mode=mode)


@pytest.mark.parametrize("truncate", [True, False])
def test_transitions_of_a_single_environment(truncate):
    rows, episodes = collect(Counting(3, truncate), 4)
    assert rows == [
        (0, [0.0, 0.0], 1.0, [0.0, 1.0], False, False),
        (0, [0.0, 1.0], 2.0, [0.0, 2.0], False, False),
        (0, [0.0, 2.0], 3.0, [0.0, 3.0], not truncate, truncate),  # s′ is the true last observation
        (0, [1.0, 0.0], 1.0, [1.0, 1.0], False, False),
    ]
    assert episodes == [(6.0, 3, 0, None, not truncate)]


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_stores_what_single_environments_do(mode, kind, truncate):
    env = vector(mode, kind, truncate=truncate)
    rows, episodes = collect(env, 24)
    env.close()
    for number, length in enumerate(LENGTHS):
        mine = [(0, *row[1:]) for row in rows if row[0] == number]
        expected, expected_episodes = collect(Counting(length, truncate), len(mine))
        assert mine == expected
        alone = [episode._replace(index=number) for episode in expected_episodes]
        assert [episode for episode in episodes if episode.index == number] == alone
    resets = sum(24 // (length + 1) for length in LENGTHS) if mode == AutoresetMode.NEXT_STEP else 0
    assert len(rows) == 2 * 24 - resets


def test_other_autoreset_modes_are_refused():
    with refuses(UsageError, "autoreset_mode AutoresetMode.DISABLED"):
        make_env_runner(vector(AutoresetMode.DISABLED), seed=0)
    with refuses(UsageError, "autoreset_mode None"):
        make_env_runner(ReusingVector(None), seed=0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_vector_made_later_does_not_change_the_mode(mode, wrapped):
    """Before gymnasium 1.4 all vectors of an environment share its metadata, which have the mode of the last one."""
    expected = collect(vector(mode), 12)
    env = vector(mode)
    later = AutoresetMode.SAME_STEP if mode == AutoresetMode.NEXT_STEP else AutoresetMode.NEXT_STEP
    env.metadata = {"autoreset_mode": later}
    assert collect(gym.vector.VectorWrapper(env) if wrapped else env, 12) == expected


def test_a_wrapper_of_a_vector_may_declare_another_mode():
    env = gym.vector.VectorWrapper(vector(AutoresetMode.NEXT_STEP))
    env.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    with refuses(UsageError, "autoreset_mode AutoresetMode.DISABLED"):
        make_env_runner(env, seed=0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_rows_survive_a_vector_that_writes_into_one_array(mode):
    """With ``copy=False`` every step returns the same array with new contents."""
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    makers = [lambda length=length: Counting(length, observation_space=space) for length in LENGTHS]
    env = SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
    rows, _ = collect(env, 12)
    assert np.shares_memory(env.reset()[0], env.step(np.zeros((2, 1), np.float32))[0])
    for number, length in enumerate(LENGTHS):
        mine = [(0, *row[1:]) for row in rows if row[0] == number]
        assert mine == collect(Counting(length), len(mine))[0]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_agent_stores_the_actions_that_it_sent_to_a_vector(mode):
    env = vector(mode)
    small = {"hidden": (8,), "batch_size": 4, "optimizer": "sgd", "target": "online", "jit": False}
    agent = DDPG(env, DDPGConfig(**small, learning_starts=10, updates_per_call=4), seed=0)
    agent.learn(60)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.num_timesteps >= 60
    np.testing.assert_array_equal(stored["next_observations"][:, 1], stored["observations"][:, 1] + 1)
    np.testing.assert_array_equal(stored["rewards"][:, 0], stored["next_observations"][:, 1])
    # About 48 learning steps with one update each, made four at a time.
    assert 40 <= agent.num_updates <= agent.num_timesteps - 10
    # Stored actions are the sent ones scaled to [-1, 1]; the box is [-2, 4].
    sent = np.array([a for e in env.envs for a in e.unwrapped.actions])
    assert {round(float(a), 4) for a in stored["actions"][:, 0] * 3 + 1} <= {round(float(a), 4) for a in sent[:, 0]}


@pytest.mark.parametrize(
    "mode", [pytest.param(AutoresetMode.NEXT_STEP, marks=pytest.mark.slow), AutoresetMode.SAME_STEP]
)
def test_agent_learns_on_a_vector(mode):
    """It learns the best action for each goal, and Q as by hand: 1 − (a − goal/2)² in the last step, γ in the first."""
    goals = np.array([-1.0, 0.0, 1.0])
    space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    env = SyncVectorEnv([lambda goal=goal: Shown(goal, goal / 2, space) for goal in goals], autoreset_mode=mode)
    config = DDPGConfig(
        **{"hidden": (32,), "activation": "tanh", "batch_size": 32, "learning_starts": 300, "updates_per_call": 50},
        **{"critic_learning_rate": 1e-2, "tau": 0.05, "gamma": 0.5, "noise_scale": 0.5, "jit": False},
    )
    agent = DDPG(env, config, seed=0).learn(1500)
    ends = np.stack([goals, np.ones(3)], axis=1)
    np.testing.assert_allclose(agent.predict(ends)[0][:, 0], goals / 2, atol=0.15)
    with agent.session.as_default():
        for action in (-0.5, 0.0, 0.5):
            q = agent.critic.predict(ends, np.full((3, 1), action))[:, 0]
            np.testing.assert_allclose(q, 1 - (action - goals / 2) ** 2, atol=0.15)
        first_step = agent.critic.predict(np.stack([goals, np.zeros(3)], axis=1), np.zeros((3, 1)))[:, 0]
    np.testing.assert_allclose(first_step, 0.5, atol=0.1)


def test_an_id_instead_of_an_environment_is_refused():
    with refuses(UsageError, "Env"):
        DDPG("Pendulum-v1")


def test_an_agent_may_be_made_from_a_pair_of_spaces():
    env = gym.make("Pendulum-v1")
    agent = DDPG((env.observation_space, env.action_space), DDPGConfig(hidden=(8,), optimizer="sgd"))
    assert env.action_space.contains(agent.predict(env.reset(seed=0)[0])[0])
    with refuses(UsageError, "spaces"):
        agent.learn(10)


# -- values that environments return ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transitions_are_copied_from_an_environment_that_reuses_its_array(dtype):
    runner = make_env_runner(Reusing(dtype), seed=0)
    steps = [runner.step(np.zeros((1, 1), np.float32)).transitions for _ in range(5)]
    assert [step.observations.tolist() for step in steps] == [[[0, 0]], [[0, 1]], [[0, 2]], [[1, 0]], [[1, 1]]]
    assert [step.next_observations.tolist() for step in steps] == [[[0, 1]], [[0, 2]], [[0, 3]], [[1, 1]], [[1, 2]]]
    assert runner.observations.tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_transitions_are_copied_from_a_vector_that_reuses_its_arrays(mode, dtype):
    runner = make_env_runner(ReusingVector(mode, dtype=dtype), seed=0)
    steps = [runner.step(np.zeros((2, 1), np.float32)) for _ in range(12)]  # compared after the last step
    for index, length in enumerate((3, 4)):
        rows = []
        for step in steps:
            rows += [tuple(row) for number, *row in transition_rows(step.transitions) if number == index]
        expected = [
            ([n // length, n % length], n % length + 1, [n // length, n % length + 1], n % length + 1 == length, False)
            for n in range(len(rows))
        ]
        assert rows == expected
        assert len(rows) >= 9
    episodes = [episode for step in steps for episode in step.episodes]
    assert [e.success for e in episodes if e.index == 0][:3] == [True, False, True]


def test_a_reused_array_in_a_vector_is_refused_only_in_same_step_mode():
    """In SAME_STEP mode the reset overwrites the last observation before the runner can read it."""
    actions = np.zeros((1, 1), np.float32)
    rows, _ = collect(SyncVectorEnv([Reusing]), 4)
    assert [row[3] for row in rows] == [[0, 1], [0, 2], [0, 3]]
    runner = make_env_runner(SyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP), seed=0)
    for _ in range(2):
        runner.step(actions)
    with refuses(EnvironmentFault, "environment 0 step 3 SAME_STEP copy NEXT_STEP"):
        runner.step(actions)


def test_last_observations_that_may_be_overwritten_warn_once():
    """An episode in a worker process may really end where the next begins, so the third such end only warns."""
    env = AsyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP)
    runner = make_env_runner(env, seed=0)
    for count, warned in ((8, 0), (1, 1), (9, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(count):
                runner.step(np.zeros((1, 1), np.float32))
        assert len([entry for entry in caught if "SAME_STEP" in str(entry.message)]) == warned
    env.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_single_episode_that_ends_where_the_next_begins_does_not_warn(kind):
    class Returns(Counting):
        """Counting, but the second episode ends with the observation with which the third begins."""

        def _observation(self):
            values = super()._observation()
            return np.array([2.0, 0.0]) if values.tolist() == [1.0, 2.0] else values

    env = kind([lambda: Returns(2)], autoreset_mode=AutoresetMode.SAME_STEP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, _ = collect(env, 4)
    assert [row[3] for row in rows] == [[0, 1], [0, 2], [1, 1], [2, 0]]
    env.close()


def test_evaluation_accepts_an_environment_that_reuses_its_array():
    env = SyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP)
    assert evaluate(Still(), env, episodes=2, seed=0).returns.tolist() == [6, 6]


class Replacing(Counting):
    """Counting, but ``value`` replaces one of the values that its second step returns."""

    names = ("observation", "reward", "terminated", "truncated")

    def __init__(self, value, name, **options):
        super().__init__(9, **options)
        self.value, self.place = value, self.names.index(name)
        self.fails = True

    def step(self, action):
        values = list(super().step(action))
        if self.fails and self.step_number == 2:
            values[self.place] = self.value
        return tuple(values)


BAD = [
    ("observation", np.zeros((1, 2)), "observation shape (1, 2) (2,)"),
    ("observation", 1.0, "observation shape () (2,)"),
    ("observation", np.zeros(2, complex), "observation array complex numbers"),
    ("observation", [1j, 0], "observation list complex numbers"),
    ("observation", {"a": 1}, "observation dict"),
    ("observation", np.array([0, 2**24 + 1]), "observation integer 16777217"),
    ("observation", np.array([0, 1e300]), "observation 1e+300"),
    ("reward", None, "reward None"),
    ("reward", "1", "reward str"),
    ("reward", np.array([1.0]), "reward shape (1,)"),
    ("reward", np.nan, "reward nan"),
    ("reward", 1e39, "reward 1e+39"),
    ("terminated", None, "terminated=None flag"),
    ("truncated", np.nan, "truncated=nan flag"),
    ("terminated", np.array([True]), "terminated= flag"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_invalid_values_from_an_environment_are_refused(name, value, message):
    env = Replacing(value, name)
    runner = make_env_runner(env, seed=0)
    actions = np.zeros((1, 1), np.float32)
    runner.step(actions)
    with refuses(UsageError, message):
        runner.step(actions)
    env.fails = False
    step = runner.step(actions)  # of a new episode: no transition joins it to the abandoned one
    assert step.transitions.observations.tolist() == [[1, 0]]
    assert step.transitions.next_observations.tolist() == [[1, 1]]


class FaultyVector(ReusingVector):
    """ReusingVector, but ``value`` replaces one of the values that a step returns."""

    def __init__(self, value, place):
        super().__init__(AutoresetMode.NEXT_STEP)
        self.value, self.place = value, place

    def step(self, actions):
        values = list(super().step(actions))
        values[self.place] = self.value
        return tuple(values)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros((3, 2)), "observation (3, 2) (2, 2)"),
        (0, None, "observation None"),
        (0, np.array([[0, 0], [0, np.nan]]), "observation nan [1, 1]"),
        (1, np.array([0, np.nan]), "reward 1 nan"),
        (1, np.zeros((2, 1)), "reward (2, 1)"),
        (1, None, "reward None"),
        (2, np.array([0, np.nan]), "terminated flag"),
        (3, None, "truncated None"),
    ],
)
def test_invalid_values_from_a_vector_are_refused(place, value, message):
    runner = make_env_runner(FaultyVector(value, place), seed=0)
    with refuses(UsageError, message):
        runner.step(np.zeros((2, 1), np.float32))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_no_transition_joins_an_abandoned_episode_of_a_vector_to_the_next(mode):
    makers = [lambda: Replacing(np.nan, "reward"), lambda: Counting(9)]
    env = SyncVectorEnv(makers, autoreset_mode=mode)
    runner = make_env_runner(env, seed=0)
    actions = np.zeros((2, 1), np.float32)
    runner.step(actions)
    with refuses(UsageError, "reward 0 nan"):
        runner.step(actions)
    env.envs[0].fails = False
    step = runner.step(actions)
    assert step.transitions.observations.tolist() == [[1, 0], [1, 0]]
    assert step.transitions.next_observations.tolist() == [[1, 1], [1, 1]]


def test_same_step_mode_without_final_obs_is_refused():
    class Forgetting(ReusingVector):
        def step(self, actions):
            return (*super().step(actions)[:-1], {})

    runner = make_env_runner(Forgetting(AutoresetMode.SAME_STEP), seed=0)
    actions = np.zeros((2, 1), np.float32)
    for _ in range(2):
        runner.step(actions)
    with refuses(UsageError, "final_obs"):
        runner.step(actions)


def test_image_observations_stay_bytes():
    runner = make_env_runner(env := Pixels(), seed=0)
    for _ in range(12):
        step = runner.step(np.array([1]))
        assert set(np.unique(step.transitions.next_observations)) <= {0, 128, 255}
    env._observation = lambda: np.full((10, 10, 1), 0.5)
    with refuses(UsageError, "uint8"):
        runner.step(np.array([1]))


def test_lossless_number_types_are_accepted():
    """Lists, and other dtypes than the space's, as long as the conversion loses nothing."""
    for value in ([1, 2], np.array([1, 2]), np.array([1, 2], np.float16), (True, 2.0)):
        runner = make_env_runner(Replacing(value, "observation"), seed=0)
        runner.step(np.zeros((1, 1), np.float32))
        assert runner.step(np.zeros((1, 1), np.float32)).transitions.next_observations.tolist() == [[1, 2]]


@pytest.mark.parametrize(("value", "named"), [(float("nan"), "nan"), (0.5, 0.5), (2, 2), ("yes", "str")])
def test_success_is_true_or_false(value, named):
    with refuses(UsageError, "is_success", named, "True False"):
        success_of({"is_success": value})
    assert [success_of({"is_success": good}) for good in (True, np.False_, 1.0, np.array([0]))] == [
        True,
        False,
        True,
        False,
    ]
