"""An empty program, and compiled products; and compilation for another processor, if ``DDPG_TEST_PROCESSOR`` names one.

See tests/compiler/test_other_processors.py.
"""

import os

import pytest
import tensorflow as tf

from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.ir import Program

if processor := os.environ.get("DDPG_TEST_PROCESSOR"):
    import other_processors

    other_processors.become(processor)

    def pytest_terminal_summary(terminalreporter) -> None:
        """Print how many kernels were compiled, so that the caller can check that some were."""
        terminalreporter.write_line(f"kernels made for {processor}: {len(other_processors.used)}")


@pytest.fixture
def program():
    return Program()


@pytest.fixture
def compiled_products():
    """A function that returns the products of pairs of arrays, computed by one compiled update.

    ``layout``: whether the first and the second array of each pair are transposed.
    """

    def products(pairs, layout=(False, False), workers=1, precision="float32"):
        with tf.Graph().as_default():
            arrays = [array for pair in pairs for array in pair]
            given = [tf.compat.v1.placeholder(tf.float32, array.shape) for array in arrays]
            transpose_a, transpose_b = layout
            made = [tf.matmul(*pair, transpose_a, transpose_b) for pair in zip(given[::2], given[1::2], strict=True)]
            total = tf.add_n([tf.reduce_sum(product) for product in made])
            fields = {f"x{index}": field for index, field in enumerate(given)}
            update = CompiledUpdate([total], fields, [], workers, kept=made, precision=precision)
        return [product[0] for product in update.run(1, [array[None] for array in arrays])[1]]

    return products
