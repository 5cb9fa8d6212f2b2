"""Hold back TensorFlow's start-up notices, in terminals and notebooks."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_NOTICE = re.compile(rb"WARNING: All log messages before absl|[IWE]\d{4} |To enable the following instructions")


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hold back the notices of what is imported inside; everything else on stderr is shown in the end.

    ``TF_CPP_MIN_LOG_LEVEL``, 3 unless it is set, silences most of them, and later ones too. Those that are written at
    TensorFlow's import go to file descriptor 2 before any level is read. An exception that is no bad input shows them
    all: they may say why.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        kept = os.dup(2)
    except OSError:  # a process without a stderr
        yield
        return
    sys.stderr.flush()
    whole = False
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except ValueError:
            raise  # the line of a UsageError says all
        except BaseException:
            whole = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            held.seek(0)
            shown = [line for line in held if whole or not _NOTICE.match(line)]
            if shown:
                os.write(kept, b"".join(shown))
            os.close(kept)


def load_tensorflow() -> None:
    """Import TensorFlow without its notices, unless somebody has."""
    if "tensorflow" not in sys.modules:
        with quiet_tensorflow():
            import tensorflow as tf

            tf.get_logger().setLevel("ERROR")
