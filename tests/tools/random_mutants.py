"""Break the package at random places, one mutation at a time, and check that a test fails.

    .venv/bin/python tests/tools/random_mutants.py --measure
    .venv/bin/python tests/tools/random_mutants.py [--count N] [--seed S] [--again] [--list]

``--measure`` runs the tests once under coverage, in a process for each folder of tests, and stores in ``--state`` which
test runs which lines, and for how long. Without it, ``--count`` mutants are sampled: uniformly a statement of
``ddpg/``, and then one of its mutations (``mutations.py``). Each is made in a copy of the tree, and the tests that run
the mutated line are run until one fails: first those in the module's own folder, the fastest first, up to ``--budget``
seconds by the measured durations. A mutant in a line that no test runs survives at once. Until every folder has been
measured, the tool instead runs the files that most often name the module and the function.

The results are a CSV with a row per mutant, rewritten after each; an interrupted sample continues where it was.
``--again`` repeats those mutants that were not killed; ``--tests`` replaces the chosen tests (for lines that only
other processes run). ``random_mutants_equivalent.toml`` lists survivors that are equivalent, with the reason. Mutants
may do anything, such as sending signals: run them in a container.
"""

import argparse
import csv
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import mutants
import mutations

ROOT = mutants.ROOT
RESULTS = Path(__file__).with_name("random_mutants.csv")
EQUIVALENT = Path(__file__).with_name("random_mutants_equivalent.toml")
ELSEWHERE = ("benchmarks", "envs", "golden", "tools")  # tests of other packages and of these tools
PAGES = ("test_documentation.py", "test_notebooks.py")  # run complete pages for minutes
COVERAGE = "[run]\nsource_pkgs = ddpg\n"
NO_TESTS = 5  # pytest's exit status
PATIENCE = 900  # seconds for tests that hang, on a busy machine; processor time limits tests that compute
KILLED = ("killed", "timeout")


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A mutation of a file of the package."""

    file: str
    mutation: mutations.Mutation

    @property
    def name(self) -> str:
        """The mutation's name: its place in the syntax tree."""
        module = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return self.mutation.name(module)

    @property
    def folder(self) -> str:
        """The test folder of the module's subpackage; ``"tests/test_"`` for modules without one."""
        room = Path(self.file).parts[1]
        return "tests/test_" if room.endswith(".py") else f"tests/{room}/"


def sample(count: int, seed: int, root: Path = ROOT) -> list[Sampled]:
    """Return ``count`` different mutants: each a uniformly random mutation of a uniformly random statement."""
    population = mutations.all_statements(root)
    rng = random.Random(seed)
    found: dict[Sampled, None] = {}
    while len(found) < min(count, sum(len(possible) for _, possible in population)):
        file, possible = rng.choice(population)
        found[Sampled(file, rng.choice(possible))] = None
    return list(found)


def folders() -> list[tuple[str, list[Path]]]:
    """Return the folders of tests, and under ``"top"`` the files outside them."""
    found = [(path.name, [path]) for path in sorted((ROOT / "tests").iterdir()) if any(path.glob("test_*.py"))]
    found = [(name, paths) for name, paths in found if name not in ELSEWHERE]
    return [*found, ("top", sorted({*(ROOT / "tests").glob("test_*.py")} - {ROOT / "tests" / name for name in PAGES}))]


def named(mutant: Sampled, count: int = 3) -> list[str]:
    """Return the test files that most often name the mutant's module, class and function, its own folder's first."""
    words = {Path(mutant.file).stem, *mutant.mutation.function.split(".")} - {"", "__init__"}
    scores = {}
    for path in (path for _, paths in folders() for place in paths for path in [*place.glob("test_*.py"), place]):
        if path.is_file():
            text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
            hits = sum(len(re.findall(rf"\b{word}\b", text)) for word in words)
            own = name.startswith(mutant.folder)
            scores[name] = (path.stem.removeprefix("test_") in words, own and hits > 0, hits / len(text), own)
    return sorted(scores, key=lambda name: scores[name], reverse=True)[:count]


