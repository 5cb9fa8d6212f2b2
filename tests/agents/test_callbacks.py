"""What ``learn`` accepts as a callback, and what it refuses."""

import numpy as np
import pytest
from agent_options import IDLE
from environments import Counting
from refusals import refuses

from ddpg import DDPG, Callback, DDPGConfig, UsageError

CONFIG = DDPGConfig(**IDLE)


@pytest.fixture(scope="module")
def agent():
    return DDPG(Counting(20), CONFIG, seed=0)


@pytest.mark.parametrize("listed", [True, False])
def test_a_function_is_called_after_every_step_and_can_stop(agent, listed):
    start, steps = agent.num_timesteps, []

    def stop_at_seven(agent):
        steps.append(agent.num_timesteps - start)
        return agent.num_timesteps - start < 7

    agent.learn(50, [stop_at_seven] if listed else stop_at_seven)
    assert steps == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("answer", [np.bool_(False), np.array([1.0]).max() < 0])
def test_numpys_false_stops_too(agent, answer):
    before = agent.num_timesteps
    agent.learn(50, lambda agent: answer)
    assert agent.num_timesteps == before + 1


@pytest.mark.parametrize("answer", [None, 0, np.bool_(True), ""])
def test_other_return_values_do_not_stop(agent, answer):
    before = agent.num_timesteps
    agent.learn(5, [lambda agent: answer])
    assert agent.num_timesteps == before + 5


def test_a_callback_alone_needs_no_list(agent):
    class Stop(Callback):
        def on_step(self, agent):
            return False

    before = agent.num_timesteps
    agent.learn(50, Stop())
    assert agent.num_timesteps == before + 1


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([Callback], "class"),
        ([3], "callback 3"),
        (3, "callbacks=3 ddpg.Callback"),
        ("progress", "callbacks='progress'"),
    ],
)
def test_anything_else_is_refused_before_a_step(agent, callbacks, message):
    before = agent.num_timesteps
    with refuses(UsageError, message):
        agent.learn(50, callbacks)
    assert agent.num_timesteps == before


class Recording(Callback):
    """Records its calls, and fails in one of them."""

    def __init__(self, name, calls, fails=""):
        self.name, self.calls, self.fails = name, calls, fails

    def record(self, call):
        self.calls.append(f"{self.name} {call}")
        if call == self.fails:
            raise ZeroDivisionError(f"{self.name} {call}")

    def on_training_start(self, agent, total_timesteps):
        assert total_timesteps == agent.num_timesteps + 3
        self.record("start")

    def on_training_end(self, agent):
        self.record("end")


@pytest.mark.parametrize("nested", [False, True])
def test_every_started_callback_is_ended_even_if_one_fails(agent, nested):
    for fails, expected in (
        (("", "start"), ["A start", "B start", "A end"]),
        (("end", ""), ["A start", "B start", "A end", "B end"]),
    ):
        calls = []
        callbacks = [Recording(name, calls, failing) for name, failing in zip("AB", fails, strict=True)]
        with pytest.raises(ZeroDivisionError):
            agent.learn(3, [callbacks] if nested else callbacks)
        assert calls == expected
    agent.learn(1)  # the agent remains usable


def test_callbacks_are_notified_of_an_evaluation_at_the_end_of_training(agent):
    """An evaluation made in ``on_training_end``."""
    found = []

    class Last(Callback):
        def on_training_end(self, agent):
            agent.report_evaluation("last")

    class Listens(Callback):
        def on_evaluation(self, agent, evaluation):
            found.append(evaluation)

    agent.learn(1, [Last(), Listens()])
    assert found == ["last"]
