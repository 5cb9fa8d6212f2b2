"""Break the package on purpose, one line at a time, and check that a test fails.

    .venv/bin/python tests/tools/mutants.py [--list] [--jobs N] [--only NAME...]

Each mutant, in ``mutants/SUBPACKAGE.toml`` under the file that it changes and its name, names a function, the source of
a node in it (an expression, or one or more statements, as ``ast.unparse`` writes them), and the replacement. In files
that are not Python, it names a text and its replacement (``old``, ``new``). The tool makes the change in a copy of the
tree, and runs the tests that must then fail. The exit status is 1 if a mutant survives, a node is not in its function,
or a named test fails on the unchanged copy. ``--only`` takes names or beginnings of names.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).with_name("mutants")


class Mutant(NamedTuple):
    """One change to the source.

    Attributes:
        name: unique among all mutants.
        file: relative to the root of the tree.
        tests: the tests that must fail.
        function: qualified name of the function or class around the node; ``""`` is the module.
        node: source of the node.
        becomes: its replacement.
        occurrence: the number of the node among equal nodes in the function, from 1.
        old: a text that occurs once, in files that are not Python.
        new: its replacement.
    """

    name: str
    file: str
    tests: str
    function: str = ""
    node: str = ""
    becomes: str = ""
    occurrence: int = 1
    old: str = ""
    new: str = ""


def listed() -> list[Mutant]:
    """Return all mutants; there is one file per subpackage."""
    found = []
    for path in sorted(LISTS.glob("*.toml")):
        for file, changes in tomllib.loads(path.read_text(encoding="utf-8")).items():
            found += [Mutant(name, file, **fields) for name, fields in changes.items()]
    return found


def broken(mutant: Mutant, source: str) -> str:
    """Return ``source`` with the mutant's change.

    Raises:
        LookupError: if the function, the node in it, or the text is missing.
    """
    if mutant.old:
        if source.count(mutant.old) != 1:
            raise LookupError(f"{mutant.old!r} occurs {source.count(mutant.old)} times in {mutant.file}")
        return source.replace(mutant.old, mutant.new)
    scope = _function(_parsed(source), mutant)
    found = sorted(_equal(scope, mutant.node), key=lambda nodes: (nodes[0].lineno, nodes[0].col_offset))
    if len(found) < mutant.occurrence:
        raise LookupError(f"{mutant.node!r} occurs {len(found)} times in {mutant.function} of {mutant.file}")
    nodes = found[mutant.occurrence - 1]
    lines = source.splitlines(keepends=True)
    offset = functools.partial(_offset, lines)
    start = offset(nodes[0].lineno, nodes[0].col_offset)
    end = offset(nodes[-1].end_lineno, nodes[-1].end_col_offset)
    text = mutant.becomes.strip("\n")
    if isinstance(nodes[0], ast.stmt):
        decorators = getattr(nodes[0], "decorator_list", [])
        start = min([start, *(offset(one.lineno, one.col_offset) - 1 for one in decorators)])
        text = textwrap.indent(text, " " * nodes[0].col_offset).lstrip()
    else:
        text = f"({text})"
    return source[:start] + text + source[end:]


def stale(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Return why a mutant does not fit the source under ``root``, or ``None`` if it does."""
    path = root / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    try:
        broken(mutant, path.read_text(encoding="utf-8"))
    except LookupError as error:
        return str(error)
    return None


@functools.lru_cache(1)
def _parsed(source: str) -> ast.Module:
    """Parse a source once for successive mutants, which do not change the tree."""
    return ast.parse(source)


def _function(tree: ast.AST, mutant: Mutant) -> ast.AST:
    for name in mutant.function.split(".") if mutant.function else ():
        inside = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
        tree = next((node for node in inside if node.name == name and node is not tree), None)
        if tree is None:
            raise LookupError(f"{mutant.file} has no function {mutant.function}")
    return tree


def _equal(scope: ast.AST, wanted: str) -> list[list[ast.AST]]:
    """Return the nodes in ``scope`` with the source ``wanted``: expressions, or successive statements."""
    body = ast.parse(wanted.strip("\n")).body
    wanted = "\n".join(map(ast.unparse, body))  # in this Python's style: 3.12 changed the quotes of f-strings
    if len(body) == 1:
        kinds = (ast.expr,) if isinstance(body[0], ast.Expr) else (ast.stmt,)
        nodes = [node for node in ast.walk(scope) if isinstance(node, (*kinds, ast.Expr))]
        found = [[node] for node in nodes if ast.unparse(node) == wanted]
        # An expression that is a statement is found only as a statement.
        inner = {id(nodes[0].value) for nodes in found if isinstance(nodes[0], ast.Expr)}
        return [nodes for nodes in found if id(nodes[0]) not in inner]
    found = []
    for node in ast.walk(scope):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for start in range(len(block) - len(body) + 1 if isinstance(block, list) else 0):
                rows = block[start : start + len(body)]
                if "\n".join(map(ast.unparse, rows)) == wanted:
                    found.append(rows)
    return found


def _offset(lines: list[str], line: int, column: int) -> int:
    """Return the index in the text of a line, from 1, and a column in UTF-8 bytes, from 0."""
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def first_failed(output: str) -> str:
    """Return the file and name of the first failed test in pytest's output."""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed.group(1).rpartition("/")[2] if failed else "(unnamed)"


