"""The clock inside an environment, and what is made of its times."""

import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed"
sys.path += [str(SPEED), str(SPEED / "peers")]

import common  # noqa: E402
from summary import report, summarise  # noqa: E402
from tasks import PEERS, PEERS_BY_NAME  # noqa: E402


def test_the_clock_notes_where_two_steps_begin(monkeypatch):
    """Step n of the environment begins at second 10 n; the process has used half of that."""
    clock = common.Clock(gym.make("Pendulum-v1"), warm=2, steps=5)
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(common.time, "perf_counter", lambda: now.seconds)
    monkeypatch.setattr(common.os, "times", lambda: SimpleNamespace(user=now.seconds / 2 - 1, system=1.0))
    clock.reset(seed=0)
    for step in range(1, 8):
        now.seconds = 10.0 * step
        clock.step(clock.action_space.sample())
    assert clock.notes == [(20.0, 10.0), (50.0, 25.0)]


def test_rates_are_of_the_steps_between(monkeypatch, capsys):
    """From step 2 to step 6 at 10 s a step: 0.1 steps/s, of CPU 5 s each."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(common.time, "perf_counter", lambda: now.seconds)
    monkeypatch.setattr(common.os, "times", lambda: SimpleNamespace(user=now.seconds / 2, system=0.0))
    monkeypatch.setattr(sys, "argv", ["script", '{"env": "Pendulum-v1", "warm": 2, "steps": 6}'])

    def train(task, env):
        env.reset(seed=0)
        for _ in range(task.steps):
            now.seconds += 10
            env.step(env.action_space.sample())

    common.measure(train)
    printed = common.json.loads(capsys.readouterr().out)
    assert printed["steps_per_second"] == pytest.approx(0.1)
    assert printed["cpu_seconds_per_1000_steps"] == pytest.approx(5000)
    assert printed["seconds_before"] == pytest.approx(20)


ROWS = [
    {"task": "T", "cores": 1, "peer": peer, "steps_per_second": rate}
    for peer, rates in {"ours": (90, 100, 400), "theirs": (50, 25, 20)}.items()
    for rate in rates
] + [{"task": "T", "cores": 1, "peer": "third", "failed": "no such module"}]


def test_ratios_are_of_medians():
    ours, theirs, third = summarise(ROWS)
    assert (ours["median"], ours["least"], ours["most"], ours["ratio"]) == (100, 90, 400, 1)
    assert (theirs["median"], theirs["ratio"]) == (25, 4)
    assert third["failed"] == "no such module"
    assert "theirs                               25  (20 to 50)            4.00" in report(ROWS)
    assert "third                          no such module" in report(ROWS)


def test_without_ours_there_is_no_ratio():
    (theirs,) = summarise(ROWS[3:6])
    assert theirs["ratio"] is None


def test_every_peer_has_its_script():
    for peer in PEERS_BY_NAME.values():
        assert (PEERS / f"{peer.script}.py").exists(), peer
