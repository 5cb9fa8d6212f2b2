"""Environments that misbehave, by name: ``ddpg train hostile_envs:hostile/Exits-step-v0``.

:data:`FAILURES` end a run with status 3. :data:`TAMPERING` changes the process without ending the run. Each happens
in a step, a reset or ``close`` of the training environment, or in a step of the evaluation environment
(``evaluation``). With ``HOSTILE=off`` in the environment variables nothing happens.
"""

import functools
import io
import locale
import os
import random
import signal
import sys
import tempfile
import warnings

import gymnasium as gym
import numpy as np
from faulty_envs import Faulty

AT_STEP, AT_RESET = 35, 4  # counted from 1 over an environment's life; episodes have ten steps
SEED_OF_EVALUATIONS = 1_000_000  # in a run with seed 0


class Odd(BaseException):
    """Not an Exception, and printing it fails."""

    def __str__(self):
        raise RuntimeError("no text")


def raising(error):
    def misbehave(env, values):
        raise error

    return misbehave


def returning(change):
    return lambda env, values: change(values)


def _masked(value):
    return np.ma.masked_array(value, mask=np.ones(np.shape(value), bool))


FAILURES = {
    "Exits": raising(SystemExit()),
    "ExitsWithZero": raising(SystemExit(0)),
    "ExitsWithText": raising(SystemExit("the window was closed")),
    "Interrupts": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "StopIteration": raising(StopIteration()),
    "BaseException": raising(Odd()),
    "OSError": raising(OSError(28, "No space left on device")),
    "InfoNone": returning(lambda values: (*values[:-1], None)),
    "InfoList": returning(lambda values: (*values[:-1], [1])),
    "Masked": returning(lambda values: (_masked(values[0]), *values[1:])),
    "OneValueLess": returning(lambda values: values[:-1]),
}
OF_STEPS = {
    "MaskedReward": returning(lambda values: (values[0], np.ma.masked, *values[2:])),
    "OddSuccess": returning(lambda values: (*values[:2], True, False, {"is_success": "yes", None: 3})),
}


def changes_directory(env, values):
    env.folder = env.folder or tempfile.mkdtemp()
    os.chdir(env.folder)


def stays_there(env, values):
    changes_directory(env, values)
    env.later = lambda: os.path.samefile(os.getcwd(), env.folder) or sys.exit("not in its own directory")


def takes_streams(env, values):
    sys.stdout.close()
    sys.stderr.close()
    sys.stdout = sys.stderr = io.StringIO()


def reseeds(env, values):
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


def writes_into_what_it_returned(env, values):
    observation = values[0]

    def later():
        observation[:] = np.nan

    env.later = later


def ignores_signals(env, values):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def sets_a_locale(env, values):
    locale.setlocale(locale.LC_ALL, "C")


def takes_permissions(env, values):
    os.umask(0o777)


def raises_at_underflow(env, values):
    np.seterr(all="raise")


def makes_warnings_errors(env, values):
    warnings.simplefilter("error")


def forgets_variables(env, values):
    os.environ.clear()


TAMPERING = {
    "Directory": changes_directory,
    "OwnDirectory": stays_there,
    "Umask": takes_permissions,
    "Errors": raises_at_underflow,
    "Warnings": makes_warnings_errors,
    "Streams": takes_streams,
    "Signals": ignores_signals,
    "Seeds": reseeds,
    "Locale": sets_a_locale,
    "Variables": forgets_variables,
    "Arrays": writes_into_what_it_returned,
}


def does_all(env, values):
    for tamper in (tamper for name, tamper in TAMPERING.items() if name not in ("OwnDirectory", "Everything")):
        tamper(env, values)


TAMPERING["Everything"] = does_all


class Hostile(Faulty):
    """Misbehaves once in a step or a reset, or whenever it is closed.

    Args:
        misbehave: a function in :data:`FAILURES` or :data:`TAMPERING`, of the environment and the values to return.
        where: ``"step"``, ``"reset"``, ``"close"`` or ``"evaluation"``.
    """

    def __init__(self, misbehave, where):
        super().__init__()
        self.misbehave, self.where = misbehave, where
        self.resets, self.later, self.folder = 0, None, None
        self.on = os.environ.get("HOSTILE") != "off"
        self.evaluated_in = False

    def _maybe(self, here, values):
        if self.later is not None:
            self.later()
        changed = self.misbehave(self, values) if self.on and here else None
        return values if changed is None else changed

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        self.evaluated_in |= seed == SEED_OF_EVALUATIONS
        values = super().reset(seed=seed)
        return self._maybe(self.where == "reset" and self.resets == AT_RESET and not self.evaluated_in, values)

    def step(self, action):
        values = super().step(action)
        action[:] = np.nan  # the caller must not use its action afterwards
        here = self.where == "step" and not self.evaluated_in and self.life == AT_STEP
        return self._maybe(here or (self.where == "evaluation" and self.evaluated_in and self.life == 15), values)

    def close(self):
        self._maybe(self.where == "close", None)


gym.register("hostile/Well-v0", functools.partial(Hostile, None, "nowhere"))
for name, misbehave in (FAILURES | OF_STEPS | TAMPERING).items():
    for where in ("step", "reset", "close", "evaluation"):
        gym.register(f"hostile/{name}-{where}-v0", functools.partial(Hostile, misbehave, where))
