"""Signals outside of training, and a terminal that is closed."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from ddpg import DDPGConfig
from ddpg.__main__ import main
from ddpg.cli.terminal import BrokenPipeTolerantStream
from ddpg.config.presets import budget_note, ddpg_recipe, preset_for
from ddpg.errors import FileFault
from ddpg.runs import signals
from ddpg.runs.run_directory import check_root

WRITES = """
import pathlib, signal, tempfile, time
from ddpg.runs import signals
{ignored}
with signals.exit_on_termination(), tempfile.TemporaryDirectory(dir=".") as folder:
    print(folder, flush=True)
    time.sleep({seconds})
"""


@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_command_removes_its_temporary_files(number, tmp_path):
    code = WRITES.format(ignored="", seconds=60)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert not list(tmp_path.iterdir())


def test_a_signal_that_was_ignored_stays_ignored(tmp_path):
    code = WRITES.format(ignored="signal.signal(signal.SIGHUP, signal.SIG_IGN)", seconds=0.5)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.exit_on_termination():
        assert signal.getsignal(signal.SIGINT) is before[signals.SIGNALS.index(signal.SIGINT)]
        assert signal.getsignal(signal.SIGTERM) is not before[signals.SIGNALS.index(signal.SIGTERM)]
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


def test_what_is_printed_to_a_closed_terminal_is_discarded():
    terminal, end = pty.openpty()
    stream = BrokenPipeTolerantStream(os.fdopen(end, "w"))
    stream.write("seen\n")
    stream.flush()
    os.close(terminal)
    stream.write("not seen\n")
    stream.flush()
    stream._stream.close()


def test_an_interrupt_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    class Interrupting:
        def find_spec(self, name, path, target=None):
            if name == "ddpg.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ddpg.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main() == 130
    assert capsys.readouterr().err == "ddpg: interrupted\n"


def test_a_drawing_process_whose_parent_is_gone_ends_quietly():
    code = "from ddpg.runs.drawing_process import serve; serve()"
    process = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")


def test_random_steps_that_somebody_chose_are_not_noted():
    preset = preset_for("NoPreset-v0").options_for(DDPGConfig, 8_000)
    assert "800 of 8,000" in budget_note("NoPreset-v0", DDPGConfig(**preset), 8_000)
    of_ddpg = DDPGConfig(**ddpg_recipe("ddpg") | {"learning_starts": preset["learning_starts"]})
    assert budget_note("NoPreset-v0", of_ddpg, 8_000) == ""


def test_a_read_only_file_system_is_named(tmp_path, monkeypatch):
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda path: ReadOnly)
    with pytest.raises(FileFault, match="EROFS"):
        check_root(tmp_path / "runs")
