"""The logging state of a run: sums, counters and recent episodes, from which the rows of ``metrics.csv`` are made.

Each checkpoint holds it, so a resumed run writes the same rows as an uninterrupted one. A row has means over episodes
and updates, counts, and the speed.
"""

import collections
import dataclasses
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.checkpoints.safe_json import short_repr
from ddpg.errors import FileFault
from ddpg.interaction.env_runner import Episode

RECENT = 100  # number of episodes in the logged mean return

_SUMS = 3 * hashlib.sha256().digest_size  # bytes: a digest for each of the three tables

_COUNTS = ("logged", "evaluated", "calls", "best_at")
_SHAPES: dict[str, tuple[str, int]] = {
    **dict.fromkeys(_COUNTS, ("int64", 0)),
    "seconds": ("float64", 0),
    "compile_seconds": ("float64", 0),
    "sums": ("float64", 1),
    "counts": ("int64", 1),
    "returns": ("float64", 1),
    "lengths": ("int64", 1),
    "best": ("float64", 1),
    "tables": ("uint8", 1),
}
# Stable-Baselines3's TensorBoard tags, which its users know.
TAGS = {
    "ep_rew_mean": "rollout/ep_rew_mean",
    "ep_len_mean": "rollout/ep_len_mean",
    "fps": "time/fps",
    "n_updates": "train/n_updates",
}


@dataclasses.dataclass
class RunState:
    """The logging state of a run at some step.

    Attributes:
        logged: the step of the last row of ``metrics.csv``.
        evaluated: the step of the last evaluation.
        seconds: seconds of training so far, in all processes of the run.
        compile_seconds: those of them that went into compiling.
        calls, sums: number of updates reported since the last row, and the sums of their metrics.
        counts: the agent's counters at the last row.
        recent: returns and lengths of the last episodes.
        best, best_at: the largest mean return of an evaluation, and its step.
        tables: the SHA-256 of each table's rows so far, concatenated; empty if unknown.
    """

    logged: int = 0
    evaluated: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    calls: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    recent: collections.deque[tuple[float, int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=RECENT)
    )
    best: float = -np.inf
    best_at: int = -1
    tables: bytes = b""

    @classmethod
    def begun(cls, metrics: Sequence[str], counts: Mapping[str, int], timesteps: int = 0) -> "RunState":
        """Return the state of a run that begins at ``timesteps``, given the names of its metrics and its counters."""
        return cls(timesteps, timesteps, sums=dict.fromkeys(metrics, 0.0), counts=dict(counts))

    def arrays(self, counts: Mapping[str, int], seconds: float, compile_seconds: float) -> dict[str, np.ndarray]:
        """Return the state as arrays, for an agent with these counters after these seconds."""
        returns, lengths = zip(*self.recent, strict=True) if self.recent else ((), ())
        values: dict[str, Any] = {name: getattr(self, name) for name in _COUNTS}
        values |= {"seconds": seconds, "compile_seconds": compile_seconds, "sums": list(self.sums.values())}
        values |= {"counts": [count - self.counts[name] for name, count in counts.items()]}
        values |= {"returns": returns, "lengths": lengths, "best": [self.best] * (self.best_at >= 0)}
        values |= {"tables": list(self.tables)}
        return {name: np.array(value, _SHAPES[name][0]) for name, value in values.items()}

    @classmethod
    def from_arrays(
        cls,
        where: str,
        arrays: Mapping[str, np.ndarray],
        metrics: Sequence[str],
        counts: Mapping[str, int],
        anew: bool = False,
    ) -> "RunState":
        """Return the state that :meth:`arrays` saved, for an agent with these metrics and counts.

        Args:
            where: the file's name, for messages.
            arrays, metrics, counts: as saved; the names of the agent's metrics; its counters now.
            anew: start a new row, because the options have changed and with them perhaps the metrics and counters.

        Raises:
            FileFault: if the arrays do not form a valid state.
        """
        if anew:
            sums, none = np.zeros(len(metrics)), np.zeros(len(counts), np.int64)
            arrays = {**arrays, "calls": np.array(0), "sums": sums, "counts": none, "tables": np.array([], np.uint8)}
        arrays = {"compile_seconds": np.array(0.0), **arrays}  # checkpoints of older versions lack it
        _check(where, arrays, {"sums": len(metrics), "counts": len(counts)})
        run_state = cls.begun(metrics, counts)
        for name in _COUNTS:
            setattr(run_state, name, int(arrays[name]))
        run_state.seconds = float(arrays["seconds"])
        run_state.compile_seconds = float(arrays["compile_seconds"])
        run_state.sums = dict(zip(metrics, arrays["sums"].tolist(), strict=True))
        since = arrays["counts"].tolist()
        run_state.counts = {name: count - past for (name, count), past in zip(counts.items(), since, strict=True)}
        run_state.recent.extend(zip(arrays["returns"].tolist(), arrays["lengths"].tolist(), strict=True))
        run_state.best = float(arrays["best"][0]) if len(arrays["best"]) else -np.inf
        run_state.tables = arrays["tables"].tobytes()
        return run_state


