"""Where rows of training, episodes and evaluations go: tables, TensorBoard, trackers."""

import abc
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddpg.experience.interaction import Episode
from ddpg.runs import directory
from ddpg.runs.events import Events

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


class Sink(abc.ABC):
    """Takes what is to be told of an agent that learns, with the environment step at which it was so."""

    @abc.abstractmethod
    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Take a row of :class:`ddpg.runs.meter.Meter`."""

    def add_episode(self, step: int, episode: Episode) -> None:
        """Take an episode that ended."""

    @abc.abstractmethod
    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Take the summary of an evaluation."""

    def flush(self) -> None:
        """Hand what was taken to the operating system."""

    def close(self) -> None:
        """Let go of files."""


def table_columns(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns of each table, where rows of training have these tags."""
    return {
        "metrics": ["timesteps", "seconds", "compile_seconds", *tags],
        "episodes": ["timesteps", "return", "length"],
        "evaluations": ["timesteps", *_EVALUATION_COLUMNS],
    }


class Tables(Sink):
    """``metrics.csv``, ``episodes.csv`` and ``evaluations.csv``, readable after every row.

    Args:
        folder: where they are.
        tags: of the agent's rows.
        keep_until: the step up to which rows that are there stay, for each of the three.
    """

    def __init__(self, folder: Path, tags: Mapping[str, str], keep_until: Mapping[str, int]):
        with contextlib.ExitStack() as opened:
            self._tables = {
                name: opened.enter_context(
                    contextlib.closing(directory.Table(folder / f"{name}.csv", columns, keep_until[name]))
                )
                for name, columns in table_columns(tags).items()
            }
            self._files = opened.pop_all()

    def digests(self) -> bytes:
        """Return the SHA-256 of each table's rows, one after the other."""
        return b"".join(table.digest() for table in self._tables.values())

    def unlike(self, digests: bytes) -> list[Path]:
        """Return the tables whose rows are others than when :meth:`digests` gave this; none if it never did."""
        now, size = self.digests(), len(self.digests()) // len(self._tables)
        parts = zip(self._tables.values(), range(0, len(digests), size), strict=False)
        return [table.path for table, at in parts if digests[at : at + size] != now[at : at + size]]

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row of training."""
        self._tables["metrics"].add({"timesteps": step, **row})

    def add_episode(self, step: int, episode: Episode) -> None:
        """Write the episode down."""
        self._tables["episodes"].add({"timesteps": step, "return": episode.episode_return, "length": episode.length})

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the evaluation down."""
        self._tables["evaluations"].add({"timesteps": step, **summary})

    def close(self) -> None:
        """Close the files."""
        self._files.close()


class Tagged(Sink):
    """Takes numbers under Stable-Baselines3's tags.

    Args:
        tags: of the agent's rows; what has none is left out.
        write: takes a step and numbers by tag.
    """

    def __init__(self, tags: Mapping[str, str], write: Callable[[int, dict[str, float]], Any]):
        self._tags, self._write = tags, write

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Write a row of training."""
        self._write(step, {self._tags[name]: value for name, value in row.items() if name in self._tags})

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Write the evaluation down."""
        self._write(step, {tag: summary[name] for name, tag in _EVALUATION_TAGS.items() if name in summary})


class EventFile(Tagged):
    """A TensorBoard event file.

    Args:
        folder: where it is made.
        tags: of the agent's rows.
        keep: of the event files there, which scalars stay; ``None``: they are left as they are.
    """

    def __init__(self, folder: Path, tags: Mapping[str, str], keep: Callable[[int, str], bool] | None):
        self._events = Events(folder, keep)
        super().__init__(tags, self._events.add)

    def flush(self) -> None:
        """Hand what was added to the operating system."""
        self._events.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._events.close()