SERVER_DIED = 98
# Loading plugins that these runs do not use would take a second.
PYTEST = [
    *("-x", "-q", "-o", "addopts=", "--strict-markers", "--import-mode=importlib"),
    *(
        word
        for name in ("cacheprovider", "nbmake", "xdist", "pytest_cov", "typeguard")
        for word in ("-p", f"no:{name}")
    ),
]
# Importing TensorFlow takes longer than most tests: it is done once per copy, and each run of tests is a fork.
SERVER = """
import gc, json, os, signal, sys
import gymnasium, hypothesis.extra.numpy, matplotlib.pyplot, numpy, pytest, safetensors.numpy, scipy.stats
import tensorflow.compat.v1

gc.freeze()  # or each fork goes through all of it
root = os.getcwd() + os.sep
for line in sys.stdin:
    tests, timeout, processor, output = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()  # what the tests start ends with them
        signal.alarm(int(timeout))
        signal.setitimer(signal.ITIMER_PROF, processor)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        status = int(pytest.main(tests))
        import ddpg, ddpg_envs
        for package in (ddpg, ddpg_envs):
            if not package.__file__.startswith(root):
                print("not of the copy:", package.__file__)
                status = 99
        sys.stdout.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    print(status, flush=True)
"""


class Copy:
    """A copy of the tree, with a process that runs tests on it."""

    def __init__(self, folder: Path):
        self.root, self._written = folder.resolve(), 0
        skipped = shutil.ignore_patterns("__pycache__", ".*")
        for name in ("ddpg", "envs", "tests", "benchmarks", "docs", "notebooks"):
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        for path in ROOT.glob("*.md"):
            shutil.copy(path, folder)
        (folder / "ddpg_envs").symlink_to("envs")  # the package's name when it is installed
        shutil.copy(ROOT / "pyproject.toml", folder)
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=self.root,
            env=os.environ
            | {"PYTHONPATH": str(self.root)}
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._server.stdin.close()
        self._server.wait()

    def run(self, tests: list[str], timeout: float, processor: float = 0) -> tuple[int, str]:
        """Run ``tests`` until the first one fails; return the exit status (< 0: a signal) and pytest's output.

        Args:
            tests: pytest's arguments.
            timeout: seconds until SIGALRM ends them.
            processor: seconds of processor time until SIGPROF ends them; 0 means no limit.
        """
        output = self.root / "output"
        output.unlink(missing_ok=True)
        which = () if all("::" in test for test in tests) else ("-m", "not slow")  # a test that is named may be slow
        words = [*PYTEST, *which, *tests]
        print(json.dumps([words, timeout, processor, str(output)]), file=self._server.stdin, flush=True)
        status = int(self._server.stdout.readline() or SERVER_DIED)
        return status, output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""

    def failure(self, tests: list[str], timeout: float) -> str | None:
        """Run ``tests`` until the first one fails; return its name, or ``None`` if all pass."""
        status, text = self.run(tests, timeout)
        if status == 0:
            return None
        if status == -signal.SIGALRM:
            return f"(no end within {timeout:.0f} s)"
        if status != 1:
            raise SystemExit(f"pytest could not run {' '.join(tests)}, status {status}:\n{text}")
        return first_failed(text)

    @contextlib.contextmanager
    def changed(self, file: str, change: Callable[[str], str]) -> Iterator[None]:
        """Apply ``change`` to a file's text for the duration of the block."""
        path = self.root / file
        source = path.read_text(encoding="utf-8")
        try:
            self._write(path, change(source))
            yield
        finally:
            self._write(path, source)

    def failure_under(self, mutant: Mutant, timeout: float) -> str | None:
        """Run a mutant's tests on the copy with the mutant's change."""
        with self.changed(mutant.file, lambda source: broken(mutant, source)):
            return self.failure([mutant.tests], timeout)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Python compares bytecode with its source by size and second of modification, so each text gets its own time.
        self._written += 1
        os.utime(path, (self._written, self._written))


def main(arguments: list[str] | None = None) -> int:
    """Run the selected mutants; return 1 if one survives, is stale, or has tests that do not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants of these names, or beginnings of names")
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time; default: 1")
    parser.add_argument(
        "--timeout", type=float, default=600, metavar="S", help="of the tests of one mutant; default: 600"
    )
    options = parser.parse_args(arguments)
    chosen = [m for m in listed() if not options.only or m.name.startswith(tuple(options.only))]
    if not chosen:
        parser.error(f"no mutant begins with {' or '.join(options.only)}; --list names them")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:36} {mutant.file:34} {mutant.tests}")
        return 0
    errors = [f"{mutant.name}: {problem}" for mutant in chosen if (problem := stale(mutant))]
    chosen = [mutant for mutant in chosen if not stale(mutant)]
    if not chosen:
        raise SystemExit("\n".join(f"error: {error}" for error in errors))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(options.jobs)]
        free = list(copies)

        def with_copy(what):
            copy = free.pop()
            start = time.perf_counter()
            try:
                return what(copy), time.perf_counter() - start
            finally:
                free.append(copy)

        tests = list(dict.fromkeys(mutant.tests for mutant in chosen))
        failed, seconds = with_copy(lambda copy: copy.failure(tests, options.timeout * len(tests)))
        if failed is not None:
            raise SystemExit(f"error: the named tests do not pass on the unbroken source: {failed}")
        print(f"{len(tests)} named tests pass unbroken, {seconds:.0f} s", flush=True)
        print(f"{'mutant':36} {'':8} {'':>5}    test that failed", flush=True)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            trials = [
                pool.submit(with_copy, lambda copy, mutant=mutant: copy.failure_under(mutant, options.timeout))
                for mutant in chosen
            ]
            for mutant, trial in zip(chosen, trials, strict=True):
                failed, seconds = trial.result()
                verdict = "SURVIVED" if failed is None else "killed"
                print(f"{mutant.name:36} {verdict:8} {seconds:5.0f} s  {failed or ''}", flush=True)
                if failed is None:
                    errors.append(f"{mutant.name} survived {mutant.tests}")
        for copy in copies:
            copy.close()
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
