"""Make W&B, MLflow and Trackio look alike to the loggers; each is imported only when a run names it."""

from collections.abc import Mapping
from typing import Any

from ddpg.errors import UsageError, brief, import_optional
from ddpg.interaction.validation import validate_choice

TRACKERS = ("wandb", "mlflow", "trackio")


class MLflow:
    """Adapter that gives MLflow the interface of the other trackers: ``init``, ``log`` and ``finish``."""

    def __init__(self, module: Any):
        self._module = module

    def init(
        self,
        config: Mapping[str, Any] | None = None,
        project: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        """Start a run: ``project`` is the experiment, ``name`` the run's name, ``config`` its parameters."""
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


def as_tracker(tracker: Any, what: str = "track") -> Any:
    """Return a tracker object with ``log``, and with ``init`` and ``finish`` unless its run has been started already.

    ``tracker`` is one of :data:`TRACKERS`, such a module, or an object of the user; messages call it ``what``.

    Raises:
        UsageError: if it is none of these, or the package is not installed.
    """
    if isinstance(tracker, str):
        validate_choice(tracker, what, TRACKERS)
        tracker = import_optional(tracker, f"{what}={tracker!r}", f"install it: pip install {tracker}")
    if all(callable(getattr(tracker, name, None)) for name in ("start_run", "log_metrics", "end_run")):
        return MLflow(tracker)
    if not callable(getattr(tracker, "log", None)):
        raise UsageError(f"{what}={brief(tracker)} is neither one of {', '.join(TRACKERS)} nor an object with log()")
    return tracker
