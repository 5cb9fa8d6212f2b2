"""Signals that end commands without a run to save."""

import os
import signal
import subprocess
import sys

import pytest

from ddpg.runs import signals

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


def test_where_a_pipe_cannot_be_made_non_blocking_a_signal_still_arrives(monkeypatch):
    """As on Windows before Python 3.12, whose ``set_wakeup_fd`` takes a blocking pipe."""
    set_blocking, set_wakeup_fd = os.set_blocking, signal.set_wakeup_fd

    def takes_any(descriptor, **options):
        if descriptor != -1:
            set_blocking(descriptor, False)
        return set_wakeup_fd(descriptor, **options)

    monkeypatch.delattr(os, "set_blocking")
    monkeypatch.setattr(signal, "set_wakeup_fd", takes_any)
    with signals.stop_on_signals() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.came(within=60)
    assert request.number == signal.SIGTERM


def test_what_a_process_without_a_stderr_says_is_no_part_of_its_stdout(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    signals.StopRequest().say("saved")
    assert capsys.readouterr().out == ""
