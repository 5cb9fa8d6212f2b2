"""One agent in several threads: no call is lost, torn or hangs, and conflicting calls are refused."""

import itertools
import threading

import gymnasium as gym
import numpy as np
import pytest
from agents_by_driver import filled
from environments import Counting
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.learners.synced_session import FairLock

BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACES = (BOX, gym.spaces.Box(-1.0, 1.0, (2,), np.float32))
CONFIG = DDPGConfig(hidden=(8,), batch_size=4, buffer_size=400, updates_per_call=2, learning_starts=4, target="online")
LIMIT = 60  # seconds for waits that take milliseconds


def agent_with(**options):
    return filled(DDPG(SPACES, CONFIG.replace(**options), seed=0))


def together(*functions):
    """Call functions at the same time, each in a thread. All must end; raise the first error."""
    errors, ready = [], threading.Barrier(len(functions))

    def run(function):
        try:
            ready.wait(LIMIT)
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def steps_of_adam(agent, network):
    """Return the number of Adam's steps, from its power β₂ᵗ⁺¹ with β₂ = 0.999."""
    name = {"actor": "beta2_power:0", "critic": "beta2_power_1:0"}[network]
    return round(np.log(agent.get_parameters()[name]) / np.log(0.999)) - 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"compiler": "native", "threads": 1}, marks=pytest.mark.slow),
        {"compiler": "native", "threads": 2},
        pytest.param({"compiler": "xla"}, marks=pytest.mark.slow),
        pytest.param({"jit": False}, marks=pytest.mark.slow),
        pytest.param({"td_target": "placeholder", "jit": False, "updates_per_call": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_concurrent_updates_are_all_made(options):
    agent = agent_with(**options)
    start = steps_of_adam(agent, "critic")

    def update():
        for _ in range(40):
            agent.update(1)

    together(update, update, lambda: agent.update(60))
    assert agent.num_updates == 140
    assert steps_of_adam(agent, "critic") - start == steps_of_adam(agent, "actor") - start == 140


@pytest.mark.parametrize(
    "options", [{"compiler": "native"}, pytest.param({"compiler": "xla"}, marks=pytest.mark.slow)], ids=str
)
def test_parameters_set_during_updates_are_not_lost(options):
    agent = agent_with(actor_learning_rate=1e-9, **options)
    name = next(n for n in agent.global_variables if n.startswith("actor/") and n.endswith("/b:0"))
    shape, found, over = agent.global_variables[name].shape, [], threading.Event()

    def update():
        while not over.is_set():
            agent.update(2)

    def set_and_read():
        try:
            for number in range(20):
                agent.set_parameters({name: np.full(shape, float(number))}, exact_match=False)
                found.append(agent.get_parameters()[name])
        finally:
            over.set()

    together(update, set_and_read)
    np.testing.assert_allclose([values.mean() for values in found], range(20), atol=1e-4)


def test_every_call_but_predict_waits_for_the_call_in_progress(tmp_path):
    agent = agent_with(jit=False)
    s, a, weights = np.zeros(3), np.zeros(2), agent.get_parameters()
    waiting = {
        "update": lambda: agent.update(1),
        "observe": lambda: agent.observe(s, a, 0.0, s, False, False),
        "remember": lambda: agent.remember([s], [a], [0.0], [s], [False], [False]),
        "set_parameters": lambda: agent.set_parameters(weights),
        "get_parameters": agent.get_parameters,
        "refresh_policy": agent.refresh_policy,
        "scale_learning_rates": lambda: agent.scale_learning_rates(1.0),
        "save": lambda: agent.save(tmp_path / "saved"),
        "export": lambda: agent.export(tmp_path / "exported"),
        "explore": lambda: agent.predict(s, deterministic=False),
        "session": lambda: agent.session.run(agent.global_variables),
    }
    ended, predicted = [], []
    begun = threading.Barrier(len(waiting) + 1)

    def call(name):
        begun.wait(LIMIT)
        waiting[name]()
        ended.append(name)

    threads = [threading.Thread(target=call, args=(name,), daemon=True) for name in waiting]

    def hold():
        for thread in threads:
            thread.start()
        begun.wait(LIMIT)
        together(lambda: predicted.append(agent.predict(s)))
        for thread in threads:
            thread.join(0.05)
        return list(ended)

    assert agent.session.lock(hold) == []
    assert len(predicted) == 1
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(ended) == sorted(waiting)


class Waiting(Counting):
    """An environment whose third step waits until the test sets ``go_on``."""

    def __init__(self):
        super().__init__(7)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def step(self, action):
        if self.step_number == 2 and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(LIMIT)
        return super().step(action)


OVERLAP = pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.slow)])


