"""Run the slow tests that a change may have broken; the tests of every change leave them out.

    .venv/bin/python tests/tools/slow_tests.py [--since REVISION] [pytest arguments...]

These are in the test files that have changed since the revision, in those that import a changed file of ``tests/``, and
in those named after a changed module (``tests/runs/test_curves*.py`` for ``ddpg/runs/curves.py``). Changes that are not
committed count. By default, the revision is where the branch left ``origin/main``; without that branch, ``HEAD~1``.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_TESTS_COLLECTED = 5  # an exit status of pytest


def git(root: Path, *arguments: str) -> list[str]:
    """Return the names that a git command prints, each ended by a zero byte or a line's end."""
    printed = subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    return [name for name in re.split(r"[\0\n]", printed) if name]


def default_revision(root: Path) -> str:
    has_main = git(root, "branch", "--remotes", "--list", "origin/main")
    return git(root, "merge-base", "HEAD", "origin/main")[0] if has_main else "HEAD~1"


def test_files(root: Path, since: str) -> list[str]:
    """Return the test files to run for what has changed since a revision, relative to ``root``."""
    names = git(root, "diff", "--name-only", "--no-renames", "-z", since)
    names += git(root, "ls-files", "--others", "--exclude-standard", "-z")
    every, found = [path.relative_to(root) for path in (root / "tests").rglob("test_*.py")], set()
    for path in (Path(name) for name in names if name.endswith(".py")):
        folders = path.parts[1:-1] if path.parts[0] in ("ddpg", "tests") else path.parts[:-1]
        near = (file for file in every if file.parts[1:-1] == folders)
        found |= {file for file in near if f"{file.stem}_".startswith(f"test_{path.stem}_")}
        if path.parts[0] == "tests":
            imports = re.compile(rf"^\s*(from|import) {path.stem}\b", re.MULTILINE)
            found |= {file for file in every if file == path or imports.search((root / file).read_text("utf-8"))}
    return sorted(file.as_posix() for file in found)


def main() -> int:
    """Run the tests; the exit status is pytest's, or 0 if there are none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--since", metavar="REVISION", default=default_revision(ROOT), help="by default %(default)s")
    options, rest = parser.parse_known_args()
    command = [sys.executable, "-m", "pytest", "-m", "slow", *test_files(ROOT, options.since)]
    status = subprocess.run([*command, *rest], cwd=ROOT).returncode if len(command) > 5 else NO_TESTS_COLLECTED
    if status == NO_TESTS_COLLECTED:
        print(f"no slow tests for what has changed since {options.since}")
    return 0 if status == NO_TESTS_COLLECTED else status


if __name__ == "__main__":
    sys.exit(main())
