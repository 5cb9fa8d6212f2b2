"""Differential fuzzing: compare native updates with the same updates in an uncompiled session, and some with XLA.

``python -m benchmarks.faults.compilers --seed 0 --count 2000`` samples networks of DDPG (options and shapes), compares
several kinds of values on each, and writes a row per network to ``results/faults/compilers.csv``; ``--algorithm DQN``
samples those of DQN and writes to ``compilers_dqn.csv``. After an interruption it continues after the last row. A
disagreement is simplified as far as possible and printed as a command that reproduces it.

**Tolerance.** float32 sums depend on the order of their terms, and an update may magnify the difference: Adam makes a
full step even if a gradient is only rounding error. So the reference is also run in Monte Carlo arithmetic
(:mod:`benchmarks.faults.disturbed`), which disturbs inputs and each op's results by some units in the last place. The
largest change of an array's results shows how far rounding can move them. The compilers agree if every number differs
from the reference by at most 16 times that change plus 4e-6 of the array's largest number, and if NaN and infinities
are in the same places. These places may differ only if the disturbances move them too, and a number that is infinite or
NaN in a disturbed run may have any value. The reference in float64 counts as another disturbed result where it is
finite: a thousand equal terms are rounded in the same direction in any order, which disturbances do not show. Three
disturbed runs decide most cases. An array outside the tolerance is compared again with 21 more runs: if a gradient is
only rounding error, its sign is random, and three runs agree on one sign in a quarter of all cases.

**The arbiter.** If native still disagrees, XLA compiles the same update. If native agrees with XLA, within the same
tolerance, on every array on which it differs from the session, the session is the exception: the row counts the case as
``session_alone``, not as a disagreement.
"""

import argparse
import csv
import dataclasses
import gc
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("DDPG_CACHE", "off")  # compile every update

import tensorflow as tf

from benchmarks.faults.common import RESULTS
from benchmarks.faults.compiler_cases import Case, minibatches, sample, simpler, values_of, weights
from benchmarks.faults.disturbed import Disturbed
from ddpg import DDPG, DQN, UsageError
from ddpg.compiler.ir import Unsupported
from ddpg.learners.graph import LearnerResult, UncompiledLearner, XLALearner
from ddpg.learners.native import NativeLearner
from ddpg.learners.synced_session import assign_variables
from ddpg.replay.minibatch import Batch

KINDS = 12  # kinds of values per network
XLA_EVERY = 20  # every 20th network is compared with XLA, too
DISTURBED, MORE = 3, 21  # disturbed runs of the reference, and further ones if an array is outside the tolerance
MAGNIFIED, RELATIVE, LEAST = 16.0, 4e-6, 1e-36
COLUMNS = (
    *("network", "cases", "translated", "xla", "not_finite", "at_overflow", "session_alone", "disagreements"),
    *("worst", "seconds"),
)

Arrays = dict[str, np.ndarray]
_SELECTED = "ReluThatSelects"


