"""Progress messages and bars on stderr, and the format of returns."""

import fcntl
import io
import os
import pty
import re
import select
import struct
import sys
import termios
import types

import gymnasium as gym
import numpy as np
import pytest

from ddpg import DDPG, DDPGConfig, ProgressBar
from ddpg.interaction.transitions import Episode
from ddpg.progress import format_number, progress_message
from ddpg.quiet import quiet_tensorflow


class Terminal:
    """A terminal with a number of columns, in place of stderr, and what was written to it."""

    def __init__(self, columns):
        self._parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.file = open(child, "w", encoding="utf-8")  # noqa: SIM115
        self._text = b""

    def text(self):
        self.file.flush()
        while select.select([self._parent], [], [], 0)[0]:
            self._text += os.read(self._parent, 65536)
        return self._text.decode()


def use_terminal(monkeypatch, columns=80):
    """Make stderr a terminal; called in the test itself, because pytest sets stderr before each phase."""
    made = Terminal(columns)
    monkeypatch.setattr(sys, "stderr", made.file)
    return made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.20512, "0.2051"),
        (-0.0321, "-0.0321"),
        (-0.0, "0"),
        (12.3456, "12.35"),
        (-999.94, "-999.9"),
        (-1234.56, "-1235"),
        (123_456.7, "123457"),
        (200, "200"),
        (2.0**53, "9007199254740992"),
        (-1.7e308, "-1.7e+308"),
    ],
)
def test_format_of_returns(value, text):
    assert format_number(value) == text


def test_a_message_on_a_terminal_is_erased(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress_message("loading"):
        assert terminal.text() == "loading ..."
    assert terminal.text() == "loading ...\r           \r"  # no escape sequence, which some consoles show as text


def test_without_a_terminal_or_if_disabled_there_is_no_message(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress_message("loading", False):
        pass
    assert terminal.text() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_message("loading"):
        assert sys.stderr.getvalue() == ""


def last_line(terminal):
    """Return the bar's last state."""
    return [line for line in re.split("[\r\n]", terminal.text()) if line][-1]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("name", ["Pendulum-v1", "HalfFieldOffense-v0"])
def test_the_return_fits_the_terminal(columns, name, monkeypatch):
    terminal = use_terminal(monkeypatch, columns)
    bar = ProgressBar(name)
    agent = types.SimpleNamespace(num_timesteps=0)
    bar.on_training_start(agent, 1_500_000)
    agent.num_timesteps = 1_234_567
    for success in (True, True):
        bar.on_episode_end(agent, Episode(-0.0321, 100, 0, success))
    bar.on_step(agent)
    bar.on_training_end(agent)
    line = last_line(terminal)
    assert len(line) <= columns
    if columns == 120:
        assert line.startswith(f"{name}:  82%|")
        assert " 1234567/1500000 return -0.0321 success 100% [" in line
        assert line.rstrip().endswith("step/s]")
    else:
        assert line.startswith(f"{name}: |")
    if columns == 80:
        assert " 1.23M/1.50M return -0.0321 ok 100% [<" in line
        assert len(line.split("|")[1]) >= 8  # the bar itself


@pytest.mark.parametrize(
    ("successes", "text"),
    [((True, False, True, True), "success 75%"), ((None, None), ""), ((None, True, None), ""), ((True, None), "")],
)
def test_a_success_rate_is_shown_only_if_every_episode_reports_one(successes, text, monkeypatch):
    """An environment that reports only successes would always be at 100 %."""
    terminal = use_terminal(monkeypatch, 120)
    bar = ProgressBar("Goal")
    agent = types.SimpleNamespace(num_timesteps=0)
    bar.on_training_start(agent, 10)
    for success in successes:
        bar.on_episode_end(agent, Episode(1.0, 100, 0, success))
    agent.num_timesteps = 5
    bar.on_step(agent)
    bar.on_training_end(agent)
    assert ("success" in last_line(terminal)) == bool(text)
    assert text in last_line(terminal)


def test_a_vector_that_exceeds_the_goal_is_at_100_percent(monkeypatch):
    """Three environments make 102 steps for a goal of 100."""
    terminal = use_terminal(monkeypatch, 120)
    bar = ProgressBar()
    agent = types.SimpleNamespace(num_timesteps=0)
    bar.on_training_start(agent, 100)
    while agent.num_timesteps < 100:
        agent.num_timesteps += 3
        bar.on_step(agent)
    bar.on_training_end(agent)
    assert "100%|" in last_line(terminal)
    assert "102/102" in last_line(terminal)


def test_the_bar_shows_that_the_update_is_being_compiled(monkeypatch):
    terminal = use_terminal(monkeypatch)
    texts = []

    class RecordingBar(ProgressBar):
        def on_update(self, agent, metrics):
            texts.append(terminal.text())
            super().on_update(agent, metrics)

    config = DDPGConfig(hidden=(4,), batch_size=4, learning_starts=4, updates_per_call=4, jit=False, optimizer="sgd")
    agent = DDPG(gym.make("Pendulum-v1"), config, seed=0)
    assert agent.compile_seconds is None
    agent.learn(8, [RecordingBar()])
    seconds = agent.compile_seconds
    assert seconds > 0
    assert "8/8" not in texts[0]
    assert "compiling the update [" in texts[0]
    assert "compiling" not in last_line(terminal)
    agent.learn(8, [RecordingBar()])
    assert agent.compile_seconds == seconds
    assert terminal.text().count("compiling") == texts[0].count("compiling")


def test_only_notices_are_suppressed(capfd):
    with quiet_tensorflow():
        os.write(
            2,
            b"I0000 00:00:1.2 3 stub.cc:1] no drivers\nsomebody else's\nWARNING: All log messages before absl::x\n"
            b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n",
        )
    assert capfd.readouterr().err == "somebody else's\n"

    @quiet_tensorflow()
    def failing():
        os.write(2, b"E0000 why\n")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert capfd.readouterr().err == "E0000 why\n"


def test_a_module_of_environments_may_be_the_first_to_import_tensorflow(capfd, monkeypatch, tmp_path):
    from ddpg.runs.env_factory import make_env

    (tmp_path / "notices.py").write_text("import os; os.write(2, b'I0000 00:00:1.2 3 stub.cc:1] no drivers\\nown\\n')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow")
    make_env("notices:Pendulum-v1").close()
    assert capfd.readouterr().err == "own\n"


def test_the_speed_excludes_compilation(tmp_path):
    from ddpg.runs.tables import read_table
    from ddpg.runs.training import train

    config = DDPGConfig(hidden=(4,), batch_size=4, learning_starts=4, updates_per_call=4, jit=False, optimizer="sgd")
    run = train(
        "Pendulum-v1", config, seed=0, total_timesteps=20, evaluation_episodes=1, root=tmp_path, progress_bar=False
    )
    rows = [{name: float(cell or 0) for name, cell in row.items()} for row in read_table(run / "metrics.csv")]
    assert rows[0]["compile_seconds"] == 0
    assert rows[-1]["compile_seconds"] > 0
    for row in rows:
        assert row["fps"] == pytest.approx(row["timesteps"] / (row["seconds"] - row["compile_seconds"]))
    assert np.isfinite(rows[-1]["fps"])