def _check(where: str, arrays: Mapping[str, np.ndarray], lengths: Mapping[str, int]) -> None:
    def refuse(name: str, value: Any, expected: str) -> FileFault:
        return FileFault(f"{where}: {name} is {short_repr(value)}, expected {expected}; take another checkpoint")

    if arrays.keys() != _SHAPES.keys():
        raise refuse("its arrays", sorted(arrays), f"{sorted(_SHAPES)}")
    for name, (dtype, dimensions) in _SHAPES.items():
        array = arrays[name]
        if array.dtype != dtype or array.ndim != dimensions:
            raise refuse(name, f"{array.dtype} {array.shape}", f"{dtype} of {dimensions} dimensions")
        if name not in ("best_at", "best", "returns", "sums") and (array < 0).any():
            raise refuse(name, array.tolist(), "nothing below 0")
    episodes = len(arrays["lengths"])
    sums = _SUMS if len(arrays["tables"]) else 0
    known = {"tables": sums, "returns": episodes, "best": int(int(arrays["best_at"]) >= 0), **lengths}
    for name, length in known.items():
        if len(arrays[name]) != length:
            raise refuse(f"the length of {name}", len(arrays[name]), f"{length}")
    if episodes > RECENT:
        raise refuse("the length of lengths", episodes, f"at most {RECENT}")


def tags_of(agent: OffPolicyAgent) -> dict[str, str]:
    """Return the tag of every number in a row of :class:`MetricsTracker`, in the order of the columns."""
    return TAGS | {name: f"rollout/{name}" for name in agent.counts} | {name: f"train/{name}" for name in agent.metrics}


class MetricsTracker:
    """Updates the run state while an agent learns, and measures the training time."""

    def __init__(self, run_state: RunState, agent: OffPolicyAgent):
        self.run_state = run_state
        self.begin(agent)

    def begin(self, agent: OffPolicyAgent) -> None:
        """Start the clock."""
        self._start, self._start_steps = time.perf_counter(), agent.num_timesteps
        self._compiled = agent.compile_seconds or 0.0
        self._excluded = 0.0  # seconds

    def end(self, agent: OffPolicyAgent) -> None:
        """Stop the clock until the next :meth:`begin`."""
        self.run_state.seconds, self.run_state.compile_seconds = self.seconds(), self.compile_seconds(agent)

    def exclude(self, seconds: float) -> None:
        """Exclude this many seconds since :meth:`begin` from the training time."""
        self._excluded += seconds

    def seconds(self) -> float:
        """Return the seconds of training, including those before :meth:`begin`."""
        return self.run_state.seconds + time.perf_counter() - self._start - self._excluded

    def compile_seconds(self, agent: OffPolicyAgent) -> float:
        """Return the seconds of compiling among :meth:`seconds`."""
        return self.run_state.compile_seconds + (agent.compile_seconds or 0.0) - self._compiled

    def add_episode(self, episode: Episode) -> None:
        """Add a finished episode."""
        self.run_state.recent.append((episode.episode_return, episode.length))

    def add_update(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics that one or several updates reported."""
        self.run_state.calls += 1
        for name in self.run_state.sums:
            self.run_state.sums[name] += metrics[name]

    def row(self, agent: OffPolicyAgent) -> dict[str, float]:
        """Return the row of metrics since the last one, and begin the next.

        Returns:
            ``seconds``, ``compile_seconds``, ``fps`` (since :meth:`begin`, without compile time), and the names of
            :func:`tags_of` that have a value.
        """
        run_state, now = self.run_state, agent.num_timesteps
        seconds, compile_seconds = self.seconds(), self.compile_seconds(agent)
        compiling = compile_seconds - run_state.compile_seconds
        row: dict[str, float] = {
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "fps": (now - self._start_steps) / max(seconds - run_state.seconds - compiling, 1e-9),
        }
        if run_state.recent:
            returns, lengths = zip(*run_state.recent, strict=True)
            row |= {"ep_rew_mean": float(np.mean(returns)), "ep_len_mean": float(np.mean(lengths))}
        row |= {name: count - run_state.counts[name] for name, count in agent.counts.items()}
        if run_state.calls and run_state.sums:
            row |= {name: total / run_state.calls for name, total in run_state.sums.items()}
            row["n_updates"] = float(agent.num_updates)
        run_state.calls, run_state.sums = 0, dict.fromkeys(run_state.sums, 0.0)
        run_state.logged, run_state.counts = now, agent.counts
        return row