@OVERLAP
def test_calls_during_learn_run_or_are_refused(overlap, tmp_path):
    """While the environment steps, predict, calls that change the agent, and saving do not wait; some are refused."""
    env = Waiting()
    config = DDPGConfig(hidden=(4,), batch_size=2, learning_starts=0, updates_per_call=1, buffer_size=50, jit=False)
    agent = DDPG(env, config.replace(overlap=overlap), seed=0)
    observation = env.observation_space.sample()

    def meanwhile():
        try:
            assert env.reached.wait(LIMIT)
            for refused in (lambda: agent.learn(3), agent.close, lambda: agent.__exit__(None, None, None)):
                with refuses(UsageError, "learn()"):
                    refused()
            for deterministic in (True, False):
                agent.predict(observation, deterministic=deterministic)
            agent.set_parameters(agent.get_parameters())
            agent.scale_learning_rates(0.5)
            agent.update(2)
            agent.observe(observation, env.action_space.sample(), 0.0, observation, False, False, env_index=1)
            agent.save(tmp_path / "saved")
            agent.export(tmp_path / "exported")
        finally:
            env.go_on.set()

    together(lambda: agent.learn(9), meanwhile)
    assert agent.num_timesteps == len(agent.replay) == 9  # observed transitions count, too
    assert not agent.closed
    loaded = DDPG.load(tmp_path / "saved")
    assert len(loaded.replay) == loaded.num_timesteps
    agent.learn(2)
    agent.close()


@OVERLAP
def test_a_callback_and_an_environment_may_wait_for_a_thread_that_uses_the_agent(overlap):
    """They would deadlock if ``learn`` held the agent's lock while calling them."""
    predicted = []

    class Playing(Counting):
        def step(self, action):
            together(lambda: predicted.append(agent.predict(self.observation_space.sample(), deterministic=False)))
            return super().step(action)

    agent = DDPG(Playing(7), CONFIG.replace(jit=False, overlap=overlap), seed=0)
    agent.learn(12, lambda agent: together(lambda: agent.set_parameters(agent.get_parameters())))
    assert len(predicted) == agent.num_timesteps == 12


@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.slow), True])
def test_random_interleavings(overlap, tmp_path):
    """Whatever the threads do, the counts add up: no call was lost, made twice or torn."""
    agent = DDPG(Counting(7), CONFIG.replace(overlap=overlap, jit=False), seed=0)
    start = steps_of_adam(agent, "critic")
    space, action = agent.observation_space, agent.action_space.sample()
    rounds = 40

    def uses(env_index):
        s = space.sample()
        return [
            lambda: agent.observe(s, action, 1.0, s, False, False, env_index=env_index),
            lambda: agent.update(1),
            lambda: agent.predict(s, deterministic=False),
            lambda: agent.set_parameters(agent.get_parameters()),
            lambda: agent.remember([s] * 3, [action] * 3, [0.0] * 3, [s] * 3, [False] * 3, [False] * 3),
            lambda: agent.predict(s),
            lambda: agent.refresh_policy(),
        ]

    def working(env_index):
        turns = itertools.islice(itertools.cycle(uses(env_index)), env_index, env_index + rounds)
        return lambda: [use() for use in turns]

    agent.learn(8)
    earned, steps = agent.num_updates + agent.loop.owed_updates, []
    together(
        lambda: agent.learn(60, lambda agent: steps.append(None)),
        *map(working, (1, 2, 3)),
        lambda: agent.save(tmp_path / "saved"),
    )
    turns = [(env_index + turn) % 7 for env_index in (1, 2, 3) for turn in range(rounds)]
    assert agent.num_timesteps == 8 + len(steps) + turns.count(0) >= 68
    assert len(agent.replay) == agent.num_timesteps + 3 * turns.count(4)
    # `set_parameters` restores what `get_parameters` read, which deliberately undoes updates made in between.
    assert steps_of_adam(agent, "critic") - start <= agent.num_updates
    assert agent.num_updates + agent.loop.owed_updates == earned + len(steps) + turns.count(1)
    DDPG.load(tmp_path / "saved").update(1)


