"""Invalid values for any argument; a call must return a result, or raise a one-line error that names the problem."""

import contextlib
import itertools
import resource
import signal

import numpy as np

from ddpg.errors import UsageError

MEGABYTES = 200  # the most that accepting or refusing a value may use


def _contains_itself():
    values = [0.0]
    values.append(values)
    return values


VALUES = {
    "none": lambda: None,
    "true": lambda: True,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "half": lambda: 1.5,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "31 bits": lambda: 2**31,
    "63 bits": lambda: 2**63,
    "64 bits below": lambda: -(2**63) - 1,
    "thousands of digits": lambda: 10**5000,
    "float64 beyond float32": lambda: 1e300,
    "complex": lambda: 1 + 2j,
    "text": lambda: "3",
    "empty text": lambda: "",
    "text with a null": lambda: "a\0b",
    "much text": lambda: "x" * 100_000,
    "bytes": lambda: b"abc",
    "empty list": lambda: [],
    "list within itself": _contains_itself,
    "ragged list": lambda: [[1.0, 2.0], [3.0]],
    "set": lambda: {1, 2, 3},
    "dict": lambda: {"a": 1},
    "endless": itertools.count,
    "object": object,
    "class": lambda: int,
    "masked array": lambda: np.ma.masked_array(np.zeros(3), [False, True, False]),
    "masked": lambda: np.ma.masked,
    "array of objects": lambda: np.array([None, object(), "x"], dtype=object),
    "array of text": lambda: np.array(["a", "b", "c"]),
    "four axes": lambda: np.zeros((2, 2, 2, 2)),
    "no axis": lambda: np.array(1.5),
    "empty array": lambda: np.zeros((0, 3)),
    "nan in an array": lambda: np.array([0.0, np.nan, 0.0]),
    "dates": lambda: np.zeros(3, "datetime64[s]"),
    "64-bit array": lambda: np.array([2**62, 0, 0]),
    "400 MB": lambda: np.zeros((50_000_000, 1)),  # of virtual memory until it is read
}


@contextlib.contextmanager
def within_bounds():
    """Fail if the block hangs or uses much memory."""

    def hung(number, frame):
        raise AssertionError("hung")

    before, handler = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, signal.signal(signal.SIGALRM, hung)
    signal.alarm(60)  # a call takes milliseconds, but a machine may be busy
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES


def outcome(call):
    """Call, and return what is wrong with the error that was raised, or ``None``."""
    with within_bounds():
        try:
            call()
        except UsageError as error:
            text = str(error)
            return None if text and len(text) < 2000 and "\n" not in text else f"said {text[:300]!r}"
        except AssertionError:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
    return None
