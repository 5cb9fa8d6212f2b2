"""``ddpg record`` and ``ddpg watch``."""

import argparse
import json
import os

from ddpg.commands.flags import add_import_flag
from ddpg.commands.quiet import quiet_tensorflow


def add(commands: argparse._SubParsersAction) -> None:
    """Add the commands to those of ``ddpg``."""
    record = commands.add_parser("record", help="episodes of a trained policy as a GIF or a video")
    _add_flags(record)
    record.add_argument(
        "-o", "--output", metavar="FILE", help="a .gif or .mp4 (default: video.gif in the run directory)"
    )
    record.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    record.set_defaults(run_command=_record)

    watch = commands.add_parser("watch", help="episodes of a trained policy in a window")
    _add_flags(watch)
    watch.set_defaults(run_command=_watch)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory, e.g. runs/Pendulum-v1/1")
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--seed", type=int, help="of the environment (default: from the run's)")
    parser.add_argument("--checkpoint", default="latest", metavar="WHICH", help="latest, best or a number of steps")
    add_import_flag(parser)


def _record(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
        from ddpg.runs.watching import record_run
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame looks for a screen, and complains, to draw in memory
    summary = record_run(
        options.run,
        options.output,
        episodes=options.episodes,
        which=options.checkpoint,
        seed=options.seed,
        allow_import=options.allow_import,
    )
    print(json.dumps(summary) if options.json else f"{summary['path']}: {summary['env_id']}, seed {summary['seed']}")


def _watch(options: argparse.Namespace) -> None:
    with quiet_tensorflow():
        from ddpg.runs.watching import watch_run
    watch_run(
        options.run,
        episodes=options.episodes,
        which=options.checkpoint,
        seed=options.seed,
        allow_import=options.allow_import,
    )
