"""Write training metrics, episodes, evaluations and diagnostics to CSV tables, TensorBoard files and trackers."""

import abc
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ddpg.agents.diagnostics import Diagnostics, diagnostic_columns
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.checkpoints import atomic_write
from ddpg.errors import UsageError, brief, format_error
from ddpg.exports.tensorflow_files import os_errors
from ddpg.interaction.env_runner import Episode
from ddpg.progress import print_to_stderr
from ddpg.quiet import no_tensorflow_warnings
from ddpg.runs import run_directory
from ddpg.runs.tables import CSVTable
from ddpg.runs.trackers import as_tracker

v1 = tf.compat.v1


_EVALUATION_COLUMNS = [
    *("episodes", "mean_return", "std_return", "ci95_low", "ci95_high", "min_return", "max_return"),
    *("mean_length", "clipped_actions", "success_rate"),
]
_EVALUATION_TAGS = {
    "mean_return": "eval/mean_reward",
    "mean_length": "eval/mean_ep_length",
    "clipped_actions": "eval/clipped_actions",
    "success_rate": "eval/success_rate",
}


class LogWriter(abc.ABC):
    """Receives metrics, episodes and evaluations during training, each with its environment step."""

    @abc.abstractmethod
    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row of :class:`ddpg.runs.run_state.MetricsTracker`."""

    def add_episode(self, step: int, episode: Episode) -> None:
        """Write a finished episode."""

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the summary of an evaluation."""

    def flush(self) -> None:
        """Write buffered rows to the files."""

    def close(self) -> None:
        """Close the files."""


