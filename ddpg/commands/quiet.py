"""Keeping TensorFlow's start-up notices off the terminal."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from ddpg.errors import UsageError


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Import TensorFlow without its notices; an exception of theirs shows what was held back.

    They are written by C++ straight to file descriptor 2, before any log level is read.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            import tensorflow as tf

            tf.get_logger().setLevel("ERROR")
            yield
        except UsageError:
            raise  # its line says all
        except BaseException:
            notices.seek(0)
            os.write(kept, notices.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
