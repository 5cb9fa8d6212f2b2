"""``ddpg plot`` and ``ddpg runs``. TensorFlow is not imported."""

import dataclasses
import json

from ddpg.commands.base import WithJson
from ddpg.errors import UsageError
from ddpg.options import option
from ddpg.progress import significant


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot(WithJson):
    """Learning curves of runs, by environment and by what differs."""

    runs: tuple[str, ...] = option((), "run directories, or directories that hold them", positional=True, metavar="RUN")
    output: str = option("runs.png", "the PNG to write", aliases=("-o",), metavar="FILE")
    against: str = option("steps", "what the curves are drawn over", metavar="{steps,seconds}")
    measure: str = option("iqm", "of the seeds", metavar="{iqm,mean}")

    def __call__(self) -> None:
        """Draw them, and print where they end."""
        from ddpg.runs.curves import find_runs, learning_curves
        from ddpg.runs.plotting import plot_curves

        if not self.runs:
            raise UsageError("no runs to plot; name run directories, or directories that hold them, such as runs")
        curves = learning_curves(find_runs(self.runs, self.against), self.against, self.measure)
        path = plot_curves(curves, self.output, self.against, self.measure)
        if self.json:
            arrays = ("times", "centre", "low", "high")
            listed = [vars(curve) | {name: getattr(curve, name).tolist() for name in arrays} for curve in curves]
            print(json.dumps({"picture": str(path), "curves": listed}))
            return
        for curve in curves:
            last = significant(curve.centre[-1])
            print(f"{curve.env_id}: {curve.label}, seeds: {curve.seeds}, last return {last}")
        print(f"The picture is in {path}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs(WithJson):
    """What runs there are, how far they are and what they returned."""

    root: str = option("runs", "where they are kept", positional=True, metavar="DIR")

    def __call__(self) -> None:
        """List them."""
        from ddpg.runs.listing import list_runs, runs_text

        rows = list_runs(self.root)
        print(json.dumps({"runs": rows}) if self.json else runs_text(rows))