def table_columns(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns of each table; the keys of ``tags`` are the names of the training metrics."""
    return {
        "metrics": ["timesteps", "seconds", "compile_seconds", *tags],
        "episodes": ["timesteps", "return", "length"],
        "evaluations": ["timesteps", *_EVALUATION_COLUMNS],
    }


class CSVLogWriter(LogWriter):
    """Writes ``metrics.csv``, ``episodes.csv`` and ``evaluations.csv``, which are readable after every row.

    Args:
        folder, tags: where to write, and the tag of each training metric (:func:`ddpg.runs.run_state.tags_of`).
        keep_until: for each of the three, the step up to which existing rows are kept.
    """

    def __init__(self, folder: Path, tags: Mapping[str, str], keep_until: Mapping[str, int]):
        with contextlib.ExitStack() as opened:
            self._tables = {
                name: opened.enter_context(
                    contextlib.closing(CSVTable(folder / f"{name}.csv", columns, keep_until[name]))
                )
                for name, columns in table_columns(tags).items()
            }
            self._files = opened.pop_all()

    def digests(self) -> bytes:
        """Return the SHA-256 of each table's rows, concatenated."""
        return b"".join(table.digest() for table in self._tables.values())

    def changed_since(self, digests: bytes) -> list[Path]:
        """Return the tables whose rows no longer have these digests; none if ``digests`` is empty."""
        now, size = self.digests(), len(self.digests()) // len(self._tables)
        parts = zip(self._tables.values(), range(0, len(digests), size), strict=False)
        return [table.path for table, at in parts if digests[at : at + size] != now[at : at + size]]

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row of training metrics."""
        self._tables["metrics"].add({"timesteps": step, **row})

    def add_episode(self, step: int, episode: Episode) -> None:
        """Write a finished episode."""
        self._tables["episodes"].add({"timesteps": step, "return": episode.episode_return, "length": episode.length})

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the summary of an evaluation."""
        self._tables["evaluations"].add({"timesteps": step, **summary})

    def close(self) -> None:
        """Close the files."""
        self._files.close()


class TaggedLogWriter(LogWriter):
    """Passes metrics on under Stable-Baselines3's ``tags``; a metric without a tag is not logged."""

    def __init__(self, tags: Mapping[str, str]):
        self._tags = tags

    @abc.abstractmethod
    def _write(self, step: int, scalars: dict[str, float]) -> None:
        """Write the numbers of a step, by tag."""

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row of training metrics."""
        self._write(step, {self._tags[name]: value for name, value in row.items() if name in self._tags})

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the summary of an evaluation."""
        self._write(step, {tag: summary[name] for name, tag in _EVALUATION_TAGS.items() if name in summary})


class TensorBoardLogWriter(TaggedLogWriter):
    """Writes a TensorBoard event file of scalars.

    Args:
        folder, tags: as for :class:`CSVLogWriter`.
        keep: ``keep(step, tag)`` says which scalars of existing event files to keep; ``None``: those files are not
            touched.
    """

    def __init__(self, folder: Path, tags: Mapping[str, str], keep: Callable[[int, str], bool] | None):
        super().__init__(tags)
        if keep is not None:
            for path in sorted(folder.glob("events.out.tfevents.*")):
                _cut(path, keep)
        self._path = _free(folder)
        with os_errors(self._path):
            self._file = tf.io.TFRecordWriter(str(self._path))
            self._add_event(v1.Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._file.flush()

    def flush(self) -> None:
        """Write buffered scalars to the file."""
        with os_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        with os_errors(self._path):
            self._file.close()

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add_event(v1.Event(wall_time=time.time(), step=step, summary=v1.Summary(value=values)))

    def _add_event(self, event: tf.compat.v1.Event) -> None:
        with os_errors(self._path):
            self._file.write(event.SerializeToString())


def _free(run: Path) -> Path:
    stem, number = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}", 0
    while (run / f"{stem}.{number}").exists():
        number += 1
    return run / f"{stem}.{number}"


def _cut(path: Path, keep: Callable[[int, str], bool]) -> None:
    """Rewrite an event file without the dropped scalars."""
    kept = [record for record in _records(path) if _is_kept(v1.Event.FromString(record), keep)]
    whole = sum(16 + len(record) for record in kept)  # 8 bytes length and 4 its checksum, the record, 4 its checksum
    if path.stat().st_size == whole:
        return
    with atomic_write.replacing(path) as temporary:
        with os_errors(temporary), tf.io.TFRecordWriter(str(temporary)) as writer:
            for record in kept:
                writer.write(record)
        with temporary.open("rb+") as file:  # Windows flushes only files that are open for writing
            os.fsync(file.fileno())


def _is_kept(event: tf.compat.v1.Event, keep: Callable[[int, str], bool]) -> bool:
    return all(keep(event.step, value.tag) for value in event.summary.value)


def _records(path: Path) -> list[bytes]:
    records: list[bytes] = []
    # A last record that is incomplete because the process was killed is a DataLossError.
    with contextlib.suppress(tf.errors.DataLossError), no_tensorflow_warnings():
        records.extend(v1.io.tf_record_iterator(str(path)))
    return records


class TrackerLogWriter(TaggedLogWriter):
    """Logs to an experiment tracker, an object with ``log``; ``ends``: :meth:`close` ends the tracker's run."""

    def __init__(self, tracker: Any, tags: dict[str, str], ends: bool):
        super().__init__(tags)
        self._tracker, self._ends = tracker, ends

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        self._tracker.log(scalars, step=step)

    def close(self) -> None:
        """End the tracker's run if asked to."""
        if self._ends:
            self._tracker.finish()


class RunTracker(TaggedLogWriter):
    """Logs a run directory's metrics to a tracker; an exception of the tracker ends the logging, never the run.

    Args:
        name: one of :data:`ddpg.runs.trackers.TRACKERS`.
        tags, document: the tag of each training metric, and the contents of the run's ``config.json``.
        run_name: the name of the run in the tracker.
        again: says how the run is resumed, for the error.

    Raises:
        UsageError: if the package is not installed, or the tracker cannot start a run.
    """

    def __init__(self, name: str, tags: Mapping[str, str], document: Mapping[str, Any], run_name: str, again: str):
        super().__init__(tags)
        self._name, self._tracker, self._failed = name, as_tracker(name), False
        about = {key: document[key] for key in ("env_id", "algorithm", "seed", "total_timesteps")}
        try:
            self._tracker.init(project="ddpg", name=run_name, config={**about, **document["config"]})
        except Exception as error:  # trackers raise many types: no server, not signed in
            why = f"track={brief(name)}: it could not begin a run: {format_error(error)}"
            raise UsageError(f"{why}; {again}") from error

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        self._attempt(self._tracker.log, scalars, step=step)

    def close(self) -> None:
        """End the tracker's run."""
        self._attempt(self._tracker.finish)

    def _attempt(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        if self._failed:
            return
        try:
            call(*arguments, **options)
        except Exception as error:
            self._failed = True
            print_to_stderr(f"{self._name}: {format_error(error)}; logging there stops, and the run continues")


class DiagnosticsLogWriter(LogWriter):
    """Measures the state of an agent's networks whenever its metrics are logged, and writes ``diagnostics.csv``.

    ``goal`` is the step at which learning ends; existing rows are kept up to the step ``keep_until``.
    """

    def __init__(self, folder: Path, agent: OffPolicyAgent, goal: int, keep_until: int):
        self._agent, self._goal = agent, goal
        with contextlib.ExitStack() as opened:
            diagnostics = opened.enter_context(contextlib.closing(Diagnostics(agent)))
            table = CSVTable(folder / run_directory.DIAGNOSTICS, ["timesteps", *diagnostic_columns(agent)], keep_until)
            self._diagnostics, self._table = diagnostics, opened.enter_context(contextlib.closing(table))
            self._files = opened.pop_all()

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Measure, and write a row."""
        if measured := self._diagnostics.measure(self._goal):
            self._table.add({"timesteps": step, **measured})

    def close(self) -> None:
        """Close the table and the copy of the networks."""
        self._files.close()
