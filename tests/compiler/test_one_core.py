"""In a process restricted to one core an update has one thread, and the results of ``threads=1`` on all cores."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from ddpg import DDPG, DDPGConfig
from ddpg.compiler.compiled_update import WORK_PER_THREAD

SPACES = gym.spaces.Box(-1, 1, (17,), np.float32), gym.spaces.Box(-1, 1, (6,), np.float32)
CONFIG = DDPGConfig(hidden=(256, 256), batch_size=256, updates_per_call=4, buffer_size=400)


def learned(threads=None):
    """Return an update's number of threads, whether it has a thread pool, and a digest of the weights."""
    with DDPG(SPACES, CONFIG.replace(threads=threads), seed=3) as agent:
        rng = np.random.default_rng(0)
        states, none = rng.uniform(-1, 1, (301, 17)).astype(np.float32), np.zeros(300, bool)
        actions = rng.uniform(-1, 1, (300, 6)).astype(np.float32)
        agent.remember(states[:-1], actions, rng.normal(size=300), states[1:], none, none)
        agent.update(4)
        parameters = agent.get_parameters()
        digest = hashlib.sha256(b"".join(parameters[name].tobytes() for name in sorted(parameters)))
        learner = agent.updater.learner
        return learner.workers, learner._compiled._threads is not None, digest.hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes to cores")
def test_a_pinned_process_has_one_thread_and_the_same_results():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from test_one_core import learned; print(*learned())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_NUM_INTRAOP_THREADS"}
    here = Path(__file__).parent
    environment["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parents[1]), environment.get("PYTHONPATH", "")])
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    workers, helped, digest = found.stdout.split()
    assert (workers, helped) == ("1", "False")
    assert digest == learned(threads=1)[2]


def test_an_update_of_that_size_would_use_more_threads_on_more_cores():
    """Otherwise the test above would prove nothing: the products of an update are enough work for two threads."""
    assert 2 * WORK_PER_THREAD < 2 * 256 * 256 * 256 * 6
