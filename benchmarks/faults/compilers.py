"""Differential fuzzing: native updates against the same updates in an uncompiled session, some against XLA too.

``python -m benchmarks.faults.compilers --seed 0 --count 2000`` samples networks (options and shapes), compares several
kinds of values on each, and writes a row per network to ``results/faults/compilers.csv``. Interrupted, it resumes
after the last row. A disagreement is made as simple as possible and printed as a command that shows it again.

**Tolerance.** float32 sums in another order differ, and an update may magnify that: Adam makes a full step of a
gradient that is rounding alone. So the reference is also run in Monte Carlo arithmetic
(:mod:`benchmarks.faults.disturbed`): inputs and what each op computes are disturbed by some units in the last place.
What its results move by, per array, is how far rounding can move them. The compilers agree where every number is
within 16 times that, and 4e-6 of the array's largest, of the reference, and where NaN and infinities are in the same
places; these may differ only where they also move under the disturbances, and a number that a disturbed run makes
infinite or NaN may be any. The reference in float64 is one more of these results where it is finite: a thousand equal
terms are rounded in the same direction each time, in whatever order, and disturbances do not show it. Three disturbed
runs decide most cases. An array outside is judged again with 21 more: the sign of a gradient that is rounding alone
flips at random, three runs agree on one in a quarter of all cases, and Adam makes a full step of it.

**The arbiter.** Where native still disagrees, XLA compiles the same update, too. If native agrees with XLA, by the same
tolerance, on every array on which the session differs, the session stands alone: a row counts it as ``session_alone``,
not as a disagreement.
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
os.environ.setdefault("DDPG_CACHE", "off")  # every update is compiled here

import gymnasium as gym
import tensorflow as tf

from benchmarks.faults.common import RESULTS
from benchmarks.faults.compiler_cases import VALUES, Case, minibatches, sample, simpler, weights
from benchmarks.faults.disturbed import Disturbed
from ddpg import DDPG, UsageError
from ddpg.compiler.ir import Unsupported
from ddpg.learners.graph import LearnerResult, UncompiledLearner, XLALearner
from ddpg.learners.native import NativeLearner
from ddpg.learners.synced_session import assign_variables
from ddpg.replay.minibatch import Batch

KINDS = 12  # of values, on each network
XLA_EVERY = 20  # networks
DISTURBED, MORE = 3, 21  # runs of the reference on disturbed numbers; more of them where an array is outside
MAGNIFIED, RELATIVE, LEAST = 16.0, 4e-6, 1e-36
COLUMNS = (
    *("network", "cases", "translated", "xla", "not_finite", "at_overflow", "session_alone", "disagreements"),
    *("worst", "seconds"),
)

Arrays = dict[str, np.ndarray]
_SELECTED = "ReluThatSelects"


@tf.RegisterGradient(_SELECTED)
def _relu_gradient(operation: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """Of a unit that is off return 0, as XLA does; TensorFlow's op multiplies by 0, which keeps NaN."""
    return tf.where(operation.outputs[0] > 0, gradient, tf.zeros_like(gradient))


@dataclasses.dataclass
class Outcome:
    """What one comparison gave.

    Attributes:
        wrong: where the compilers disagree, in words; empty: they agree.
        worst: the largest difference, in tolerances.
        not_finite: NaN or infinity is among the numbers, in the same places of both.
        at_overflow: these are in other places, and so they are where the reference is disturbed by rounding.
        session_alone: XLA agrees with native wherever the session does not.
    """

    wrong: list[str] = dataclasses.field(default_factory=list)
    worst: float = 0.0
    not_finite: bool = False
    at_overflow: bool = False
    session_alone: bool = False


class Rivals:
    """The same update for a session and for compilers, on the variables of one agent.

    Raises:
        Unsupported: the native compiler does not know the update.
    """

    def __init__(self, case: Case, xla: bool = False):
        spaces = gym.spaces.Box(-1, 1, (case.observations,)), gym.spaces.Box(-1, 1, (case.actions,))
        self._agent = agent = DDPG(spaces, case.config, seed=case.seed)
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
        """Free the sessions."""
        self._disturbed.close()
        self._agent.close()

    def compare(self, case: Case) -> dict[str, Outcome]:
        """Return what each compiler's update of ``case``, one of the same network, differs by from the session's."""
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
        """Return variables, metrics and TD errors after the updates."""
        session = self._agent.session
        assign_variables(session.run, list(self._variables.values()), [start[name] for name in self._variables])
        updated: LearnerResult = driver.update(session, batch, self._case.updates)
        errors = {} if updated.td_errors is None else {"TD errors": updated.td_errors}
        return self._read() | {name: np.float32(value) for name, value in updated.metrics.items()} | errors

    def _read(self) -> Arrays:
        return dict(self._agent.session.run(self._variables))


