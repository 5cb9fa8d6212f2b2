"""Products whose columns fill no vector: the last vector is filled up, and a number's bits do not depend on that."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.compiler.compiled_update import CompiledUpdate

v1 = tf.compat.v1
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
COLUMNS = 2, 3, 6, 7, 12, 17, 23, 39, 47, 48  # vectors of 16 in panels of two, or of 8 or 4


def products(arrays, layout):
    """Return the products that one compiled update makes of the first array with each of the others."""
    with tf.Graph().as_default():
        fields = {f"x{index}": v1.placeholder(tf.float32, array.shape) for index, array in enumerate(arrays)}
        first, *others = fields.values()
        flips = dict(zip(("transpose_a", "transpose_b"), layout, strict=True))
        made = [tf.matmul(first, other, **flips) for other in others]
        total = tf.add_n([tf.reduce_sum(product) for product in made])
        update = CompiledUpdate([total], fields, [], 2, kept=made)
    return [product[0] for product in update.run(1, [array[None] for array in arrays])[1]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_column_has_the_same_bits_however_many_stand_beside_it(layout, rng):
    """Of 31 rows, several tiles: columns beyond the last would be the next row's."""
    one = rng.normal(size=(31, 19)).astype(np.float32)
    other = rng.normal(size=(19, COLUMNS[-1])).astype(np.float32)
    parts = [other[:, :columns] for columns in COLUMNS]
    turned = [one.T if layout[0] else one, *(part.T if layout[1] else part for part in parts)]
    *narrow, widest = products([np.ascontiguousarray(array) for array in turned], layout)
    np.testing.assert_allclose(widest, one.astype(np.float64) @ other, rtol=0, atol=1e-5)
    for product in narrow:
        np.testing.assert_array_equal(product, widest[:, : product.shape[1]])
