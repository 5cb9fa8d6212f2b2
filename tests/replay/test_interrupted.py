"""Ctrl-C after any bytecode instruction of ``add``: a transition is stored completely or not at all."""

import copy
import sys

import numpy as np
import pytest

from ddpg import ReplayBuffer
from ddpg.replay import buffer as replay_buffer_module
from ddpg.replay import observation_store


def two_transitions(number):
    """Return a transition of each environment, whose s′ is the next s; episodes end at different multiples."""
    s = np.asarray([[number], [number + 1000.0]])
    ended = np.asarray([number % 5 == 4, number % 7 == 6])
    return s, s + 0.5, s[:, 0], s + 1, ended, ~ended & (number % 5 == 2)


def two_steps(number):
    """Return two consecutive transitions of environment 0, whose episodes take five steps, or are cut within them."""
    s = np.asarray([[2.0 * number], [2.0 * number + 1]])
    ended = s[:, 0] % 5 == 4
    return s, s + 0.5, s[:, 0], s + 1, ended, ~ended & (s[:, 0] % 5 == 2)


def kept(buffer):
    """Check that all stored transitions are complete, and return their numbers, the oldest first."""
    arrays = buffer.arrays()
    rewards = arrays["rewards"]
    ended = np.where(rewards < 1000, rewards % 5 == 4, rewards % 1000 % 7 == 6)
    # By array_equal: NumPy's assertions would take most of the time.
    assert np.array_equal(arrays["observations"], rewards)
    assert np.array_equal(arrays["actions"], rewards + 0.5)
    assert np.array_equal(arrays["next_observations"], rewards + 1)
    assert np.array_equal(arrays["terminated"], ended)
    assert np.array_equal(arrays["truncated"], ~ended & (rewards % 1000 % 5 == 2))
    shift = -int(arrays["position"]) if len(buffer) == buffer.capacity else 0
    return np.roll(rewards[:, 0], shift).tolist()


def interrupted(call, at):
    """Interrupt a call after ``at`` bytecode instructions of the buffer; return whether it was interrupted."""
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


@pytest.mark.parametrize(
    ("made", "env_indices", "filled"),
    [
        pytest.param(two_transitions, [0, 1], 0, marks=pytest.mark.slow),
        (two_transitions, [0, 1], 3),
        *(pytest.param(two_transitions, [0, 1], rows, marks=pytest.mark.slow) for rows in (8, 13)),
        *(pytest.param(two_steps, [0, 0], rows, marks=pytest.mark.slow) for rows in (0, 8, 13)),
    ],
    ids=["empty", "filling", "full", "wrapped", "empty, two steps", "full, two steps", "wrapped, two steps"],
)
def test_an_interrupt_after_any_instruction(made, env_indices, filled):
    # Python 3.12 does not trace the instructions of the first traced call.
    interrupted(lambda: ReplayBuffer(17, (1,), 1).add(*made(0)), 0)
    stored, before, first = set(), ReplayBuffer(17, (1,), 1), []
    for number in range(filled):
        before.add(*made(number), env_indices)
        first += made(number)[2].tolist()
    for at in range(1, 10_000):
        buffer, everything = copy.deepcopy(before), [*first]
        if not interrupted(lambda memory=buffer: memory.add(*made(filled), env_indices), at):
            break
        added = buffer.added - 2 * filled
        stored.add(added)
        everything += made(filled)[2].tolist()[:added]
        assert kept(buffer) == everything[-17:]
        for number in range(filled + 1, filled + 19):  # the ring wraps: no freed slot is used twice
            # With new environment indices no row has a successor, so all need slots for s′.
            buffer.add(*made(number), env_indices if number < filled + 9 else (2 * number, 2 * number + 1))
            everything += made(number)[2].tolist()
            if number % 3 == 0:  # the memory holds a transition for longer
                assert kept(buffer) == everything[-17:]
        again = ReplayBuffer(17, (1,), 1)
        again.restore({name: array.copy() for name, array in buffer.state().items()})
        assert kept(again) == everything[-17:]
    assert at > 300  # every instruction was tested
    assert stored == {0, 2}