def _compared(ours: Arrays, expected: Arrays, others: list[Arrays], exact: Arrays | None = None) -> Outcome:
    """Return how ``ours`` differs from ``expected``, beside disturbed results and, if given, the one of float64."""
    outcome = Outcome()
    for name, array in expected.items():
        kind = _kinds(array)
        outcome.not_finite |= bool(kind.any())
        if not np.array_equal(_kinds(ours[name]), kind):
            if all(np.array_equal(_kinds(other[name]), kind) for other in others):
                outcome.wrong.append(f"{name}: NaN or infinity elsewhere, {_brief(ours[name])} for {_brief(array)}")
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
    """Return 0 where a number is finite, and one number each for NaN and the infinities."""
    return np.where(np.isnan(array), 1, np.where(np.isinf(array), np.where(array > 0, 2, 3), 0))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference where both are finite."""
    both = np.isfinite(one) & np.isfinite(other)
    return float(np.max(np.abs(np.subtract(one, other, dtype=np.float64))[both], initial=0.0))


def _brief(array: np.ndarray) -> str:
    return np.array2string(np.ravel(array)[:4], precision=3)


def _with_xla(case: Case) -> Outcome:
    """Return native's outcome of one case, with XLA as the arbiter."""
    rivals = Rivals(case, xla=True)
    try:
        return rivals.compare(case)["native"]
    finally:
        rivals.close()


def disagreements(case: Case, xla: bool = False) -> list[str]:
    """Return where the compilers disagree on one case."""
    try:
        rivals = Rivals(case, xla)
    except (Unsupported, UsageError):
        return []
    try:
        return [f"{name}: {text}" for name, found in rivals.compare(case).items() for text in found.wrong]
    finally:
        rivals.close()


def shrunk(case: Case, xla: bool, most: int = 80) -> Case:
    """Return the simplest case found, within ``most`` tries, that the compilers still disagree on."""
    left = most
    tried = iter(simpler(case))
    while left and (other := next(tried, None)) is not None:
        left -= 1
        if disagreements(other, xla):
            case, tried = other, iter(simpler(other))
    return case


def network_of(seed: int, index: int, xla: bool) -> tuple[Rivals | Unsupported, list[Case]]:
    """Return one sampled network, or why there is no native update of it, and the cases to compare on it."""
    rng = np.random.default_rng([seed, index])
    while True:
        case = sample(rng)
        cases = [dataclasses.replace(case, values=str(kind)) for kind in rng.permutation(VALUES)[:KINDS]]
        try:
            return Rivals(case, xla), cases
        except Unsupported as reason:
            return reason, cases
        except UsageError:  # options that do not go together, which only building tells
            continue


def fuzz(seed: int, networks: range) -> Iterator[tuple[dict[str, Any], list[tuple[Case, bool, list[str]]]]]:
    """Yield, network by network, its row of the table and the cases that the compilers disagree on."""
    for index in networks:
        start, xla = time.perf_counter(), index % XLA_EVERY == XLA_EVERY // 2
        rivals, cases = network_of(seed, index, xla)
        row: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | {"network": index, "cases": len(cases), "xla": int(xla)}
        wrong = []
        if isinstance(rivals, Unsupported):
            print(f"{index}: not translated: {rivals}", file=sys.stderr)
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
    """Compare one case, or as many as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="cases")
    parser.add_argument("--case", help="one case as JSON, as a disagreement prints it")
    parser.add_argument("--xla", action="store_true", help="that case by XLA, too")
    parser.add_argument("--no-shrink", action="store_true", help="print disagreements as they were found")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.case:
        found = disagreements(Case.from_json(options.case), options.xla)
        print("\n".join(found) or "no disagreement")
        return bool(found)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "compilers.csv"
    done = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            writer.writeheader()
        for row, wrong in fuzz(options.seed, range(len(done), -(-options.count // KINDS))):
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
