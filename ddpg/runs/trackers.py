"""Experiment trackers: W&B, MLflow and Trackio, by name or as modules; none is imported unless it is asked for."""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ddpg.errors import UsageError, did_you_mean
from ddpg.progress import note
from ddpg.runs.sinks import Tagged

TRACKERS = ("wandb", "mlflow", "trackio")


class MLflow:
    """MLflow with the calls of the others: ``init``, ``log`` and ``finish``."""

    def __init__(self, module: Any):
        self._module = module

    def init(
        self,
        config: Mapping[str, Any] | None = None,
        project: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        """Start a run: ``project`` is the experiment, ``name`` the run's, ``config`` its parameters."""
        if project is not None:
            self._module.set_experiment(project)
        named = {} if name is None else {"run_name": name}
        self._module.start_run(**named, **options)
        self._module.log_params(dict(config or {}))

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Log numbers of a step."""
        self._module.log_metrics({tag: float(value) for tag, value in scalars.items()}, step=step)

    def finish(self) -> None:
        """End the run."""
        self._module.end_run()


def as_tracker(tracker: Any) -> Any:
    """Return what logs to a tracker: an object with ``log``, and ``init`` and ``finish`` where a run is to be begun.

    Args:
        tracker: one of :data:`TRACKERS`, such a module, or an object of one's own.

    Raises:
        UsageError: an unknown name, or a package that is not installed.
    """
    if isinstance(tracker, str):
        tracker = _imported(tracker)
    is_mlflow = all(callable(getattr(tracker, name, None)) for name in ("start_run", "log_metrics", "end_run"))
    return MLflow(tracker) if is_mlflow else tracker


def _imported(name: str) -> ModuleType:
    if name not in TRACKERS:
        raise UsageError(f"track={name!r} is not one of {', '.join(TRACKERS)}{did_you_mean(name, TRACKERS)}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"track={name!r} needs the package {name!r} ({error}): pip install {name}") from None


class RunTracker(Tagged):
    """Logs a run to a tracker; what the tracker raises ends the logging, never the run.

    Args:
        name: one of :data:`TRACKERS`.
        tags: of the agent's rows.
        document: the run's ``config.json``.
        run_name: the run's name there.

    Raises:
        UsageError: the package is not installed, or the tracker refuses to begin.
    """

    def __init__(self, name: str, tags: Mapping[str, str], document: Mapping[str, Any], run_name: str):
        super().__init__(tags, self._log)
        self._name, self._tracker, self._failed = name, as_tracker(name), False
        about = {key: document[key] for key in ("env_id", "algorithm", "seed", "total_timesteps")}
        try:
            self._tracker.init(project="ddpg", name=run_name, config={**about, **document["config"]})
        except Exception as error:  # whatever a tracker raises: no server, nobody signed in
            raise UsageError(f"track={name!r}: it could not begin a run: {_line(error)}") from error

    def _log(self, step: int, scalars: dict[str, float]) -> None:
        if not self._failed:
            self._attempt(lambda: self._tracker.log(scalars, step=step))

    def close(self) -> None:
        """End the tracker's run."""
        if not self._failed:
            self._attempt(self._tracker.finish)

    def _attempt(self, call: Any) -> None:
        try:
            call()
        except Exception as error:
            self._failed = True
            note(f"{self._name}: {_line(error)}; nothing more is logged there, and the run goes on")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
