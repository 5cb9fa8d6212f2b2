"""``ddpg export``."""

import argparse
import json

from ddpg.commands.quiet import quiet_tensorflow


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command to those of ``ddpg``."""
    parser = commands.add_parser("export", help="the policy of a run as files that act without this package")
    parser.add_argument("run", metavar="RUN", help="a run directory, e.g. runs/Pendulum-v1/1")
    parser.add_argument(
        "--format", default="numpy", metavar="NAME", help="numpy, savedmodel, tflite or onnx (default: numpy)"
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="where to write (default: in the run directory)")
    parser.add_argument("--checkpoint", default="latest", metavar="WHICH", help="latest, best or a number of steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.set_defaults(run_command=_export)


def _export(options: argparse.Namespace) -> None:
    with quiet_tensorflow():  # the converters' notices too
        from ddpg.runs.export import export_run

        summary = export_run(options.run, options.format, options.output, options.checkpoint)
    if options.json:
        print(json.dumps(summary))
        return
    print(
        f"{summary['path']}: the policy of checkpoint {summary['checkpoint']} as {summary['format']}, "
        f"equal to the agent within {summary['difference']:.1g} of the actions' half-range"
    )
