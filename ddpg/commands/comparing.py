"""``ddpg plot`` and ``ddpg runs``."""

import argparse
import json

from ddpg.commands.quiet import quiet_tensorflow


def add(commands: argparse._SubParsersAction) -> None:
    """Add the commands to those of ``ddpg``."""
    plot = commands.add_parser("plot", help="learning curves of runs, by environment and by what differs")
    plot.add_argument("runs", metavar="RUN", nargs="+", help="run directories, or directories that hold them")
    plot.add_argument("-o", "--output", default="runs.png", metavar="FILE", help="the PNG to write (default: runs.png)")
    plot.add_argument("--against", default="steps", metavar="WHAT", help="steps or seconds (default: steps)")
    plot.add_argument("--measure", default="iqm", metavar="NAME", help="of the seeds: iqm or mean (default: iqm)")
    plot.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    plot.set_defaults(run_command=_plot)

    runs = commands.add_parser("runs", help="what runs there are, how far they are and what they returned")
    runs.add_argument("root", nargs="?", default="runs", metavar="DIR", help="where they are kept (default: runs)")
    runs.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    runs.set_defaults(run_command=_runs)


def _plot(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
        from ddpg.runs.curves import find_runs, learning_curves
        from ddpg.runs.plotting import plot_curves
    curves = learning_curves(find_runs(options.runs), options.against, options.measure)
    path = plot_curves(curves, options.output, options.against, options.measure)
    if options.json:
        arrays = ("times", "centre", "low", "high")
        listed = [vars(curve) | {name: getattr(curve, name).tolist() for name in arrays} for curve in curves]
        print(json.dumps({"picture": str(path), "curves": listed}))
        return
    for curve in curves:
        print(f"{curve.env_id}: {curve.label}, seeds: {curve.seeds}, last return {curve.centre[-1]:.4g}")
    print(f"The picture is in {path}")


def _runs(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
        from ddpg.runs.listing import list_runs, runs_text
    rows = list_runs(options.root)
    print(json.dumps({"runs": rows}) if options.json else runs_text(rows))
