"""TensorBoard event files, in TensorFlow's own format (the tensorboard package is not needed)."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf

v1 = tf.compat.v1

_ERRNO = {
    tf.errors.RESOURCE_EXHAUSTED: errno.ENOSPC,
    tf.errors.PERMISSION_DENIED: errno.EACCES,
    tf.errors.FAILED_PRECONDITION: errno.EROFS,
}


class Events:
    """An event file of scalars. What is added is on its way to the disk after :meth:`flush`."""

    def __init__(self, run: Path, keep: Callable[[int, str], bool] | None):
        """Open a new file in ``run``; of those there, scalars stay for which ``keep(step, tag)`` holds, or all."""
        if keep is not None:
            for path in sorted(run.glob("events.out.tfevents.*")):
                _cut(path, keep)
        self._path = _free(run)
        with _named(self._path):
            self._writer = tf.io.TFRecordWriter(str(self._path))
            self._write(v1.Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._writer.flush()

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write scalars by tag."""
        values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._write(v1.Event(wall_time=time.time(), step=step, summary=v1.Summary(value=values)))

    def flush(self) -> None:
        """Hand what was added to the operating system."""
        with _named(self._path):
            self._writer.flush()

    def close(self) -> None:
        """Flush and close the file."""
        with _named(self._path):
            self._writer.close()

    def _write(self, event: tf.compat.v1.Event) -> None:
        with _named(self._path):
            self._writer.write(event.SerializeToString())


def _free(run: Path) -> Path:
    stem, number = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}", 0
    while (run / f"{stem}.{number}").exists():
        number += 1
    return run / f"{stem}.{number}"


def _cut(path: Path, keep: Callable[[int, str], bool]) -> None:
    """Rewrite an event file without the scalars that are not kept; aside, and renamed into place."""
    kept = [record for record in _records(path) if _is_kept(v1.Event.FromString(record), keep)]
    whole = sum(16 + len(record) for record in kept)  # a length, a record, and a checksum of each
    if path.stat().st_size == whole:
        return
    aside = path.with_name(f".{path.name}.ddpg-writing")
    try:
        with _named(aside), tf.io.TFRecordWriter(str(aside)) as writer:
            for record in kept:
                writer.write(record)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    os.replace(aside, path)


def _is_kept(event: tf.compat.v1.Event, keep: Callable[[int, str], bool]) -> bool:
    return all(keep(event.step, value.tag) for value in event.summary.value)


def _records(path: Path) -> list[bytes]:
    records: list[bytes] = []
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # it calls its only reader of one file deprecated
    try:
        records.extend(v1.io.tf_record_iterator(str(path)))
    except tf.errors.DataLossError:
        pass  # a kill cut the last one short
    finally:
        logger.setLevel(level)
    return records


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let a refusal of the disk be the ``OSError`` that it is."""
    try:
        yield
    except tf.errors.OpError as error:
        number = _ERRNO.get(error.error_code, errno.EIO)
        raise OSError(number, os.strerror(number), str(path)) from error
