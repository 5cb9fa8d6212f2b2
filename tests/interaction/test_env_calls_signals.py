"""A terminal's signals are blocked only while a child process starts, and arrive afterwards."""

import signal
import threading

import pytest

from ddpg.interaction.env_calls import terminal_signals_blocked

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")


def blocked():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_sigint_is_blocked_within_the_block_and_comes_after_it():
    steps = []

    def interrupted():
        with terminal_signals_blocked():
            steps.append(blocked())
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            steps.append("goes on")
        steps.append("unreached")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == [True, "goes on"]
    assert not blocked()


def test_what_was_blocked_before_stays_so():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with terminal_signals_blocked():
            pass
        assert blocked()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
