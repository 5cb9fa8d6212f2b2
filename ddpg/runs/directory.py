"""A run directory ``runs/<env>/<n>/``: what one training run leaves behind.

config.json           environment, seed, options, versions, command
metrics.csv           training, one row per logging interval
evaluations.csv       deterministic evaluations during training
events.out.tfevents.* the same for TensorBoard, under Stable-Baselines3's tags
checkpoints/<steps>/  the latest ones; checkpoints/best/
learning_curve.png
"""

import csv
import json
from pathlib import Path
from typing import Any

import tensorflow as tf

from ddpg.errors import UsageError

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


def write_config(run: Path, document: dict[str, Any]) -> None:
    """Write ``config.json``."""
    (run / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


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


class Table:
    """A CSV file that grows by rows and is readable after every one of them."""

    def __init__(self, path: Path, columns: list[str], keep_until: int | None = None):
        """Open ``path``; rows already there stay up to ``keep_until`` timesteps (``None``: none stays)."""
        kept = []
        if keep_until is not None and path.exists():
            kept = [row for row in read_table(path) if float(row["timesteps"]) <= keep_until]
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, columns, restval="", extrasaction="ignore")
        self._writer.writeheader()
        self._writer.writerows(kept)
        self._file.flush()

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        )
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_table(path: Path) -> list[dict[str, str]]:
    """Return a CSV file's rows; none where it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Events:
    """A TensorBoard event file, written by TensorFlow itself (the tensorboard package is not needed)."""

    def __init__(self, run: Path):
        with tf.Graph().as_default():  # the v1 writer refuses to start in eager mode
            self._writer = v1.summary.FileWriter(str(run))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write scalars by tag."""
        values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._writer.add_summary(v1.Summary(value=values), step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