@pytest.mark.slow
def test_agents_in_threads_give_the_results_of_one_thread():
    """Created in one thread, used in another, closed in a third, while an agent of another kind runs."""
    made, results = {}, {}

    def make(name, kind, spaces, config):
        made[name] = filled(kind(spaces, config, seed=0))

    def use(name):
        made[name].update(20)
        results[name] = made[name].get_parameters()

    choices = (BOX, gym.spaces.Discrete(3))
    dqn = DQNConfig(hidden=(8,), batch_size=4, buffer_size=20, updates_per_call=2)
    arguments = {"ddpg": (DDPG, SPACES, CONFIG), "dqn": (DQN, choices, dqn)}
    for name in arguments:
        together(lambda name=name: make(name, *arguments[name]))
    together(*[lambda name=name: use(name) for name in arguments])
    for name, (kind, spaces, config) in arguments.items():
        alone = kind(spaces, config, seed=0)
        alone.memory.sampler.restore(made[name].memory.sampler.state())
        alone.update(20)
        np.testing.assert_equal(alone.get_parameters(), results[name])
    together(*[agent.close for agent in made.values()])
    assert all(agent.closed for agent in made.values())


@OVERLAP
def test_learn_and_close_within_learn_are_refused_and_learning_continues(overlap):
    agent, steps = DDPG(Counting(4), CONFIG.replace(overlap=overlap, jit=False), seed=0), []

    def again(agent):
        with refuses(UsageError, "learn() within learn() callback"):
            agent.learn(2)
        with refuses(UsageError, "close()"):
            agent.close()
        steps.append(agent.num_timesteps)

    agent.learn(12, again)
    assert steps == [*range(1, 13)]
    assert agent.num_updates + agent.loop.owed_updates == 8
    agent.learn(2)
    assert agent.num_timesteps == 14
    agent.close()


def test_closing_during_updates_ends_them_with_a_clear_error():
    agent, updated = agent_with(jit=False), threading.Event()

    def update():
        while True:
            agent.update(1)
            updated.set()

    with refuses(UsageError, "closed"):
        together(update, lambda: updated.wait(LIMIT) and agent.close())
    assert agent.closed


def test_the_lock_is_fair():
    """An owner that requests the lock again at once does not starve others, as it would with a plain lock."""
    lock, over, waiting, order = FairLock(), threading.Event(), threading.Event(), []

    def request_repeatedly():
        while not over.is_set():
            lock(hold)

    def hold():
        order.append("owner")
        # Wait until the other thread has queued; the event is set shortly before that.
        while not (over.is_set() or (waiting.is_set() and lock._queue.locked())):
            waiting.wait(0.001)

    def take_turns():
        try:
            for _ in range(30):
                waiting.set()
                lock(note_turn)
        finally:
            over.set()

    def note_turn():
        waiting.clear()
        order.append("other")

    together(request_repeatedly, take_turns)
    runs = [len(list(run)) for who, run in itertools.groupby(order) if who == "owner"]
    assert order.count("other") == 30
    assert sum(runs) <= 3 * 30  # 30 or 31, unless the system wakes the other thread late


def test_the_lock_is_reentrant_and_free_after_an_error():
    lock = FairLock()
    assert lock(lambda: lock(lambda: lock(int, "3"))) == 3
    with pytest.raises(ZeroDivisionError):
        lock(lambda: lock(lambda: 1 / 0))
    together(lambda: lock(int))


def test_the_lock_excludes():
    lock, inside, most = FairLock(), [], []

    def stay():
        inside.append(None)
        threading.Event().wait(0.02)  # long enough for the others to enter, if they could
        most.append(len(inside))
        inside.pop()

    together(*[lambda: lock(stay)] * 3)
    assert most == [1, 1, 1]
