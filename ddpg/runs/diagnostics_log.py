"""Write what :mod:`ddpg.agents.diagnostics` measures to ``diagnostics.csv``, a row for each row of metrics."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddpg.agents.diagnostics import Diagnostics, diagnostic_columns
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.runs import run_directory
from ddpg.runs.log_writers import LogWriter


class DiagnosticsLogWriter(LogWriter):
    """Measures an agent whenever its metrics are logged.

    Args:
        folder: where the table is.
        agent: the agent that learns.
        goal: the step at which learning ends.
        keep_until: the step up to which existing rows are kept.
    """

    def __init__(self, folder: Path, agent: OffPolicyAgent, goal: int, keep_until: int):
        self._agent, self._goal = agent, goal
        with contextlib.ExitStack() as opened:
            diagnostics = opened.enter_context(contextlib.closing(Diagnostics(agent)))
            table = run_directory.CSVTable(
                folder / run_directory.DIAGNOSTICS, ["timesteps", *diagnostic_columns(agent)], keep_until
            )
            self._diagnostics, self._table = diagnostics, opened.enter_context(contextlib.closing(table))
            self._files = opened.pop_all()

    def add_metrics(self, step: int, row: Mapping[str, float]) -> None:
        """Measure, and write a row."""
        if measured := self._diagnostics.measure(self._goal):
            self._table.add({"timesteps": step, **measured})

    def add_evaluation(self, step: int, summary: Mapping[str, Any]) -> None:
        """Evaluations have a table of their own."""

    def close(self) -> None:
        """Close the table, and the copy of the networks."""
        self._files.close()
