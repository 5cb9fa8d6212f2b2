"""The convolution of NumPy programs is TensorFlow's, and portable programs add its products in order."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.policies.numpy_program import PortableProgram
from ddpg.policies.standalone import convolution

v1 = tf.compat.v1

# Images, filters, strides and whether zeros surround the images: odd sizes, a filter larger than an image, gaps
# between filters, one column.
GEOMETRIES = [
    ((3, 12, 11, 2), (3, 3, 2, 5), (2, 2, 1)),
    ((3, 12, 11, 2), (3, 4, 2, 5), (2, 1, 0)),
    ((2, 7, 7, 1), (8, 8, 1, 3), (4, 4, 1)),
    ((2, 5, 6, 3), (1, 1, 3, 4), (3, 2, 1)),
    ((1, 9, 8, 1), (2, 3, 1, 1), (5, 4, 0)),
    ((2, 6, 1, 2), (5, 1, 2, 3), (1, 1, 1)),
]


def drawn(shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def test_it_is_tensorflows():
    for images, filters, how in GEOMETRIES:
        with tf.Graph().as_default(), v1.Session() as session:
            padding = "SAME" if how[2] else "VALID"
            expected = session.run(tf.nn.conv2d(drawn(images), drawn(filters), how[:2], padding))
        found = convolution(drawn(images), drawn(filters), np.int32(how))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_by_hand():
    """Zeros follow the image below and on the right: its last row and column are multiplied by some filters only."""
    image, filters = np.arange(9.0).reshape(1, 3, 3, 1), np.array([1.0, 10, 100, 1000]).reshape(2, 2, 1, 1)
    expected = [[4310, 5421, 502], [7643, 8754, 805], [76, 87, 8]]
    np.testing.assert_array_equal(convolution(image, filters, (1, 1, 0))[0, :, :, 0], np.array(expected)[:2, :2])
    np.testing.assert_array_equal(convolution(image, filters, (1, 1, 1))[0, :, :, 0], expected)


@pytest.mark.parametrize("layout", ["F", "C"])
def test_the_layout_in_memory_does_not_matter(layout):
    images, filters, how = GEOMETRIES[0]
    found = convolution(np.asarray(drawn(images), order=layout), np.asarray(drawn(filters), order=layout), how)
    np.testing.assert_array_equal(found, convolution(drawn(images), drawn(filters), how))


def test_float64_stays_float64():
    images, filters, how = GEOMETRIES[0]
    found = convolution(drawn(images, np.float64), drawn(filters, np.float64), how)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, convolution(drawn(images), drawn(filters), how), atol=1e-5)


def test_a_portable_program_adds_the_products_of_a_filters_row_in_order():
    images, filters = drawn((1, 3, 3, 2)), drawn((2, 3, 2, 4))
    found = PortableProgram.operations["Conv2D"](images, filters, (1, 1, 0))
    for row, position in enumerate(found[0, :, 0]):
        total = np.float32(0)
        for below in range(2):
            part = np.zeros(4, np.float32)
            for seen, weights in zip(images[0, row + below].ravel(), filters[below].reshape(-1, 4), strict=True):
                part = part + seen * weights
            total = total + part
        assert position.tobytes() == total.tobytes()