@tf.RegisterGradient(_SELECTED)
def _relu_gradient(operation: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """Return 0 for inactive units, as XLA does; TensorFlow's op multiplies by 0, which keeps NaN."""
    return tf.where(operation.outputs[0] > 0, gradient, tf.zeros_like(gradient))


@dataclasses.dataclass
class Outcome:
    """The result of one comparison.

    Attributes:
        wrong: descriptions of the disagreements; empty if the compilers agree.
        worst: the largest difference, as a multiple of the tolerance.
        not_finite: whether NaN or infinity occurs, in the same places of both results.
        at_overflow: whether these are in other places, as they are in disturbed runs of the reference.
        session_alone: whether XLA agrees with native wherever the session does not.
    """

    wrong: list[str] = dataclasses.field(default_factory=list)
    worst: float = 0.0
    not_finite: bool = False
    at_overflow: bool = False
    session_alone: bool = False


class Rivals:
    """The same update in a session and by compilers, on the variables of one agent.

    Raises:
        Unsupported: if the native compiler does not support the update.
    """

    def __init__(self, case: Case, xla: bool = False):
        self._agent = agent = {"DDPG": DDPG, "DQN": DQN}[case.algorithm](case.spaces, case.config, seed=case.seed)
        self._case = case
        update, sizes = agent.symbolic_update, {"batch_size": case.batch, "updates_per_call": case.updates}
        try:
            self._drivers: dict[str, Any] = {
                "native": NativeLearner(update, **sizes, threads=case.options.get("threads", 1))
            }
        except Unsupported:
            agent.close()
            raise
        with agent.graph.gradient_override_map({"Relu": _SELECTED}):
            self._reference = UncompiledLearner(update, **sizes)
            self._disturbed = Disturbed(update, agent.global_variables, case.batch, case.seed)
        if xla:
            self._drivers["xla"] = XLALearner(update, **sizes)
        self._variables = agent.global_variables
        self._initial = self._read()

    def close(self) -> None:
        """Close the sessions."""
        self._disturbed.close()
        self._agent.close()

    def compare(self, case: Case) -> dict[str, Outcome]:
        """Compare each compiler's update with the session's, for a case with this network's options and shapes."""
        start, batch = weights(case, self._initial), minibatches(case)
        expected = self._after(self._reference, start, batch)
        others = [self._disturbed(start, batch, case.updates) for _ in range(DISTURBED)]
        exact = self._disturbed.in_float64(start, batch, case.updates)
        results = {name: self._after(driver, start, batch) for name, driver in self._drivers.items()}
        found = {name: _compared(result, expected, others, exact) for name, result in results.items()}
        if any(outcome.wrong for outcome in found.values()):
            others += [self._disturbed(start, batch, case.updates) for _ in range(MORE)]
            found = {name: _compared(result, expected, others, exact) for name, result in results.items()}
        if found["native"].wrong and "xla" in found:
            compilers = _compared(results["native"], results["xla"], others)
            apart = {text.partition(": ")[0] for text in compilers.wrong}
            found["native"].session_alone = not any(text.partition(": ")[0] in apart for text in found["native"].wrong)
        return found

    def _after(self, driver: Any, start: Mapping[str, np.ndarray], batch: Batch) -> Arrays:
        """Return the variables, metrics and TD errors after the updates."""
        session = self._agent.session
        assign_variables(session.run, list(self._variables.values()), [start[name] for name in self._variables])
        updated: LearnerResult = driver.update(session, batch, self._case.updates)
        errors = {} if updated.td_errors is None else {"TD errors": updated.td_errors}
        return self._read() | {name: np.float32(value) for name, value in updated.metrics.items()} | errors

    def _read(self) -> Arrays:
        return dict(self._agent.session.run(self._variables))


def _compared(ours: Arrays, expected: Arrays, others: list[Arrays], exact: Arrays | None = None) -> Outcome:
    """Compare ``ours`` with ``expected``; disturbed results and, if given, the float64 result set the tolerance."""
    outcome = Outcome()
    for name, array in expected.items():
        kind = _kinds(array)
        outcome.not_finite |= bool(kind.any())
        if not np.array_equal(_kinds(ours[name]), kind):
            if all(np.array_equal(_kinds(other[name]), kind) for other in others):
                outcome.wrong.append(f"{name}: NaN or infinity differ, {_brief(ours[name])} instead of {_brief(array)}")
            outcome.at_overflow = True
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            moved = max(_distance(other[name], array) for other in (*others, *([exact] if exact else ())))
            size = np.max(np.abs(array[kind == 0], dtype=np.float64), initial=0.0)
            tolerance = MAGNIFIED * moved + RELATIVE * size + LEAST
            settled = np.all([np.isfinite(other[name]) for other in others], axis=0)
            apart = _distance(np.where(settled, ours[name], np.nan), array)
            outcome.at_overflow |= _distance(ours[name], array) > max(apart, tolerance)
        outcome.worst = max(outcome.worst, apart / tolerance)
        if apart > tolerance:
            outcome.wrong.append(f"{name}: {apart:.3g} apart, tolerance {tolerance:.3g}, largest {size:.3g}")
    return outcome


def _kinds(array: np.ndarray) -> np.ndarray:
    """Return 0 for finite numbers, 1 for NaN, 2 for infinity and 3 for minus infinity."""
    return np.where(np.isnan(array), 1, np.where(np.isinf(array), np.where(array > 0, 2, 3), 0))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of numbers that are finite in both arrays."""
    both = np.isfinite(one) & np.isfinite(other)
    return float(np.max(np.abs(np.subtract(one, other, dtype=np.float64))[both], initial=0.0))


def _brief(array: np.ndarray) -> str:
    return np.array2string(np.ravel(array)[:4], precision=3)


def _with_xla(case: Case) -> Outcome:
    """Return native's outcome for one case, with XLA as the arbiter."""
    rivals = Rivals(case, xla=True)
    try:
        return rivals.compare(case)["native"]
    finally:
        rivals.close()


def disagreements(case: Case, xla: bool = False) -> list[str]:
    """Return descriptions of the compilers' disagreements on one case."""
    try:
        rivals = Rivals(case, xla)
    except (Unsupported, UsageError):
        return []
    try:
        return [f"{name}: {text}" for name, found in rivals.compare(case).items() for text in found.wrong]
    finally:
        rivals.close()


def shrunk(case: Case, xla: bool, most: int = 80) -> Case:
    """Return the simplest case, found in at most ``most`` tries, on which the compilers still disagree."""
    left = most
    tried = iter(simpler(case))
    while left and (other := next(tried, None)) is not None:
        left -= 1
        if disagreements(other, xla):
            case, tried = other, iter(simpler(other))
    return case


def network_of(seed: int, index: int, xla: bool, algorithm: str = "DDPG") -> tuple[Rivals | Unsupported, list[Case]]:
    """Return a random network, or why the native compiler does not support it, and the cases to compare on it."""
    rng = np.random.default_rng([seed, index])
    while True:
        case = sample(rng, algorithm)
        kinds = rng.permutation(values_of(algorithm))[:KINDS]
        cases = [dataclasses.replace(case, values=str(kind)) for kind in kinds]
        try:
            return Rivals(case, xla), cases
        except Unsupported as reason:
            return reason, cases
        except UsageError:  # some invalid combinations of options are detected only while building
            continue


def fuzz(
    seed: int, networks: range, algorithm: str
) -> Iterator[tuple[dict[str, Any], list[tuple[Case, bool, list[str]]]]]:
    """Yield, for each network, its row of the table and the cases on which the compilers disagree."""
    for index in networks:
        start, xla = time.perf_counter(), index % XLA_EVERY == XLA_EVERY // 2
        rivals, cases = network_of(seed, index, xla, algorithm)
        row: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | {"network": index, "cases": len(cases), "xla": int(xla)}
        wrong = []
        if isinstance(rivals, Unsupported):
            print(f"{index}: not supported: {rivals}", file=sys.stderr)
        else:
            row["translated"] = 1
            for case in cases:
                outcomes = rivals.compare(case)
                if outcomes["native"].wrong and not xla:
                    outcomes["native"] = _with_xla(case)
                alone = outcomes["native"].session_alone
                row["session_alone"] += alone
                texts = [f"{name}: {text}" for name, found in outcomes.items() for text in found.wrong if not alone]
                if texts:
                    wrong.append((case, xla, texts))
                row["not_finite"] += any(found.not_finite for found in outcomes.values())
                row["at_overflow"] += any(found.at_overflow for found in outcomes.values()) and not (texts or alone)
                row["worst"] = max(row["worst"], *(found.worst for found in outcomes.values()))
            rivals.close()
        row |= {
            "disagreements": len(wrong),
            "worst": round(row["worst"], 3),
            "seconds": round(time.perf_counter() - start, 2),
        }
        yield row, wrong
        gc.collect()


def main() -> int:
    """Compare the given case, or a number of random cases; return whether there was a disagreement."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="number of cases")
    parser.add_argument("--algorithm", default="DDPG", choices=("DDPG", "DQN"))
    parser.add_argument("--case", help="compare one case, in the JSON that is printed for a disagreement")
    parser.add_argument("--xla", action="store_true", help="compare this case with XLA, too")
    parser.add_argument("--no-shrink", action="store_true", help="print disagreements without simplifying them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.case:
        found = disagreements(Case.from_json(options.case), options.xla)
        print("\n".join(found) or "no disagreement")
        return bool(found)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / ("compilers.csv" if options.algorithm == "DDPG" else "compilers_dqn.csv")
    done = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            writer.writeheader()
        for row, wrong in fuzz(options.seed, range(len(done), -(-options.count // KINDS)), options.algorithm):
            writer.writerow(row)
            file.flush()
            for case, xla, texts in wrong:
                print(f"{case.to_json()}\n  {texts[0]}", flush=True)
                if not options.no_shrink:
                    small = shrunk(case, xla)
                    print(
                        f"python -m benchmarks.faults.compilers{' --xla' * xla} --case '{small.to_json()}'", flush=True
                    )
    rows = list(csv.DictReader(path.open(newline="")))
    total = {name: sum(float(row[name]) for row in rows) for name in COLUMNS[1:-2]}
    print({name: int(value) for name, value in total.items()}, "worst", max(float(row["worst"]) for row in rows))
    return total["disagreements"] > 0


if __name__ == "__main__":
    sys.exit(main())
