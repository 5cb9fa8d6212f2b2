"""One environment, or a vector of them in either autoreset mode: the same transitions."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, Pixels, Reusing, ReusingVector, transition_rows
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError, evaluate
from ddpg.errors import EnvironmentFault
from ddpg.interaction.env_runner import make_env_runner, success_of

LENGTHS = (3, 5)


def collect(env, steps):
    """Return what ``steps`` steps stored: rows of (environment, s, r, s′, terminated, truncated)."""
    interaction = make_env_runner(env, seed=0)
    rows, episodes = [], []
    for _ in range(steps):
        actions = np.zeros((interaction.count, 1), np.float32)
        step = interaction.step(actions)
        rows += [tuple(row) for row in transition_rows(step.transitions)]
        episodes += step.episodes
    return rows, episodes


def vector(mode, kind=SyncVectorEnv, **options):
    makers = [lambda length=length: Counting(length, **options) for length in LENGTHS]
    return kind(makers, autoreset_mode=mode)


@pytest.mark.parametrize("truncate", [True, False])
def test_single(truncate):
    rows, episodes = collect(Counting(3, truncate), 4)
    assert rows == [
        (0, [0.0, 0.0], 1.0, [0.0, 1.0], False, False),
        (0, [0.0, 1.0], 2.0, [0.0, 2.0], False, False),
        (0, [0.0, 2.0], 3.0, [0.0, 3.0], not truncate, truncate),  # s′ is the true last observation
        (0, [1.0, 0.0], 1.0, [1.0, 1.0], False, False),
    ]
    assert episodes == [(6.0, 3, 0, None)]


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
        assert [episode[:2] for episode in episodes if episode.index == number] == [
            episode[:2] for episode in expected_episodes
        ]
    resets = sum(24 // (length + 1) for length in LENGTHS) if mode == AutoresetMode.NEXT_STEP else 0
    assert len(rows) == 2 * 24 - resets


def test_other_modes_are_refused():
    with refuses(UsageError, "autoreset_mode AutoresetMode.DISABLED"):
        make_env_runner(vector(AutoresetMode.DISABLED), seed=0)
    env = vector(AutoresetMode.SAME_STEP)
    env.metadata = {}
    with refuses(UsageError, "autoreset_mode None"):
        make_env_runner(env, seed=0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_rows_survive_a_vector_that_writes_into_one_array(mode):
    """``copy=False``: every step returns the same array, with other contents."""
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    makers = [lambda length=length: Counting(length, observation_space=space) for length in LENGTHS]
    env = SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
    rows, _ = collect(env, 12)
    assert np.shares_memory(env.reset()[0], env.step(np.zeros((2, 1), np.float32))[0])
    for number, length in enumerate(LENGTHS):
        mine = [(0, *row[1:]) for row in rows if row[0] == number]
        assert mine == collect(Counting(length), len(mine))[0]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_agent_stores_what_it_did_on_a_vector(mode):
    env = vector(mode)
    config = DDPGConfig(hidden=(8,), batch_size=4, learning_starts=10, updates_per_call=4, jit=False)
    agent = DDPG(env, config, seed=0)
    agent.learn(60)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.num_timesteps >= 60
    np.testing.assert_array_equal(stored["next_observations"][:, 1], stored["observations"][:, 1] + 1)
    np.testing.assert_array_equal(stored["rewards"][:, 0], stored["next_observations"][:, 1])
    # 48 or so steps of learning at one update each, four at a time.
    assert 40 <= agent.num_updates <= agent.num_timesteps - 10
    # The action that was sent is the action that is stored, in [-1, 1]; the box is [-2, 4].
    sent = np.array([a for e in env.envs for a in e.unwrapped.actions])
    assert {round(float(a), 4) for a in stored["actions"][:, 0] * 3 + 1} <= {round(float(a), 4) for a in sent[:, 0]}


class Calling(gym.Env):
    """Reward at the end of 2 steps: 1 − (a − call/2)², of the last action; every environment has a call of its own."""

    def __init__(self, call):
        self.call = call
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last = False
        return np.array([self.call, 0.0], np.float32), {}

    def step(self, action):
        ended, self.last = self.last, True
        reward = 1 - float((action[0] - self.call / 2) ** 2) if ended else 0.0
        return np.array([self.call, 1.0], np.float32), reward, ended, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_agent_learns_on_a_vector(mode):
    """What to do at every call, and the values by hand: γ a step before the end, 1 − (a − call/2)² at it."""
    calls = np.array([-1.0, 0.0, 1.0])
    env = SyncVectorEnv([lambda call=call: Calling(call) for call in calls], autoreset_mode=mode)
    config = DDPGConfig(
        **{"hidden": (32,), "activation": "tanh", "batch_size": 32, "learning_starts": 300, "updates_per_call": 50},
        **{"critic_learning_rate": 1e-2, "tau": 0.05, "gamma": 0.5, "noise_scale": 0.5, "jit": False},
    )
    agent = DDPG(env, config, seed=0).learn(1500)
    ends = np.stack([calls, np.ones(3)], axis=1)
    np.testing.assert_allclose(agent.predict(ends)[0][:, 0], calls / 2, atol=0.15)
    with agent.session.as_default():
        for action in (-0.5, 0.0, 0.5):
            q = agent.critic.predict(ends, np.full((3, 1), action))[:, 0]
            np.testing.assert_allclose(q, 1 - (action - calls / 2) ** 2, atol=0.15)
        begun = agent.critic.predict(np.stack([calls, np.zeros(3)], axis=1), np.zeros((3, 1)))[:, 0]
    np.testing.assert_allclose(begun, 0.5, atol=0.1)


def test_not_an_environment():
    with refuses(UsageError, "Env"):
        DDPG("Pendulum-v1")


def test_pair_of_spaces():
    env = gym.make("Pendulum-v1")
    agent = DDPG((env.observation_space, env.action_space), DDPGConfig(hidden=(8,)))
    assert env.action_space.contains(agent.predict(env.reset(seed=0)[0])[0])
    with refuses(UsageError, "spaces"):
        agent.learn(10)


# -- what environments return -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_environment_that_reuses_its_array(dtype):
    interaction = make_env_runner(Reusing(dtype), seed=0)
    steps = [interaction.step(np.zeros((1, 1), np.float32)).transitions for _ in range(5)]
    assert [step.observations.tolist() for step in steps] == [
        [[0, 0]],
        [[0, 1]],
        [[0, 2]],
        [[1, 0]],
        [[1, 1]],
    ]
    assert [step.next_observations.tolist() for step in steps] == [
        [[0, 1]],
        [[0, 2]],
        [[0, 3]],
        [[1, 1]],
        [[1, 2]],
    ]
    assert interaction.observations.tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_that_reuses_its_arrays(mode, dtype):
    interaction = make_env_runner(ReusingVector(mode, dtype=dtype), seed=0)
    steps = [interaction.step(np.zeros((2, 1), np.float32)) for _ in range(12)]  # looked at when all are made
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


def test_an_environment_that_reuses_its_array_in_a_vector():
    """In SAME_STEP mode the reset writes over the last observation before anybody can read it."""
    actions = np.zeros((1, 1), np.float32)
    rows, _ = collect(SyncVectorEnv([Reusing]), 4)
    assert [row[3] for row in rows] == [[0, 1], [0, 2], [0, 3]]
    interaction = make_env_runner(SyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP), seed=0)
    for _ in range(2):
        interaction.step(actions)
    with refuses(EnvironmentFault, "environment 0 step 3 SAME_STEP copy NEXT_STEP"):
        interaction.step(actions)


def test_last_observations_that_may_be_overwritten_are_told_of_once():
    """Between processes the two cases look the same, so there it is a warning, at the third end."""
    env = AsyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP)
    interaction = make_env_runner(env, seed=0)
    for count, warned in ((8, 0), (1, 1), (9, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(count):
                interaction.step(np.zeros((1, 1), np.float32))
        assert len([entry for entry in caught if "SAME_STEP" in str(entry.message)]) == warned
    env.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_episodes_that_do_not_end_where_they_begin_are_not_told_of(kind):
    class Returns(Counting):
        """The second episode ends as the third begins; the others do not."""

        def _observation(self):
            values = super()._observation()
            return np.array([2.0, 0.0]) if values.tolist() == [1.0, 2.0] else values

    env = kind([lambda: Returns(2)], autoreset_mode=AutoresetMode.SAME_STEP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, _ = collect(env, 4)
    assert [row[3] for row in rows] == [[0, 1], [0, 2], [1, 1], [2, 0]]
    env.close()


def test_evaluations_may_reuse_the_array():
    class Policy:
        def predict(self, observation, deterministic=True):
            return np.zeros((1, 1), np.float32), None

    env = SyncVectorEnv([Reusing], autoreset_mode=AutoresetMode.SAME_STEP)
    assert evaluate(Policy(), env, episodes=2, seed=0).returns.tolist() == [6, 6]


class Returning(Counting):
    """Counting, but what it returns at its second step is exchanged."""

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
def test_what_an_environment_may_not_return(name, value, message):
    env = Returning(value, name)
    interaction = make_env_runner(env, seed=0)
    actions = np.zeros((1, 1), np.float32)
    interaction.step(actions)
    with refuses(UsageError, message):
        interaction.step(actions)
    env.fails = False
    step = interaction.step(actions)  # of a new episode: nothing leads over from the lost one
    assert step.transitions.observations.tolist() == [[1, 0]]
    assert step.transitions.next_observations.tolist() == [[1, 1]]


class Faulty(ReusingVector):
    """Exchanges one of the values that a step returns."""

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
def test_what_a_vector_may_not_return(place, value, message):
    interaction = make_env_runner(Faulty(value, place), seed=0)
    with refuses(UsageError, message):
        interaction.step(np.zeros((2, 1), np.float32))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_nothing_leads_over_from_what_a_vector_lost(mode):
    makers = [lambda: Returning(np.nan, "reward"), lambda: Counting(9)]
    env = SyncVectorEnv(makers, autoreset_mode=mode)
    interaction = make_env_runner(env, seed=0)
    actions = np.zeros((2, 1), np.float32)
    interaction.step(actions)
    with refuses(UsageError, "reward 0 nan"):
        interaction.step(actions)
    env.envs[0].fails = False
    step = interaction.step(actions)
    assert step.transitions.observations.tolist() == [[1, 0], [1, 0]]
    assert step.transitions.next_observations.tolist() == [[1, 1], [1, 1]]


def test_same_step_without_the_last_observation():
    class Forgetting(ReusingVector):
        def step(self, actions):
            return (*super().step(actions)[:-1], {})

    interaction = make_env_runner(Forgetting(AutoresetMode.SAME_STEP), seed=0)
    actions = np.zeros((2, 1), np.float32)
    for _ in range(2):
        interaction.step(actions)
    with refuses(UsageError, "final_obs"):
        interaction.step(actions)


def test_images_stay_what_they_are():
    interaction = make_env_runner(env := Pixels(), seed=0)
    for _ in range(12):
        step = interaction.step(np.array([1]))
        assert set(np.unique(step.transitions.next_observations)) <= {0, 128, 255}
    env._observation = lambda: np.full((10, 10, 1), 0.5)
    with refuses(UsageError, "bytes"):
        interaction.step(np.array([1]))


def test_other_kinds_of_numbers_are_fine():
    """Lists, and numbers of another kind than the space says, as long as nothing is lost."""
    for value in ([1, 2], np.array([1, 2]), np.array([1, 2], np.float16), (True, 2.0)):
        interaction = make_env_runner(Returning(value, "observation"), seed=0)
        interaction.step(np.zeros((1, 1), np.float32))
        assert interaction.step(np.zeros((1, 1), np.float32)).transitions.next_observations.tolist() == [[1, 2]]


@pytest.mark.parametrize("value", [float("nan"), 0.5, 2])
def test_success_is_true_or_false(value):
    with refuses(UsageError, "is_success", value):
        success_of({"is_success": value})
    assert [success_of({"is_success": good}) for good in (True, np.False_, 1.0, np.array([0]))] == [
        True,
        False,
        True,
        False,
    ]
