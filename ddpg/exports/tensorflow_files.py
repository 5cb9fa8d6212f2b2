"""Convert errors of TensorFlow's file system to ``OSError``, which every other write raises."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

_ERRNO = {
    tf.errors.RESOURCE_EXHAUSTED: errno.ENOSPC,
    tf.errors.PERMISSION_DENIED: errno.EACCES,
    tf.errors.FAILED_PRECONDITION: errno.EROFS,
}


@contextlib.contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Convert an error that TensorFlow raises while the block writes ``path`` to an ``OSError`` that names ``path``.

    Raises:
        OSError: if the block raises a ``tf.errors.OpError``.
    """
    try:
        yield
    except tf.errors.OpError as error:
        number = _ERRNO.get(error.error_code, errno.EIO)
        raise OSError(number, os.strerror(number), str(path)) from error
