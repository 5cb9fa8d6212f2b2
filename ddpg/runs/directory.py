"""A run directory ``runs/<env>/<n>/``: what one training run leaves behind.

config.json           environment, seed, options, versions, command
metrics.csv           training, one row per logging interval
evaluations.csv       deterministic evaluations during training
events.out.tfevents.* the same for TensorBoard, under Stable-Baselines3's tags
checkpoints/<steps>/  the latest ones; checkpoints/best/
learning_curve.png
"""

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from ddpg.errors import UsageError
from ddpg.storage import atomic, place

v1 = tf.compat.v1

CONFIG = "config.json"


def create(root: str | Path, env_id: str) -> Path:
    """Make and return the next free ``root/env_id/<n>``; safe against another process doing the same."""
    parent = Path(root) / env_id
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(entry.name) for entry in parent.iterdir() if entry.name.isdigit()), default=0)
    while True:
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:
            number += 1


def check_root(root: str | Path) -> None:
    """Refuse a ``root`` where no run directory could be made, before anything is.

    Raises:
        UsageError: it, or the nearest directory above it that exists, is none or cannot be written to.
    """
    path = Path(root).absolute()
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not there.is_dir():
        raise UsageError(f"root={str(root)!r}: {str(there)!r} is not a directory; name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"root={str(root)!r}: {str(there)!r} is not yours to write to; name another one")


def write_config(run: Path, document: dict[str, Any]) -> None:
    """Write ``config.json``."""
    atomic.write_text(run / CONFIG, json.dumps(document, indent=2) + "\n")


def read_config(run: str | Path) -> dict[str, Any]:
    """Read ``config.json``.

    Raises:
        UsageError: ``run`` is not a run directory.
    """
    try:
        document = json.loads((Path(run) / CONFIG).read_text(encoding="utf-8"))
        document["env_id"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"{str(run)!r} is not a run directory: it has no readable {CONFIG}; give one such as runs/Pendulum-v1/1"
        ) from None
    return document


def checkpoints(run: str | Path) -> list[Path]:
    """Return the numbered checkpoints of a run, the oldest first."""
    folder = Path(run) / "checkpoints"
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if entry.name.isdigit() and (entry / place.MANIFEST).exists()]
    return sorted(found, key=lambda entry: int(entry.name))


class Table:
    """A CSV file that grows by rows and is readable after every one of them."""

    def __init__(self, path: Path, columns: list[str], keep_until: int | None = None):
        """Open ``path``; rows already there stay up to ``keep_until`` timesteps (``None``: none stays)."""
        kept = [] if keep_until is None else [row for row in read_table(path) if int(row["timesteps"]) <= keep_until]
        text = io.StringIO(newline="")
        _writer(text, columns).writeheader()
        _writer(text, columns).writerows(kept)
        atomic.write_text(path, text.getvalue())
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = _writer(self._file, columns)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._writer.writerow({name: _cell(value) for name, value in row.items()})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _writer(file: Any, columns: list[str]) -> csv.DictWriter:
    return csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")


def _cell(value: Any) -> Any:
    # Of a whole float no digit is lost: a resumed run computes with what it reads.
    return repr(float(value)) if isinstance(value, float) else value


def read_table(path: Path) -> list[dict[str, str]]:
    """Return a CSV file's rows; none where it does not exist. A last row that a kill cut short is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.DictReader(io.StringIO(whole)) if None not in row and None not in row.values()]


class Events:
    """A TensorBoard event file, written by TensorFlow itself (the tensorboard package is not needed)."""

    def __init__(self, run: Path, keep_until: int | None = None):
        """Open a file in ``run``; of those there, events stay up to step ``keep_until`` (``None``: all stay)."""
        if keep_until is not None:
            _cut_events(run, keep_until)
        with tf.Graph().as_default():  # the v1 writer refuses to start in eager mode
            self._writer = v1.summary.FileWriter(str(run))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write scalars by tag."""
        values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.add_summary(v1.Summary(value=values), step)

    def flush(self) -> None:
        """Let what was added be on the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()


def _cut_events(run: Path, keep_until: int) -> None:
    """Rewrite the event files without what comes after ``keep_until``; aside, and renamed into place."""
    for path in sorted(run.glob("events.out.tfevents.*")):
        aside = path.with_name(f".{path.name}.ddpg-writing")
        with tf.io.TFRecordWriter(str(aside)) as writer:
            for record in _records(path):
                if v1.Event.FromString(record).step <= keep_until:
                    writer.write(record)
        os.replace(aside, path)


def _records(path: Path) -> Iterator[bytes]:
    try:
        yield from v1.io.tf_record_iterator(str(path))
    except tf.errors.DataLossError:
        return  # a kill cut the last one short
