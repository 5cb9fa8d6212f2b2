"""Collect the results of studies, and write them into pages and pictures.

    python -m benchmarks.learning --collect studies/table studies/ladder    # into benchmarks/results/learning.csv
    python -m benchmarks.learning --write                                   # from there into README.md and docs/

The studies are the TOML files in this folder; each begins with its command.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning import figures, long_form, pages
from benchmarks.learning.collecting import collect, in_order, merged
from ddpg.cli.terminal import tolerate_broken_pipes
from ddpg.errors import UsageError

ROOT = Path(__file__).parents[2]
RESULTS = "benchmarks/results/learning.csv", "benchmarks/results/learning_peers.csv"


def committed(root: Path = ROOT) -> list[long_form.Cell]:
    """Return all committed runs, our own and those of other packages."""
    return [cell for name in RESULTS for cell in long_form.read(root / name)]


@tolerate_broken_pipes()
def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Collect, write, or both; return 2 on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--collect", type=Path, nargs="+", default=[], metavar="FOLDER", help="studies' folders to read"
    )
    parser.add_argument("--write", action="store_true", help="fill the pages and draw the pictures")
    options = parser.parse_args(arguments)
    if not options.collect and not options.write:
        parser.error("nothing to do; give --collect FOLDER..., --write, or both")
    try:
        if options.collect:
            path = root / RESULTS[0]
            cells = in_order(merged(long_form.read(path), *map(collect, options.collect)))
            long_form.write(path, cells)
            print(f"{path}: {sum(cell.finished for cell in cells)} of {len(cells)} runs are finished")
        if options.write:
            cells = committed(root)
            for written in (*figures.draw(cells, root / "docs"), *pages.fill(root, cells)):
                print(f"wrote {written}")
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
