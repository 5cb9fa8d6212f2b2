"""Suppress the notices and warnings that TensorFlow and TFLite print in terminals and notebooks."""

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_NOTICE = re.compile(
    rb"WARNING: All log messages before absl|[IWE]\d{4} |To enable the following instructions"
    rb"|INFO: Created TensorFlow Lite "
)


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Suppress TensorFlow's notices inside the block; everything else on stderr is shown when it ends.

    ``TF_CPP_MIN_LOG_LEVEL`` (set to 3 if unset) silences most of them, later ones too. Those printed during the import
    go to file descriptor 2 before TensorFlow reads the level. If the block raises anything but a ``ValueError``, the
    notices are shown as well, since they may explain it.
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
            raise  # such as a UsageError, whose message needs no explanation
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


def quiet_import() -> contextlib.AbstractContextManager:
    """Return a context for importing a module that may import TensorFlow: its notices are suppressed if it is first."""
    return contextlib.nullcontext() if "tensorflow" in sys.modules else quiet_tensorflow()


def load_tensorflow() -> None:
    """Import TensorFlow without its notices, unless it is imported already."""
    if "tensorflow" not in sys.modules:
        with quiet_tensorflow(), _keras_later():
            importlib.import_module("tensorflow").get_logger().setLevel("ERROR")


@contextlib.contextmanager
def no_tensorflow_warnings() -> Iterator[None]:
    """Suppress TensorFlow's warnings inside the block, where deprecated functions without a replacement are called."""
    logger = sys.modules["tensorflow"].get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _keras_later() -> Iterator[None]:
    """Keep TensorFlow from importing Keras inside the block, a quarter of its time; first use imports it later."""
    if "keras" in sys.modules:
        yield
        return
    sys.modules["keras.src"] = None  # type: ignore[assignment]  # importing it fails as if it were missing
    try:
        yield
    finally:
        sys.modules.pop("keras.src")
