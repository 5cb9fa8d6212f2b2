"""An agent can be used only in the process that created it."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32))


@pytest.fixture(scope="module")
def agent():
    config = DDPGConfig(hidden=(4,), batch_size=2, buffer_size=9, jit=False, optimizer="sgd")
    agent = DDPG(SPACES, config, seed=0)
    agent.observe(np.zeros(2), np.zeros(1), 0.0, np.zeros(2), False, False)
    return agent


@pytest.mark.parametrize("copier", [pickle.dumps, copy.deepcopy, copy.copy])
def test_an_agent_cannot_be_pickled_or_copied(agent, copier):
    with refuses(UsageError, "agent.save(path) DDPG.load(path env)"):
        copier(agent)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_agent_refuses_use_in_a_fork(agent, tmp_path):
    saved = agent.save(tmp_path / "saved")
    uses = [
        lambda: agent.predict(np.zeros(2)),
        lambda: agent.update(),
        lambda: agent.learn(1),
        lambda: agent.save(tmp_path / "c"),
        lambda: DDPG(SPACES, agent.config, seed=0),
        lambda: DDPG.load(saved),
    ]
    answers = answers_of_a_fork(uses)
    assert [("fork" in answer, "'spawn'" in answer) for answer in answers] == [(True, True)] * len(uses)
    assert agent.predict(np.zeros(2))[0].shape == (1,)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_call_hangs_in_a_fork_made_while_another_thread_holds_the_lock(agent):
    """In the fork the lock is never released. No call waits for it, and closing there leaves the parent's agent."""
    held, let_go = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: agent.session.lock(lambda: (held.set(), let_go.wait(60))), daemon=True)
    thread.start()
    assert held.wait(60)

    def closed_and_updated():
        agent.close()
        agent.update()

    uses = [agent.get_parameters, agent.update, lambda: agent.predict(np.zeros(2), deterministic=False)]
    try:
        answers = answers_of_a_fork([*uses, agent.begin_episodes, closed_and_updated])
    finally:
        let_go.set()
        thread.join(60)
    assert ["in the fork" in answer for answer in answers] == [True] * 5
    assert not agent.closed
    agent.update()


def answers_of_a_fork(uses):
    """Call functions in a fork, and return for each the message of its UsageError, or ``"used"``."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that forking with threads is dangerous
        child = os.fork()
    if not child:
        signal.alarm(20)  # without the refusal it might hang
        try:
            for use in uses:
                try:
                    use()
                    os.write(write, b"used\n")
                except UsageError as error:
                    os.write(write, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answers:
        return answers.read().splitlines()


AFTER_A_FORK = """
import os, signal, sys, warnings
import gymnasium as gym, numpy as np
from ddpg import DDPG, DDPGConfig, UsageError
import tensorflow as tf

def learned():
    spaces = gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), batch_size=2, buffer_size=9, jit=False), seed=0)
    agent.observe(np.zeros(2), np.zeros(1), 0.0, np.zeros(2), False, False)
    return agent.update(1)

DDPG  # imported, and nothing is made
warnings.simplefilter("ignore")

def forked(when):
    if not os.fork():
        signal.alarm(60)
        try:
            print(when, "learned", len(learned()), flush=True)
        except UsageError as error:
            print(when, "refused", "'spawn'" in str(error), flush=True)
        os._exit(0)
    print(when, "status", os.wait()[1], flush=True)

forked("before")
tf.linalg.matmul(tf.ones((300, 300)), tf.ones((300, 300))).numpy()
forked("after")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_learning_works_in_a_fork_made_before_tensorflow_is_used_and_is_refused_after():
    command = [sys.executable, "-c", AFTER_A_FORK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:2] == ["before", "learned"]
    assert lines[1:] == [["before", "status", "0"], ["after", "refused", "True"], ["after", "status", "0"]]
    assert "Exception ignored" not in done.stderr
