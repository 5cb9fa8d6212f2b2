"""Draw an environment in a child process that never imports TensorFlow.

Without a GPU, MuJoCo draws with Mesa, whose LLVM and TensorFlow's in one process end it with a segmentation fault. The
child makes the environment, steps it and draws it; this process answers with the policy's actions and takes the frames.
Both ends are of this package and talk by pickles over the child's stdin and stdout; what the environment prints goes to
stderr.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from typing import Any, BinaryIO

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction import env_calls
from ddpg.interaction.env_errors import format_error
from ddpg.runs.rendering import DrawnEnv, rendering_env

# Not multiprocessing: its children run the user's own script again, which may import TensorFlow, or train.
_START = """\
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from ddpg.runs.drawing_process import serve
serve()
"""


class DrawingProcess:
    """A child process that makes, steps and draws an environment; a context, whose end ends the process.

    Attributes:
        spaces: the environment's observation and action space.
        rate: frames a second.

    Args:
        env_id, wrappers: as for :func:`~ddpg.runs.env_factory.make_env`.

    Raises:
        UsageError: as :func:`~ddpg.runs.rendering.rendering_env`; raised when the context is entered, as the next is.
        EnvironmentFault: as there, and if the process crashed.
    """

    spaces: tuple[gym.Space, gym.Space]
    rate: float

    def __init__(self, env_id: str, wrappers: Sequence[str] = ()):
        self._env_id, self._wrappers = env_id, tuple(wrappers)
        self._drawing = False

    def __enter__(self) -> "DrawingProcess":
        variables = {"SDL_VIDEODRIVER": "dummy", **os.environ}  # or pygame looks for a screen, and complains
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
        )
        try:
            self._send(sys.path)
            self._send((self._env_id, self._wrappers, _registration(self._env_id)))
            _, self.spaces, self.rate = self._receive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, *rest: Any) -> None:
        try:
            if kind is None and not self._drawing:  # nobody waits for what is left of a video
                self._send(None)  # no more episodes: close the environment
                self._receive()
        finally:
            self._end()

    def frames(self, policy: Any, episodes: int, seed: int | None) -> Generator[np.ndarray, None, None]:
        """Yield the frames of whole episodes, uint8 ``[H, W, 3]``; arguments as for :func:`ddpg.record`.

        Raises:
            UsageError, EnvironmentFault: as :func:`ddpg.record`.
        """
        self._send((episodes, seed))
        self._drawing = True
        while True:
            what, *value = self._receive()
            if what == "frame":
                yield value[0]
            elif what == "observation":
                self._send(policy.predict(value[0], deterministic=True)[0])
            else:
                self._drawing = False
                return

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process is gone: what is received next says so
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            message = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise self._crashed() from None
        if isinstance(message, UsageError):
            raise message
        return message

    def _crashed(self) -> EnvironmentFault:
        status = self._process.wait()
        how = f"exit status {status}" if status >= 0 else _signal_name(-status)
        return EnvironmentFault(
            f"the process that draws environment {brief(self._env_id)} ended with {how}; its messages on stderr may "
            "say why; if the graphics library crashed, another may work: MUJOCO_GL=egl, osmesa or glfw for MuJoCo"
        )

    def _end(self) -> None:
        process = self._process
        process.kill()  # it may hang in compiled code; whoever wanted its environment closed has waited for that
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        process.wait()


def can_be_drawn_elsewhere(env_id: str) -> bool:
    """Return whether another process can make this environment: not where this program's script has its class."""
    spec = _registered(env_id)
    if spec is None:
        return True
    try:
        return b"__main__" not in pickle.dumps(spec)
    except Exception:  # a lambda, or a keyword argument that cannot be sent
        return False


def _registered(env_id: str) -> gym.envs.registration.EnvSpec | None:
    return gym.registry.get(env_id.rpartition(":")[2])


def _registration(env_id: str) -> bytes | None:
    """Return how the environment was registered: perhaps by a module that its id does not name."""
    spec = _registered(env_id)
    return None if spec is None else pickle.dumps(spec)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def serve() -> None:
    """Make the environment, and draw episodes, until there are no more; the main function of the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the parent ends this one
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _draw(requests, answers)
    except UsageError as error:
        _answer(answers, error)
    except KeyboardInterrupt as error:  # SIGINT is ignored: the environment raised it
        _answer(answers, EnvironmentFault(f"the environment raised {format_error(error)}"))


def _draw(requests: BinaryIO, answers: BinaryIO) -> None:
    env_id, wrappers, registration = pickle.load(requests)
    with env_calls.own_directory():
        if registration is not None:
            _register(registration)
        with env_calls.closing(rendering_env(env_id, wrappers)) as env:
            drawn = DrawnEnv(env)
            _answer(answers, ("ready", (env.observation_space, env.action_space), drawn.rate))
            while (wanted := pickle.load(requests)) is not None:
                for frame in drawn.frames(_Remote(requests, answers), *wanted):
                    _answer(answers, ("frame", frame))
                _answer(answers, ("drawn",))
    _answer(answers, ("closed",))


def _register(registration: bytes) -> None:
    try:
        spec = pickle.loads(registration)
    except Exception:  # its class cannot be imported here; the id's own module may register it
        return
    gym.registry.setdefault(spec.id, spec)


class _Remote:
    """The parent's policy."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO):
        self._requests, self._answers = requests, answers

    def predict(self, observation: Any, deterministic: bool) -> tuple[Any, None]:
        """Return the parent's action."""
        _answer(self._answers, ("observation", observation))
        return pickle.load(self._requests), None


def _answer(answers: BinaryIO, message: Any) -> None:
    pickle.dump(message, answers)
    answers.flush()