class Coverage:
    """Which tests run which lines of the package, and how long each test takes.

    Args:
        state: the folder of :meth:`measure`.
    """

    def __init__(self, state: Path):
        import coverage

        self.seconds: dict[str, float] = {}
        for path in state.glob("*.xml"):
            for case in ElementTree.parse(path).iter("testcase"):
                if case.find("failure") is None and case.find("error") is None and case.find("skipped") is None:
                    name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
                    self.seconds[name] = float(case.get("time", 0))
        self.unmeasured = {folder for folder, _ in folders()} - {path.stem for path in state.glob("*.cov")}
        self.lines: dict[str, dict[int, set[str]]] = {}
        for path in state.glob("*.cov"):
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                lines = self.lines.setdefault("ddpg/" + file.rpartition("/ddpg/")[2], {})
                for line, contexts in data.contexts_by_lineno(file).items():
                    lines.setdefault(line, set()).update(contexts)

    @staticmethod
    def measure(state: Path) -> None:
        """Run every folder of tests that has not been measured yet, each in its own process."""
        state.mkdir(parents=True, exist_ok=True)
        settings = state / "coveragerc"
        settings.write_text(COVERAGE, encoding="utf-8")
        for name, paths in folders():
            if (state / f"{name}.done").exists():
                continue
            print(f"measuring {name}", flush=True)
            coverage = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}"]
            coverage.append(f"--data-file={state / name}.cov")
            pytest = ["-m", "pytest", "-p", "coverage_by_test", "-n0", "-q", "-p", "no:cacheprovider"]
            subprocess.run(
                [*coverage, *pytest, f"--junitxml={state / name}.xml", *map(str, paths)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"},
                check=False,
            )
            (state / f"{name}.done").touch()

    def of(self, file: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that run one of the lines."""
        known = self.lines.get(file, {})
        found = set().union(*(known.get(line, set()) for line in lines))
        files = {context for context in found if "::" not in context}
        return {test for test in self.seconds if test in found or test.partition("::")[0] in files}

    def chosen(self, mutant: Sampled, source: str, budget: float) -> list[str]:
        """Return the tests to run: those of the line, its own folder's first, the fastest first, up to ``budget`` s.

        Code that runs at a module's import is assigned to every test that runs any line of the module.
        """
        lines, imported = mutations.lines(source, mutant.mutation)
        tests = self.of(mutant.file, lines)
        if imported:
            tests = self.of(mutant.file, range(1, source.count("\n") + 2))
            tests = tests or {test for test in self.seconds if test.startswith(mutant.folder)}
        ordered = sorted(tests, key=lambda test: (not test.startswith(mutant.folder), self.seconds[test], test))
        found, total = [], 0.0
        for test in ordered:
            if found and total + self.seconds[test] > budget:
                continue
            found.append(test)
            total += self.seconds[test]
        first = {}
        for place, test in enumerate(found):
            first.setdefault(test.partition("::")[0], place)
        found.sort(key=lambda test: first[test.partition("::")[0]])  # a file's tests stay together
        own = {
            name for name, paths in folders() for path in paths if str(path.relative_to(ROOT)) + "/" == mutant.folder
        }
        if self.unmeasured & (own or {"top"} if found else self.unmeasured):
            found += [file for file in named(mutant) if file not in first]
        return found


class Trials:
    """Runs tests on a copy with a mutant, and on the unchanged copy those that were not measured as passing.

    Args:
        copy: the copy.
        passed: tests that pass on the unchanged copy.
    """

    def __init__(self, copy: mutants.Copy, passed: Iterable[str]):
        self._copy, self._passed, self._red = copy, set(passed), set()

    def verdict(self, mutant: Sampled, tests: list[str], processor: float) -> tuple[str, str]:
        """Return killed, timeout or survived, and the test; ``processor`` limits the tests' processor seconds."""
        while True:
            without = [word for test in self._red for word in ("--deselect", test)]
            with self._copy.changed(mutant.file, lambda source: mutations.mutated(source, mutant.mutation)):
                status, output = self._copy.run([*without, *tests], PATIENCE, processor)
            if status in (0, NO_TESTS):
                return "survived", ""
            if status in (-signal.SIGALRM, -signal.SIGPROF):
                return "timeout", ""
            failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
            if "ERROR: not found: " in output or "ERROR: file or directory not found: " in output:
                raise SystemExit(f"tests that there are not:\n{output}")
            if failed is None:
                return "killed", f"(status {status})"
            if self._passes(test := failed[1]):
                return "killed", test.removeprefix("tests/")
            tests = [name for name in tests if name != test]  # its file cannot be collected

    def _passes(self, test: str) -> bool:
        """Return whether a test passes on the unchanged copy."""
        if test not in self._passed | self._red:
            status, _ = self._copy.run([test.partition("[")[0]], PATIENCE)
            (self._red if status else self._passed).add(test)
        return test in self._passed


def read_results(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a results CSV by mutant name."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["mutant"]: row for row in csv.DictReader(file)}


def write_results(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Replace the results CSV."""
    aside = path.with_suffix(".new")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("mutant", "verdict", "seconds", "tests", "failed", "change"))
        writer.writeheader()
        writer.writerows(rows)
    aside.replace(path)


def equivalent() -> dict[str, str]:
    """Return, by name, why a surviving mutant is equivalent."""
    return mutants.tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}


def report(rows: Iterable[dict[str, str]]) -> str:
    """Return the number of each verdict, and the share that was killed."""
    counts = Counter(row["verdict"] for row in rows)
    total, killed = sum(counts.values()), sum(counts[name] for name in KILLED)
    words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{total} mutants: {words}; {killed / max(total, 1):.1%} killed"


def main(arguments: list[str] | None = None) -> int:
    """Measure, list, or run the sample; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="find which tests run which lines, and do nothing else")
    parser.add_argument("--list", action="store_true", help="print the sample and do nothing")
    parser.add_argument("--count", type=int, default=300, metavar="N", help="how many mutants; default: 300")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample; default: 0")
    parser.add_argument("--budget", type=float, default=60, metavar="S", help="of the tests of a mutant; default: 60")
    parser.add_argument("--again", action="store_true", help="run those once more that were not killed")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="mutants whose names contain one")
    parser.add_argument("--tests", nargs="+", metavar="TEST", help="run these in place of the chosen ones")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="the CSV")
    parser.add_argument("--state", type=Path, default=ROOT / ".random_mutants", metavar="DIR", help="of --measure")
    options = parser.parse_args(arguments)
    if options.measure:
        Coverage.measure(options.state.resolve())
        return 0
    chosen = sample(options.count, options.seed)
    chosen = [mutant for mutant in chosen if any(word in mutant.name for word in options.only)]
    sources = {mutant.file: (ROOT / mutant.file).read_text(encoding="utf-8") for mutant in chosen}
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}    {mutations.described(sources[mutant.file], mutant.mutation)}")
        return 0
    results = read_results(options.results)
    redo = ("survived", "not run", "timeout") if options.again else ()
    chosen = [m for m in chosen if m.name not in results or results[m.name]["verdict"] in redo]
    covered = Coverage(options.state)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = mutants.Copy(Path(folder) / "copy")
        trials = Trials(copy, covered.seconds)
        for mutant in chosen:
            source = sources[mutant.file]
            tests = options.tests or covered.chosen(mutant, source, options.budget)
            start = time.perf_counter()
            what, failed = trials.verdict(mutant, tests, 15 + options.budget) if tests else ("not run", "")
            seconds = f"{time.perf_counter() - start:.0f}"
            row = (mutant.name, what, seconds, str(len(tests)), failed, mutations.described(source, mutant.mutation))
            results[mutant.name] = dict(
                zip(("mutant", "verdict", "seconds", "tests", "failed", "change"), row, strict=True)
            )
            write_results(options.results, results.values())
            print(f"{what:8} {seconds:>4} s {len(tests):5} tests  {mutant.name}  {failed}", flush=True)
        copy.close()
    print(report(results.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
