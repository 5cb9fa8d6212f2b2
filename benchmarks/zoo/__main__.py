"""Add finished runs to the policy zoo, and write its page and picture.

ddpg study benchmarks/zoo/presets.toml --jobs 1      # days on one core; after an interruption it continues
python -m benchmarks.zoo studies/presets             # adds the finished runs to ddpg/zoo and docs/zoo.md
python -m benchmarks.zoo --picture                   # draws docs/zoo.png; MuJoCo needs MUJOCO_GL=egl
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import marks
from benchmarks.zoo import page
from ddpg.cli.terminal import tolerate_broken_pipes
from ddpg.errors import UsageError


@tolerate_broken_pipes()
def main(arguments: Sequence[str] | None = None) -> int:
    """Add runs, write the page, and draw the picture, as the arguments say; return 2 on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", metavar="FOLDER", help="folders of runs, such as a study's")
    parser.add_argument("--replace", action="store_true", help="replace existing entries")
    parser.add_argument("--picture", action="store_true", help="draw the picture; only without runs")
    options = parser.parse_args(arguments)
    if options.picture and options.runs:
        parser.error("draw the picture in a separate command: Mesa's LLVM may crash together with TensorFlow's")
    try:
        if options.runs:
            from benchmarks.zoo import entries  # which imports TensorFlow
        for root in options.runs:
            for line in entries.add_finished(root, replace=options.replace):
                print(line, flush=True)
        marks.write(page.PAGE, page.tables())
        if options.picture:
            page.draw()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
