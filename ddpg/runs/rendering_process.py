"""Render the episodes of a policy in a child process that never imports TensorFlow.

Without a GPU, MuJoCo renders with Mesa. Mesa and TensorFlow each contain a copy of LLVM, and a process with both ends
with a segmentation fault. So a child process makes, steps and renders the environment; this process runs the policy,
sends its actions, and receives the frames.

The two exchange msgpack messages over the child's stdin and stdout, because reading msgpack runs no code; the
environment's own output goes to stderr. A message holds plain values: ``None``, booleans, numbers, strings, NumPy
arrays and scalars, and tuples, lists and dicts of them. A NumPy array without axes arrives as a scalar.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import IO, Any

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec

from ddpg.checkpoints.space_json import describe_space, restore_space
from ddpg.errors import EnvironmentFault, UsageError, brief, format_error
from ddpg.interaction import env_calls
from ddpg.progress import warnings_in_one_line
from ddpg.runs.env_source import EnvSource
from ddpg.runs.rendering import EnvRenderer, rendering_env

_ERRORS = {kind.__name__: kind for kind in (UsageError, EnvironmentFault)}
_ARRAY, _TUPLE = 1, 2  # our msgpack extension types
_LENGTH = 8  # bytes before each message that hold its length


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message.

    Raises:
        TypeError: if it holds anything but plain values and arrays of numbers.
        OSError: if the other end is gone.
    """
    data = msgspec.msgpack.encode(_with_extensions(message))
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message.

    Raises:
        EOFError: if the stream ends before the message does, or the bytes are not a message.
    """
    length = stream.read(_LENGTH)
    data = stream.read(int.from_bytes(length, "little")) if len(length) == _LENGTH else b""
    try:
        return msgspec.msgpack.decode(data, ext_hook=_extended)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise EOFError(f"no message: {error}") from None


def _with_extensions(value: Any) -> Any:
    """Return ``value`` with the types that msgpack lacks encoded as extensions."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of dtype {array.dtype}; expected numbers or booleans")
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode([array.dtype.str, array.shape, array.tobytes()]))
    if isinstance(value, tuple):
        return msgspec.msgpack.Ext(_TUPLE, msgspec.msgpack.encode([_with_extensions(part) for part in value]))
    if isinstance(value, list):
        return [_with_extensions(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _with_extensions(part) for name, part in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a {type(value).__name__}; expected plain values and arrays")


def _extended(kind: int, data: memoryview) -> Any:
    if kind == _TUPLE:
        return tuple(msgspec.msgpack.decode(data, ext_hook=_extended))
    if kind != _ARRAY:
        raise ValueError(f"extension {kind}")
    dtype, shape, numbers = msgspec.msgpack.decode(data)
    array = np.frombuffer(numbers, dtype).reshape(shape)  # frombuffer refuses dtype object, which could run code
    return array.copy() if shape else array[()]


# multiprocessing would run the user's script again in the child, and that script may import TensorFlow or train.
_START = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from ddpg.runs.rendering_process import serve
serve()
"""


class RenderingProcess:
    """A child process that makes, steps and renders an environment; a context manager that ends the process on exit.

    Attributes:
        rate: frames per second.

    Args:
        source: as for :func:`~ddpg.runs.env_factory.make_env`.

    Raises:
        UsageError, EnvironmentFault: as :func:`rendering_env`, or if the process crashed; on entering the context.
    """

    rate: float

    def __init__(self, source: EnvSource | str):
        self._source = EnvSource.of(source)
        self._env_id = self._source.env_id
        self._rendering = False

    def __enter__(self) -> "RenderingProcess":
        variables = {"SDL_VIDEODRIVER": "dummy", **os.environ}  # without it pygame fails where there is no screen
        # MuJoCo reads "" as if it were not set, and "EGL" as "egl"; gymnasium would refuse both.
        if library := variables.pop("MUJOCO_GL", "").strip().lower():
            variables["MUJOCO_GL"] = library
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        with env_calls.terminal_signals_blocked():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
        try:
            self._send((*self._source, _registration(self._env_id)))
            _, self._spaces, self.rate = self._receive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind, *rest: Any) -> None:
        try:
            if kind is None and not self._rendering:  # in the middle of an episode the process is killed instead
                self._send(None)  # no more episodes: close the environment
                self._receive()
        finally:
            self._end()

    @property
    def spaces(self) -> tuple[gym.Space, gym.Space]:
        """The environment's observation and action space.

        Raises:
            UsageError: if no agent can act in such spaces.
        """
        found: list[gym.Space] = []
        for place, what in enumerate(("observation", "action")):
            if isinstance(space := self._space(place), str):
                raise UsageError(
                    f"the {what} space of environment {brief(self._env_id)} is {brief(space, quotes=False)}, for which "
                    "there is no saved policy; give the environment that the policy was trained in"
                )
            found.append(space)
        return found[0], found[1]

    @property
    def action_space(self) -> gym.Space | str:
        """The environment's action space; of a kind in which no agent can act, its text."""
        return self._space(1)

    def _space(self, place: int) -> gym.Space | str:
        described = json.loads(self._spaces[place])
        return described if isinstance(described, str) else restore_space(described, f"a space of {self._env_id}")

    def frames(self, policy: Any, episodes: int, seed: int | None) -> Generator[np.ndarray, None, None]:
        """Yield the frames of whole episodes, uint8 ``[H, W, 3]``; arguments as for :func:`ddpg.record`.

        Raises:
            UsageError, EnvironmentFault: as :func:`ddpg.record`.
        """
        self._send((episodes, seed))
        self._rendering = True
        while True:
            what, *value = self._receive()
            if what == "frame":
                yield value[0]
            elif what == "observation":
                action = policy.predict(value[0], deterministic=True)[0]
                try:
                    self._send(action)
                except TypeError as error:
                    raise UsageError(f"the action of policy={brief(policy)} is {error}") from None
            else:
                self._rendering = False
                return

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process is gone, which the next _receive reports
            send(self._process.stdin, message)

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            what, *values = receive(self._process.stdout)
        except EOFError:
            raise self._crashed() from None
        if what in _ERRORS:
            raise _ERRORS[what](*values)
        return what, *values

    def _crashed(self) -> EnvironmentFault:
        status = self._process.wait()
        how = f"exit status {status}"
        if status < 0:  # a signal, which may have no name
            how = next((number.name for number in signal.Signals if number == -status), f"signal {-status}")
        return EnvironmentFault(
            f"the process that draws environment {brief(self._env_id)} ended with {how}; its messages on stderr may "
            "say why; if the graphics library crashed, another may work: MUJOCO_GL=egl, osmesa or glfw for MuJoCo"
        )

    def _end(self) -> None:
        process = self._process
        process.kill()  # it may hang in compiled code; __exit__ has waited where the environment had to be closed
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        process.wait()


Renderer = EnvRenderer | RenderingProcess


@contextlib.contextmanager
def open_renderer(source: EnvSource | str) -> Iterator[Renderer]:
    """Yield a renderer in a child process, or in this process if the environment's class is in the user's script.

    Raises:
        UsageError, EnvironmentFault: as :func:`rendering_env`.
    """
    source = EnvSource.of(source)
    if can_render_in_child(source.env_id):
        with RenderingProcess(source) as renderer:
            yield renderer
        return
    with env_calls.closing(rendering_env(source)) as env:
        yield EnvRenderer(env)


def can_render_in_child(env_id: str) -> bool:
    """Return whether another process can make this environment: not if its class is defined in the user's script."""
    if _registered(env_id) is None:  # the child will import the module in the id, which registers it
        return True
    registration = _registration(env_id)
    return registration is not None and '"__main__' not in registration


def _registered(env_id: str) -> EnvSpec | None:
    return gym.registry.get(env_id.rpartition(":")[2])


def _registration(env_id: str) -> str | None:
    """Return the environment's registration as JSON, so that the child can register it, too.

    The child cannot rely on imports for that: a module that the id does not name may have registered it. ``None`` if it
    is not registered, or JSON cannot hold the registration: its class is a lambda, or a keyword argument is not a plain
    value.
    """
    spec = _registered(env_id)
    if spec is None:
        return None
    entry_point, vector_entry_point = _name_of(spec.entry_point), _name_of(spec.vector_entry_point)
    if spec.entry_point is not None and entry_point is None:
        return None
    try:
        return dataclasses.replace(spec, entry_point=entry_point, vector_entry_point=vector_entry_point).to_json()
    except Exception:  # copying or encoding a keyword argument can raise anything
        return None


def _name_of(entry_point: Any) -> str | None:
    """Return ``module:name`` of a class or function, or ``None`` if it cannot be imported under that name."""
    if entry_point is None or isinstance(entry_point, str):
        return entry_point
    module, name = getattr(entry_point, "__module__", None), getattr(entry_point, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None) if module else None
    return f"{module}:{name}" if found is entry_point else None


def serve() -> None:
    """Make the environment and render episodes until the parent asks for no more; the child's main function."""
    env_calls.ignore_terminal_signals()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with warnings_in_one_line():
            _serve_episodes(requests, answers)
    except UsageError as error:
        kind = EnvironmentFault if isinstance(error, EnvironmentFault) else UsageError
        send(answers, (kind.__name__, str(error)))
    except (EOFError, BrokenPipeError):  # the parent is gone
        return
    except KeyboardInterrupt as error:  # SIGINT is ignored, so the environment itself raised it
        send(answers, (EnvironmentFault.__name__, f"the environment raised {format_error(error)}"))


def _serve_episodes(requests: IO[bytes], answers: IO[bytes]) -> None:
    *source, registration = receive(requests)
    with env_calls.own_directory():
        if registration is not None:
            _register(registration)
        with env_calls.closing(rendering_env(EnvSource(*source))) as env:
            renderer = EnvRenderer(env)
            spaces = [_described(space) for space in renderer.spaces]
            send(answers, ("ready", spaces, float(renderer.rate)))
            while (wanted := receive(requests)) is not None:
                for frame in renderer.frames(_Remote(requests, answers), *wanted):
                    send(answers, ("frame", frame))
                send(answers, ("done",))
    send(answers, ("closed",))


def _described(space: gym.Space) -> str:
    """Return a space as JSON; for one that :func:`describe_space` does not support, its text."""
    try:
        return json.dumps(describe_space(space))
    except UsageError:
        return json.dumps(str(space))


def _register(registration: str) -> None:
    """Register the environment as in the parent, unless importing its module has registered it already."""
    spec = EnvSpec.from_json(registration)
    if isinstance(spec.entry_point, str):
        with contextlib.suppress(Exception):  # rendering_env imports it again and reports the error
            importlib.import_module(spec.entry_point.partition(":")[0])
    gym.registry.setdefault(spec.id, spec)


class _Remote:
    """The parent's policy, as the child sees it."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]):
        self._requests, self._answers = requests, answers

    def predict(self, observation: Any, deterministic: bool) -> tuple[Any, None]:
        """Return the parent's action."""
        try:
            send(self._answers, ("observation", observation))
        except TypeError as error:
            raise EnvironmentFault(f"an observation of the environment is {error}") from None
        return receive(self._requests), None
