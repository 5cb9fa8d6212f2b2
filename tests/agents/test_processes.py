"""An agent lives in the process that made it."""

import copy
import os
import pickle
import signal
import warnings

import gymnasium as gym
import numpy as np
import pytest

from ddpg import DDPG, DDPGConfig, UsageError

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32))


@pytest.fixture(scope="module")
def agent():
    agent = DDPG(SPACES, DDPGConfig(hidden=(4,), batch_size=2, buffer_size=9, jit=False), seed=0)
    agent.observe(np.zeros(2), np.zeros(1), 0.0, np.zeros(2), False, False)
    return agent


@pytest.mark.parametrize("copier", [pickle.dumps, copy.deepcopy, copy.copy])
def test_an_agent_is_not_pickled_or_copied(agent, copier):
    with pytest.raises(UsageError, match=r"use save and load: agent\.save\(path\), DDPG\.load\(path, env\)"):
        copier(agent)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_agent_is_not_used_in_a_fork(agent, tmp_path):
    uses = [
        lambda: agent.predict(np.zeros(2)),
        lambda: agent.update(),
        lambda: agent.learn(1),
        lambda: agent.save(tmp_path / "c"),
    ]
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that forking with threads is dangerous is what this is about
        child = os.fork()
    if not child:
        signal.alarm(20)  # without the refusal it may hang
        try:
            for use in uses:
                try:
                    use()
                    os.write(write, b"used\n")
                except UsageError as error:
                    os.write(write, f"{'in the fork' in str(error)}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answers:
        assert answers.read() == "True\n" * len(uses)
    assert agent.predict(np.zeros(2))[0].shape == (1,)
