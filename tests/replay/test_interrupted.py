"""Ctrl-C after any instruction of storing: a transition is stored whole or not at all, and no other one changes."""

import sys

import numpy as np
import pytest

from ddpg import ReplayBuffer
from ddpg.replay import buffer as replay_buffer_module
from ddpg.replay import observation_store

LANES = 2


def transition(number):
    """Return transitions of both lanes, s′ the s of the next; an episode ends with every fifth."""
    s = np.asarray([[number], [number + 1000.0]])
    ended = np.asarray([number % 5 == 4, number % 7 == 6])
    return s, s + 0.5, s[:, 0], s + 1, ended, ~ended & (number % 5 == 2)


def kept(buffer):
    """Return what it holds, the oldest first, by the number of the transition; and refuse what is torn."""
    arrays = buffer.arrays()
    rewards = arrays["rewards"]
    np.testing.assert_array_equal(arrays["observations"], rewards)
    np.testing.assert_array_equal(arrays["actions"], rewards + 0.5)
    np.testing.assert_array_equal(arrays["next_observations"], rewards + 1)
    ended = np.where(rewards < 1000, rewards % 5 == 4, rewards % 1000 % 7 == 6)
    np.testing.assert_array_equal(arrays["terminated"], ended)
    np.testing.assert_array_equal(arrays["truncated"], ~ended & (rewards % 1000 % 5 == 2))
    shift = -int(arrays["position"]) if len(buffer) == buffer.capacity else 0
    return np.roll(rewards[:, 0], shift).tolist()


def interrupted(call, at):
    """Make a call with a Ctrl-C after the instruction numbered ``at`` of storing; return whether one was made."""
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        if frame.f_code.co_filename not in (replay_buffer_module.__file__, observation_store.__file__):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("filled", [0, 3, 8, 13], ids=["empty", "filling", "full", "wrapped"])
def test_wherever_it_comes(filled):
    # Python 3.12 misses the instructions of the first call that it traces by instruction.
    interrupted(lambda: ReplayBuffer(17, (1,), 1).add(*transition(0)), 0)
    stored = set()
    for at in range(1, 10_000):
        buffer = ReplayBuffer(17, (1,), 1)
        for number in range(filled):
            buffer.add(*transition(number))
        everything = [env_index + number for number in range(filled) for env_index in (0, 1000)]
        if not interrupted(lambda memory=buffer: memory.add(*transition(filled)), at):
            break
        added = buffer.added - 2 * filled
        stored.add(added)
        everything += [filled, filled + 1000.0][:added]
        assert kept(buffer) == everything[-17:]
        for number in range(filled + 1, filled + 30):  # the ring goes round: nothing that was given back is given twice
            # In lanes of their own none follows another, and all need the place for an s′.
            env_indices = None if number < filled + 15 else (2 * number, 2 * number + 1)
            buffer.add(*transition(number), env_indices)
            everything += [number, number + 1000]
            assert kept(buffer) == everything[-17:]
        again = ReplayBuffer(17, (1,), 1)
        again.restore({name: array.copy() for name, array in buffer.state().items()})
        assert kept(again) == everything[-17:]
    assert at > 300  # every instruction was met
    assert stored == {0, LANES}
