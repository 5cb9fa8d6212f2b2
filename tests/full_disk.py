"""A limit on the size of files, which stands in for a full disk."""

import contextlib
import signal

import pytest


@contextlib.contextmanager
def files_no_larger_than(size):
    """Let writing beyond ``size`` bytes of a file fail with EFBIG; on a full disk the error would be ENOSPC."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
