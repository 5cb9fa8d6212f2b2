"""Send plain values and arrays between two processes over pipes: msgpack, so that reading a message runs no code.

Plain values are ``None``, booleans, numbers, strings, tuples, lists and dicts of them, and NumPy's arrays and scalars
(a scalar and an array without axes arrive as a scalar).
"""

from typing import IO, Any

import msgspec
import numpy as np

_ARRAY, _TUPLE = 1, 2  # msgpack's own extension types
_LENGTH = 8  # bytes of a message's length, before it


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
        EOFError: if the stream ends before a message does, or what is there is no message.
    """
    length = stream.read(_LENGTH)
    data = stream.read(int.from_bytes(length, "little")) if len(length) == _LENGTH else b""
    try:
        return msgspec.msgpack.decode(data, ext_hook=_extended)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise EOFError(f"no message: {error}") from None


def _with_extensions(value: Any) -> Any:
    """Return ``value`` with the types that msgpack lacks as extensions."""
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
    array = np.frombuffer(numbers, dtype).reshape(shape)  # it makes no array of objects
    return array.copy() if shape else array[()]
