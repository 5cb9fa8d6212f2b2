"""The replay buffer: a ring of transitions, in which each observation is stored once."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from refusals import refuses

from ddpg import Batch, ReplayBuffer, UsageError
from ddpg.interaction.transitions import Transitions
from ddpg.replay.buffer import return_steps
from ddpg.replay.observation_store import ObservationStore


def fill(buffer, start, count):
    """Add transitions numbered from ``start``; every field encodes the number."""
    numbers = np.arange(start, start + count, dtype=np.float32)
    column = numbers[:, None]
    buffer.add(column * [1, 10], column + 0.5, numbers, column * [1, 10] + 1, numbers % 2 == 0, numbers % 3 == 0)


@given(st.integers(1, 20), st.lists(st.integers(1, 30), min_size=1, max_size=10))
def test_ring_keeps_the_newest(capacity, counts):
    buffer = ReplayBuffer(capacity, (2,), 1)
    for index, count in enumerate(counts):
        fill(buffer, sum(counts[:index]), count)
    total = sum(counts)
    assert len(buffer) == min(total, capacity)
    arrays = buffer.arrays()
    assert sorted(arrays["rewards"][:, 0]) == list(range(max(0, total - capacity), total))
    np.testing.assert_array_equal(arrays["next_observations"], arrays["observations"] + 1)
    np.testing.assert_array_equal(arrays["actions"], arrays["rewards"] + 0.5)
    np.testing.assert_array_equal(arrays["terminated"], arrays["rewards"] % 2 == 0)
    np.testing.assert_array_equal(arrays["truncated"], arrays["rewards"] % 3 == 0)


def test_a_step_whose_observation_has_a_negative_zero_continues_the_episode():
    buffer = ReplayBuffer(5, (1,), 1)
    for observation, reward, successor in (([1.0], 1.0, [0.0]), ([-0.0], 10.0, [0.5])):
        buffer.add([observation], [[0.0]], [reward], [successor], [False], [False])
    assert buffer.gather(np.array([0]), n_steps=2, gamma=0.5).rewards[0] == 1 + 0.5 * 10


def test_samples_have_leading_axes_and_consistent_rows(rng):
    buffer = ReplayBuffer(50, (2,), 1)
    fill(buffer, 0, 40)
    batch = buffer.sample(rng, 5, 7)
    assert [field.shape for field in batch] == [(5, 7, 2), (5, 7, 1), (5, 7, 1), (5, 7, 2), (5, 7, 1)]
    assert all(field.dtype == np.float32 for field in batch)
    np.testing.assert_array_equal(batch.actions, batch.rewards + 0.5)
    np.testing.assert_array_equal(batch.observations[..., 1:], batch.rewards * 10)
    assert batch.rewards.max() < 40  # rows that were not written are never sampled


def test_sampling_is_uniform(rng):
    buffer = ReplayBuffer(10, (2,), 1)
    fill(buffer, 0, 10)
    counts = np.bincount(buffer.sample(rng, 100, 1000).rewards.astype(int).ravel(), minlength=10)
    assert np.abs(counts / 1e5 - 0.1).max() < 0.005


@pytest.mark.parametrize(("capacity", "restored"), [(8, 8), (8, 20), (20, 20)])
def test_restore_continues_at_the_saved_position(capacity, restored):
    buffer, other = ReplayBuffer(capacity, (2,), 1), ReplayBuffer(restored, (2,), 1)
    fill(buffer, 0, 8)
    fill(buffer, 8, 3)
    other.restore(buffer.state())
    fill(other, 11, 2)
    fill(buffer, 11, 2)
    rewards = other.arrays()["rewards"][:, 0]
    if capacity == restored:
        np.testing.assert_array_equal(rewards, buffer.arrays()["rewards"][:, 0])
    else:
        np.testing.assert_array_equal(rewards, np.arange(3, 13))


def test_errors(rng):
    with refuses(UsageError, "capacity 0"):
        ReplayBuffer(0, (2,), 1)
    buffer = ReplayBuffer(4, (2,), 1)
    with refuses(UsageError, "empty"):
        buffer.sample(rng, 1, 1)
    large = ReplayBuffer(10, (2,), 1)
    fill(large, 0, 10)
    with refuses(UsageError, "10 stored transitions"):
        buffer.restore(large.state())
    with refuses(UsageError, "observations"):
        ReplayBuffer(10, (3,), 1).restore(large.state())
    with refuses(UsageError, "observations dtype float32 uint8"):
        ReplayBuffer(10, (2,), 1, np.uint8).restore(large.state())


def two_kept(dtype=np.float32):
    """Return a full ring of two transitions, and the fields of two more that could be added."""
    buffer = ReplayBuffer(2, (1,), 2, dtype)
    for terminated in (True, False):
        buffer.add([[1]], [[5, 6]], [7], [[2]], [terminated], [False])
    more = {"observations": [[1], [2]], "actions": np.zeros((2, 2)), "rewards": [1.0, 2.0]}
    return buffer, more | {"next_observations": [[2], [3]], "terminated": [0, 0], "truncated": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": [[9]]}, "observations (1, 1) (2, 1)"),
        ({"observations": [9, 9]}, "observations (2,) (2, 1)"),
        ({"actions": [[9, 9]]}, "actions (1, 2) (2, 2)"),
        ({"actions": [[9, 9, 9]] * 2}, "actions (2, 3) (2, 2)"),
        ({"rewards": 9.0}, "rewards () (1,)"),
        ({"rewards": [[9.0], [9.0]]}, "rewards (2, 1) (2,)"),
        ({"next_observations": [[9], [9], [9]]}, "next_observations (3, 1) (2, 1)"),
        ({"terminated": True}, "terminated () (2,)"),
        ({"truncated": [False]}, "truncated (1,) (2,)"),
        ({"env_indices": [0]}, "env_indices (1,) (2,)"),
        ({"env_indices": 0}, "env_indices () (2,)"),
        ({"env_indices": [0.0, 1.0]}, "env_indices"),
        ({"observations": [[9], [np.nan]]}, "observations nan [1, 0]"),
        ({"next_observations": [[np.inf], [9]]}, "next_observations inf [0, 0]"),
        ({"actions": [[9, 9], [9, np.nan]]}, "actions nan"),
        ({"rewards": [9, 1e300]}, "rewards 1e+300"),
        ({"rewards": ["a", "b"]}, "rewards"),
        ({"observations": [[9], [9, 9]]}, "observations"),
        ({"terminated": [0, 2]}, "terminated 2"),
        ({"truncated": [0.5, 0]}, "truncated 0.5"),
    ],
)
def test_refused_transitions_change_nothing(changes, message):
    buffer, more = two_kept()
    with refuses(UsageError, message):
        buffer.add(**more | changes)
    assert (len(buffer), buffer.added) == (2, 2)
    for name, expected in (("observations", [1, 1]), ("actions", [5, 6, 5, 6]), ("next_observations", [2, 2])):
        assert buffer.arrays()[name].ravel().tolist() == expected
    buffer.add(**more)
    assert buffer.arrays()["next_observations"].ravel().tolist() == [2, 3]


def test_byte_observations_must_be_integers_up_to_255():
    buffer, more = two_kept(np.uint8)
    for name, value in (("observations", -1.0), ("next_observations", 256), ("observations", 0.5)):
        with refuses(UsageError, f"{name} {value} 255"):
            buffer.add(**more | {name: [[1], [value]]})
    buffer.add(**more | {"observations": [[255.0], [0.0]]})
    assert buffer.arrays()["observations"].ravel().tolist() == [255, 0]


@pytest.mark.parametrize(("numbers", "message"), [((1, "2"), "batch_size '2'"), ((0, 2), "updates 0"), ((1, -2), "-2")])
def test_counts_of_minibatches_must_be_positive_integers(numbers, message, rng):
    with refuses(UsageError, message):
        two_kept()[0].sample(rng, *numbers)


def test_a_copied_state_is_restored_and_must_be_complete():
    """The arrays are views: without copies, later transitions would overwrite some of them."""
    buffer, more = two_kept()
    state = {name: array.copy() for name, array in buffer.state().items()}
    buffer.add(**more)
    other = two_kept()[0]
    other.restore(state)
    assert other.arrays()["next_observations"].ravel().tolist() == [2, 2]
    del state["successors"], state["rewards"]
    with refuses(UsageError, "rewards, successors ReplayBuffer.state"):
        other.restore(state)


def test_padding_adds_updates_of_zeros():
    batch = Batch(*(np.ones((2, 3, size), np.float32) for size in (4, 1, 1, 4, 1)))
    padded = batch.padded(5)
    for before, after in zip(batch, padded, strict=True):
        np.testing.assert_array_equal(after[:2], before)
        assert after.shape == (5, *before.shape[1:])
        assert not after[2:].any()
        assert after.dtype == before.dtype


def test_a_batch_without_some_fields_iterates_over_the_others():
    batch = Batch(*range(5), discounts=5)
    assert [*batch] == [0, 1, 2, 3, 4, 5]
    assert batch.map(str) == Batch("0", "1", "2", "3", "4", "5", None)
    assert batch.replace(rewards=7).rewards == 7


# -- observations are stored once ------------------------------------------------------------------------


def test_bytes_of_a_transition_of_half_cheetah():
    """68 for s, 24 for a, 4 for r, 2 flags, 4 for the index of s′; an episode of 1000 steps stores one more s."""
    buffer = ReplayBuffer(3000, (17,), 6)
    path = np.random.default_rng(0).normal(size=(3001, 17)).astype(np.float32)
    cut = np.arange(1, 3001) % 1000 == 0
    buffer.add(path[:-1], np.zeros((3000, 6)), np.zeros(3000), path[1:], np.zeros(3000, bool), cut, [0] * 3000)
    assert buffer.nbytes == 3000 * 102 + 3 * 68
    assert buffer.nbytes / 3000 <= 0.45 * 308  # 308 is Stable-Baselines3's
    stored = buffer.arrays()
    np.testing.assert_array_equal(stored["observations"], path[:-1])
    np.testing.assert_array_equal(stored["next_observations"], path[1:])


class ModelTransition:
    """A transition of the model: its fields, environment index, and successor."""

    def __init__(self, env_index, before, reward, after, terminated, truncated):
        self.env_index, self.before, self.reward, self.after = env_index, before, reward, after
        self.terminated, self.truncated, self.successor = terminated, truncated, None


class Ring(RuleBasedStateMachine):
    """A ring against a list. Observations are so few that an episode often starts where the last one ended."""

    gamma = 0.5

    @initialize(capacity=st.integers(1, 9))
    def start(self, capacity):
        self.buffer = ReplayBuffer(capacity, (1,), 1, np.uint8)
        self.kept, self.newest, self.slots = [], {}, set()

    @rule(
        steps=st.lists(
            st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 1), st.integers(0, 9), *[st.booleans()] * 2),
            min_size=5,
            max_size=30,
        )
    )
    def add(self, steps):
        rows = []
        for env_index, goes_on, observation, reward, terminated, truncated in steps:
            last = self.newest.get(env_index)
            before = last.after if goes_on and last is not None else observation
            row = ModelTransition(env_index, before, reward, reward % 2, terminated, truncated)
            if last is not None and last in self.kept and last.after == before:
                last.successor = row
            self.newest[env_index] = None if terminated or truncated else row
            self.kept = [*self.kept, row][-self.buffer.capacity :]
            rows.append(row)
        column = lambda name: np.array([getattr(row, name) for row in rows], np.float32)  # noqa: E731
        flags = [column(name) > 0 for name in ("terminated", "truncated")]
        self.buffer.add(
            *(column("before")[:, None], column("reward")[:, None], column("reward"), column("after")[:, None]),
            *flags,
            [row.env_index for row in rows],
        )

    @rule(env_index=st.one_of(st.none(), st.integers(0, 2)))
    def end_episodes(self, env_index):
        self.buffer.end_episodes(env_index)
        self.newest = {} if env_index is None else {**self.newest, env_index: None}

    @rule(more=st.integers(0, 2))
    def save_and_restore(self, more):
        other = ReplayBuffer(self.buffer.capacity + more, (1,), 1, np.uint8)
        other.restore(self.buffer.state())
        self.buffer, self.newest = other, {}

    @invariant()
    def rows_equal_the_list(self):
        size = len(self.buffer)
        assert size == len(self.kept)
        rows = self.buffer.newest(size)
        stored = self.buffer.arrays()
        for name, field in (("observations", "before"), ("next_observations", "after"), ("rewards", "reward")):
            assert stored[name][rows, 0].tolist() == [getattr(row, field) for row in self.kept]
        for name in ("terminated", "truncated"):
            assert stored[name][rows, 0].tolist() == [getattr(row, name) for row in self.kept]
        if size:
            alone = sum(row.successor is None for row in self.kept)
            assert len(self.buffer.state()["last_observations"]) == alone

    @invariant()
    def returns_equal_the_lists(self):
        if not self.kept:
            return
        for n_steps in (1, 2, 4):
            batch = self.buffer.gather(self.buffer.newest(len(self.buffer)), n_steps, self.gamma)
            for index, row in enumerate(self.kept):
                path = [row]
                while len(path) < n_steps and path[-1].successor is not None:
                    path.append(path[-1].successor)
                assert batch.rewards[index, 0] == sum(self.gamma**k * step.reward for k, step in enumerate(path))
                assert batch.next_observations[index, 0] == path[-1].after
                assert batch.terminated[index, 0] == path[-1].terminated
                if n_steps > 1:
                    assert batch.discounts[index, 0] == self.gamma ** len(path)


def test_a_ring_behaves_like_a_list():
    # Without shrinking, which takes minutes; the examples are short anyway.
    quick = settings(max_examples=40, stateful_step_count=10, phases=[Phase.generate], deadline=None)
    run_state_machine_as_test(Ring, settings=quick)


def step(env_index, before, after, goes_on=False):
    """Return a step for :meth:`Ring.add`, from one observation (0 or 1) to another."""
    return env_index, goes_on, before, after, False, False


ALONE, CONNECTED = [step(0, 1, 0), step(1, 1, 0), step(2, 1, 0)], [step(0, 1, 0), step(0, 0, 0), step(0, 0, 1)]
WHERE_RANDOM_STEPS_SELDOM_GO = {
    "a jump": (3, [[step(0, 0, 0)], [step(0, 1, 1)]]),
    "a jump within a block": (3, [[step(0, 0, 0), step(0, 1, 1)]]),
    # Environment 0 goes on with what it had reached, and so had environment 1 in the row that overwrote 0's last one.
    "the newest row of an episode is overwritten": (
        2,
        [[step(0, 0, 1)], [step(1, 0, 0)], [step(1, 1, 1)], [step(0, 1, 0)]],
    ),
    "a block overwrites rows without successors": (3, [ALONE, CONNECTED] * 2),
}


@pytest.mark.parametrize("case", WHERE_RANDOM_STEPS_SELDOM_GO)
def test_a_ring_behaves_like_a_list_where_random_steps_seldom_go(case):
    capacity, blocks = WHERE_RANDOM_STEPS_SELDOM_GO[case]
    ring = Ring()
    ring.start(capacity)
    for block in blocks:
        ring.add(block)
        ring.rows_equal_the_list()
        ring.returns_equal_the_lists()


def test_returns_end_where_episodes_do(rng):
    """Two interleaved environments: 0 terminates after three steps, 1 continues. γ = 0.5, n = 3."""
    buffer = ReplayBuffer(20, (1,), 1)
    for step in range(4):
        before = np.array([[step % 3], [10 + step]], np.float32)
        ended = np.array([step == 2, False])
        buffer.add(before, np.zeros((2, 1)), np.array([1, 8]) + step, before + 1, ended, np.zeros(2, bool))
    batch = buffer.gather(np.array([[0, 2, 4, 6], [1, 3, 5, 7]]), 3, 0.5)
    assert batch.rewards[..., 0].tolist() == [
        [1 + 1 + 0.75, 2 + 1.5, 3, 4],
        [8 + 4.5 + 2.5, 9 + 5 + 2.75, 10 + 5.5, 11],
    ]
    assert batch.next_observations[..., 0].tolist() == [[3, 3, 3, 1], [13, 14, 14, 14]]
    assert batch.terminated[..., 0].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    assert batch.discounts[..., 0].tolist() == [[0.125, 0.25, 0.5, 0.5], [0.125, 0.125, 0.25, 0.5]]


def saved(**changes):
    """Return the state of a full ring of four, with the oldest row 1: 1 → 2 → 3, and the terminal row 0."""
    state = {
        "observations": np.zeros((4, 1), np.float32),
        "last_observations": np.zeros((2, 1), np.float32),
        "successors": np.array([-1, 2, 3, -1], np.int32),
        "actions": np.zeros((4, 1), np.float32),
        "rewards": np.zeros((4, 1), np.float32),
        "terminated": np.array([[1], [0], [0], [0]], np.uint8),
        "truncated": np.zeros((4, 1), np.uint8),
        "position": np.asarray(1),
    }
    return state | {name: np.asarray(value, state[name].dtype) for name, value in changes.items()}


def test_a_valid_state_is_restored():
    buffer = ReplayBuffer(4, (1,), 1)
    buffer.restore(saved())
    np.testing.assert_equal(buffer.state(), saved())
    assert ReplayBuffer(9, (1,), 1).restore(saved()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"successors": [-1, 2, 3, 4]}, "1"),
        ({"successors": [-1, 2, 4, -1]}, "row 2 successor 4"),
        ({"successors": [-1, 2, -2, -1]}, "2 -2"),
        ({"successors": [-1, 2, 1, -1]}, "2 1"),
        ({"successors": [-1, 1, 3, -1]}, "row successor 1"),
        ({"successors": [-1, 3, 3, -1]}, "successor two"),
        ({"successors": [-1, 2, 3]}, "(3,)"),
        ({"terminated": [[1], [1], [0], [0]]}, "1 2"),
        ({"truncated": [[0], [0], [1], [0]]}, "2 3"),
        ({"terminated": [[2], [0], [0], [0]]}, "terminated 2 flags"),
        ({"last_observations": np.zeros((2, 2))}, "last_observations (2, 2)"),
    ],
)
def test_an_invalid_state_is_refused(changes, message):
    with refuses(UsageError, message):
        ReplayBuffer(9, (1,), 1).restore(saved(**changes))


def one_step(env_index, after):
    no = np.zeros(1, bool)
    return Transitions(None, None, np.zeros(1), np.float32([[after]]), no, no, [env_index])


@pytest.mark.parametrize(("env_index", "linked"), [(None, [False, False]), (1, [True, False]), (0, [False, True])])
def test_after_end_episodes_the_next_row_is_not_a_successor(env_index, linked):
    """In each of two environments the next observation equals s′; where the episode was ended, it is not linked."""
    observations = ObservationStore(8, (1,), np.float32)
    for row in (0, 1):  # environments 0 and 1
        observations.rows[row] = row
        observations.connect(row, one_step(row, 10 + row))
    observations.end_episodes(env_index)
    for row in (2, 3):
        observations.rows[row] = 8 + row
        observations.connect(row, one_step(row - 2, 20 + row))
    assert observations.next_rows(np.arange(2))[1].tolist() == linked
    assert observations.next_obs(np.arange(4))[:, 0].tolist() == [10, 11, 22, 23]


def mixed(recorded, own, capacity=40):
    """Return a buffer of recorded rows, then of the agent's own. A row's reward is its number."""
    buffer = ReplayBuffer(capacity, (1,), 1)
    for first, count, lane in ((0, recorded, -1), (recorded, own, 0)):
        zeros = np.zeros((count, 1))
        buffer.add(zeros, zeros, first + np.arange(count), zeros, zeros[:, 0], zeros[:, 0], [lane] * count)
    return buffer


@pytest.mark.parametrize(("share", "first"), [(0.5, 4), (0.25, 2), (0.0, 0), (1.0, 8), (0.3, 2)])
def test_a_share_of_each_minibatch_is_recorded(share, first, rng):
    """30 rows are recorded and three are not. Of each minibatch of 8 this share is recorded, and every row is drawn."""
    buffer = mixed(30, 3)
    rows = buffer.draw_mixed(rng, 200, 8, share)
    assert (rows[:, :first] < 30).all()
    assert (rows[:, first:] >= 30).all()
    assert {*rows.ravel()} == {*range(0 if first else 30, 33 if first < 8 else 30)}
    assert buffer.gather(rows).rewards[..., 0].tolist() == rows.tolist()


@pytest.mark.parametrize(("recorded", "own"), [(5, 0), (0, 5)])
def test_with_rows_of_one_kind_sampling_is_uniform(recorded, own):
    buffer = mixed(recorded, own)
    drawn, plain = np.random.default_rng(1), np.random.default_rng(1)
    assert buffer.draw_mixed(drawn, 3, 8, 0.5).tolist() == buffer.draw(plain, 3, 8).tolist()
    assert (drawn.random(), buffer.num_recorded) == (plain.random(), recorded)
    assert ("recorded" in buffer.state()) == (recorded > 0)


def test_recorded_rows_are_counted_until_overwritten_and_saved():
    """A ring of 10 with 6 recorded and 4 own rows: 3 own, then 2 recorded rows overwrite recorded ones."""
    buffer = mixed(6, 4, capacity=10)
    counts = [buffer.num_recorded]
    zeros = np.zeros((3, 1))
    buffer.add(zeros, zeros, np.zeros(3), zeros, np.zeros(3), np.zeros(3), [0, 0, 0])
    counts.append(buffer.num_recorded)
    buffer.add(zeros[:2], zeros[:2], np.zeros(2), zeros[:2], np.zeros(2), np.zeros(2), [-1, -1])
    counts.append(buffer.num_recorded)
    assert counts == [6, 3, 3]
    flags = [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert buffer.state()["recorded"][:, 0].tolist() == flags
    for capacity, rolled in ((10, 0), (12, 5)):
        other = ReplayBuffer(capacity, (1,), 1)
        assert other.restore(buffer.state()) == rolled
        assert other.state()["recorded"][:, 0].tolist() == np.roll(flags, -rolled).tolist()
        assert other.num_recorded == 3
    other.restore(saved())
    assert other.num_recorded == 0


def test_invalid_flags_of_recorded_rows_are_refused():
    for flags in ([[0], [0], [1], [3]], [[0], [0], [1]]):
        with refuses(UsageError, "recorded"):
            ReplayBuffer(9, (1,), 1).restore(saved() | {"recorded": np.array(flags, np.uint8)})


@pytest.mark.parametrize(
    ("gamma", "steps"),
    [(0.0, 1), (0.01, 1), (0.1, 2), (0.9, 44), (0.99, 459), (0.995, 919), (0.999, 1000), (1.0, 1000)],
)
def test_the_number_of_steps_in_a_return(gamma, steps):
    """0.9^43 = 0.0108, 0.9^44 = 0.0097."""
    assert return_steps(gamma) == steps


@given(st.floats(0.0101, 0.995))
def test_the_rest_of_a_return_has_little_weight(gamma):
    assert gamma ** return_steps(gamma) <= 0.01 * (1 + 1e-9)
