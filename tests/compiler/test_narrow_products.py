"""Products with few columns: the last vector is padded, and the bits of a column do not depend on the other columns."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.compiler.compiled_update import CompiledUpdate

v1 = tf.compat.v1
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
COLUMNS = 2, 3, 6, 7, 12, 17, 23, 39, 47, 48  # for vectors of 16 in panels of two, and of 8 and 4


def products(arrays, layout):
    """Return the products of the first array with each of the others, computed by one compiled update."""
    with tf.Graph().as_default():
        fields = {f"x{index}": v1.placeholder(tf.float32, array.shape) for index, array in enumerate(arrays)}
        first, *others = fields.values()
        flips = dict(zip(("transpose_a", "transpose_b"), layout, strict=True))
        made = [tf.matmul(first, other, **flips) for other in others]
        total = tf.add_n([tf.reduce_sum(product) for product in made])
        update = CompiledUpdate([total], fields, [], 2, kept=made)
    return [product[0] for product in update.run(1, [array[None] for array in arrays])[1]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_columns_bits_do_not_depend_on_the_number_of_columns(layout, rng):
    """31 rows are several tiles; writing past the last column would overwrite the next row."""
    one = rng.normal(size=(31, 19)).astype(np.float32)
    other = rng.normal(size=(19, COLUMNS[-1])).astype(np.float32)
    parts = [other[:, :columns] for columns in COLUMNS]
    turned = [one.T if layout[0] else one, *(part.T if layout[1] else part for part in parts)]
    *narrow, widest = products([np.ascontiguousarray(array) for array in turned], layout)
    np.testing.assert_allclose(widest, one.astype(np.float64) @ other, rtol=0, atol=1e-5)
    for product in narrow:
        np.testing.assert_array_equal(product, widest[:, : product.shape[1]])
