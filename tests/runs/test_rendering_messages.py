"""Messages of the rendering process: values arrive unchanged, and no message can run code."""

import io
import pickle

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ddpg.runs.rendering_process import receive, send

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda parts: st.lists(parts) | st.lists(parts).map(tuple) | st.dictionaries(st.text(), parts),
    max_leaves=8,
)
ARRAYS = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.bool_]),
    arrays.array_shapes(min_dims=1, min_side=0, max_side=3),
)


def sent_and_received(message):
    stream = io.BytesIO()
    send(stream, message)
    stream.seek(0)
    return receive(stream)


@given(PLAIN)
def test_plain_values_arrive_unchanged(value):
    assert sent_and_received(value) == value
    assert type(sent_and_received(value)) is type(value)


@given(ARRAYS)
def test_arrays_arrive_with_their_shape_and_type(array):
    found = sent_and_received(("frame", array))[1]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    found[...] = 0  # writable


def test_actions_of_every_space_arrive():
    parameterised = (np.int64(1), (np.float32([0.5]), np.zeros((0,), np.float32)))
    found = sent_and_received(parameterised)
    assert isinstance(found, tuple)
    assert isinstance(found[1], tuple)
    assert found[0] == 1
    assert isinstance(found[0], np.int64)
    np.testing.assert_array_equal(found[1][0], [0.5])
    assert found[1][1].shape == (0,)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, np.array([object()]), np.array(["text"]), 1j],
    ids=["object", "set", "objects", "texts", "complex"],
)
def test_other_types_are_refused(value):
    stream = io.BytesIO()
    with pytest.raises(TypeError):
        send(stream, [value])
    assert stream.getvalue() == b""


def framed(data):
    return io.BytesIO(len(data).to_bytes(8, "little") + data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps(print),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["|O", [1], b"\0" * 8]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["<f4", [3], b"\0" * 8]))),
    ],
    ids=["empty", "pickle", "extension", "objects", "short"],
)
def test_malformed_messages(data):
    with pytest.raises(EOFError):
        receive(framed(data))


def test_truncated_messages():
    complete = io.BytesIO()
    send(complete, [1, 2, 3])
    for length in range(len(complete.getvalue())):
        with pytest.raises(EOFError):
            receive(io.BytesIO(complete.getvalue()[:length]))
