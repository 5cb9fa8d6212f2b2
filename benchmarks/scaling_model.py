"""Predict whether the workers or the learner limit the speed of learning, with a model fitted to measurements.

    python -m benchmarks.scaling_model            # prints the tables of docs/scaling.md
    python -m benchmarks.scaling_model --write    # writes them into docs/scaling.md, and draws the figure

It reads results/scaling.json (scaling.py) and results/learner.json (learner.py):

    steps/s of N workers     W(N) = r N / (1 + k (N - 1))
    steps/s of the learner   L = 1 / (u / U + p / 100 + 1 / D)
    steps/s of both          T = min(W, L)

r is the rate of one worker, and k the share by which each further worker slows down all others. Both are fitted to the
logarithms of the measured steps/s. u is the number of updates per step, U the updates/s of the fused learner alone, p
the seconds for publishing weights, which happens once in a rollout of 100 steps, and D the steps/s at which the
learner's process takes transitions when it makes no updates.

Over the network, a worker fetches weights once in 100 of its steps, and sends its transitions:

    down  T / 100 * bytes of the weights, at most: a Ray node fetches each version once for all of its workers
    up    T * bytes of a transition
"""

import argparse
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import least_squares

from benchmarks import marks

HERE = Path(__file__).parent
PAGE, FIGURE = HERE.parent / "docs" / "scaling.md", HERE.parent / "docs" / "scaling.png"
LENGTH = 100  # steps of a rollout
OBSERVATIONS, ACTIONS = 17, 6  # sizes of the measured environment
COUNTS = (1, 2, 4, 8, 10, 100, 1000)
# Networks and minibatches: 64-64 with 64 samples, 256-256 with 256.
LEARNERS = {"64-64": ("fused_small", (64, 64)), "256-256": ("fused_large", (256, 256))}


@dataclasses.dataclass(frozen=True)
class Workers:
    """The fitted model of workers: the steps/s of one worker, and the loss that each further worker causes."""

    rate: float
    loss: float

    def steps(self, count: float) -> float:
        """Return the steps/s of this many workers."""
        return self.rate * count / (1 + self.loss * (count - 1))


@dataclasses.dataclass(frozen=True)
class Learner:
    """The time that a learner needs per step, for updates, publishing and storing.

    Attributes:
        updates_per_second: updates/s of the learner alone.
        publish_seconds: seconds for publishing weights once.
        taken_per_second: transitions/s that the learner's process takes if it makes no updates.
    """

    updates_per_second: float
    publish_seconds: float
    taken_per_second: float

    def steps(self, updates_per_step: float = 1.0) -> float:
        """Return the steps/s that the learner can process."""
        return 1 / (
            updates_per_step / self.updates_per_second + self.publish_seconds / LENGTH + 1 / self.taken_per_second
        )


def fit(counts: list[int], rates: list[float]) -> Workers:
    """Return the model that is nearest to the logarithms of the measurements; its loss is never negative."""
    counts_, logs = np.array(counts, float), np.log(rates)

    def residuals(parameters):
        return np.log(Workers(np.exp(parameters[0]), parameters[1]).steps(counts_)) - logs

    found = least_squares(residuals, [logs[0] - np.log(counts_[0]), 0.01], bounds=([-np.inf, 0], np.inf), xtol=1e-12)
    return Workers(float(np.exp(found.x[0])), float(found.x[1]))


def weight_bytes(hidden: tuple[int, ...]) -> int:
    """Return the bytes of an actor's weights, float32."""
    sizes = (OBSERVATIONS, *hidden, ACTIONS)
    return 4 * sum((before + 1) * after for before, after in itertools.pairwise(sizes))


@dataclasses.dataclass(frozen=True)
class Model:
    """The complete model: the workers of each collector, the learners, and the bytes of a transition."""

    measured: dict[str, list[tuple[int, float]]]
    workers: dict[str, Workers]
    learners: dict[str, dict[str, Learner]]
    transition_bytes: float


def read(results: Path = HERE / "results") -> Model:
    """Return the model that is fitted to the results files."""
    scaling = json.loads((results / "scaling.json").read_text())
    updates = json.loads((results / "learner.json").read_text())["measured"]
    taking = scaling["taking"]
    measured, workers, learners = {}, {}, {}
    for collector, found in scaling["collectors"].items():
        measured[collector] = [(row["workers"], row["steps_per_second"]) for row in found["scaling"]]
        workers[collector] = fit(*map(list, zip(*measured[collector], strict=True)))
        publish = found["broadcast"]["milliseconds"] / 1000
        learners[collector] = {
            name: Learner(updates[key]["median"], publish, taking["steps_per_second"])
            for name, (key, _) in LEARNERS.items()
        }
    return Model(measured, workers, learners, taking["bytes_per_step"])


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"model": page(read())}


def page(model: Model) -> str:
    """Return the tables of the page as Markdown."""
    heads = ["collector", "r, steps/s", "k", "p"]
    heads += [f"{what}, {name}" for name in LEARNERS for what in ("L", "L / r")]
    rows = []
    for collector, workers in model.workers.items():
        learners = [*model.learners[collector].values()]
        cells = [collector, f"{workers.rate:.0f}", f"{100 * workers.loss:.1f} %"]
        cells += [f"{1000 * learners[0].publish_seconds:.1f} ms"]
        for learner in learners:
            cells += [f"{round_(learner.steps())} steps/s", f"{learner.steps() / workers.rate:.1f} workers"]
        rows.append(cells)
    parts = [
        marks.table(heads, rows),
        "Steps/s of the workers alone:",
        _workers(model),
        "Workers and learner, with Ray, a core for each worker (k = 0), one update per step:",
        _both(model),
    ]
    return "\n\n".join([*parts, "\n".join(_network(model))])


def _workers(model: Model) -> str:
    names, rows = [*model.workers], []
    for count in COUNTS:
        cells = [str(count)]
        for name in names:
            measured = dict(model.measured[name]).get(count)
            cells += ["" if measured is None else round_(measured), round_(model.workers[name].steps(count))]
        rows.append([*cells, round_(model.workers[names[-1]].rate * count)])
    heads = ["workers", *(f"{name}, {what}" for name in names for what in ("measured", "fitted")), "k = 0"]
    return marks.table(heads, rows)


def _both(model: Model) -> str:
    collector, rows = [*model.workers][-1], []
    heads = [f"{name}: {what}" for name in LEARNERS for what in ("steps/s", "the limit", "weights down, at most")]
    for count in COUNTS:
        cells, apart = [str(count)], model.workers[collector].rate * count
        for name, (_, hidden) in LEARNERS.items():
            limit = model.learners[collector][name].steps()
            both = min(apart, limit)
            down = both / LENGTH * weight_bytes(hidden) / 1e6
            cells += [round_(both), "learner" if apart > limit else "workers", f"{down:.2g} MB/s"]
        fastest = max(learner.steps() for learner in model.learners[collector].values())
        rows.append([*cells, f"{min(apart, fastest) * model.transition_bytes / 1e6:.2g} MB/s"])
    return marks.table(["workers", *heads, "transitions up"], rows)


def _network(model: Model) -> list[str]:
    """Return sentences about the steps/s of a network of 1 Gbit/s (125 MB/s) and of the learner's process."""
    taken = next(iter(next(iter(model.learners.values())).values())).taken_per_second
    hidden = [*LEARNERS.values()][-1][1]
    down, up = 125e6 * LENGTH / weight_bytes(hidden), 125e6 / model.transition_bytes
    return [
        f"Weights are {weight_bytes(hidden) / 1000:.0f} kB (256-256), a transition {model.transition_bytes:.0f} bytes; "
        f"1 Gbit/s carries the weights of {round_(down)} steps/s and the transitions of {round_(up)}.",
        f"Without updates the learner's process takes {round_(taken)} transitions/s.",
    ]


def round_(number: float) -> str:
    """Return a number with three significant digits and thousands separators."""
    return f"{float(f'{number:.3g}'):,.0f}"


def draw(model: Model, path: Path) -> None:
    """Draw the measurements, the fit, and the learners' limits."""
    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    counts = np.logspace(0, 3, 200)
    colours = {"process": "#0072B2", "ray": "#D55E00"}
    for collector, workers in model.workers.items():
        colour = colours.get(collector, "#009E73")
        axes.plot(*zip(*model.measured[collector], strict=True), "o", color=colour, label=f"{collector}, measured")
        for part, style, label in ((counts <= 8, "--", f"{collector}, fitted"), (counts >= 8, ":", None)):
            fitted = [workers.steps(count) for count in counts[part]]
            axes.plot(counts[part], fitted, style, lw=1.2, color=colour, label=label)
    rate = np.mean([workers.rate for workers in model.workers.values()])
    learners = [*model.learners.values()][-1]
    for (name, learner), colour in zip(learners.items(), ("#555555", "#000000"), strict=True):
        limit = learner.steps()
        axes.plot(counts, np.minimum(rate * counts, limit), color=colour, lw=1.8, alpha=0.8)
        axes.annotate(
            f"learner of {name}: {round_(limit)} steps/s",
            (1000, limit),
            (0, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
        )
    axes.plot([], [], color="#333333", lw=1.8, label="with a learner, a core for each worker (k = 0)")
    axes.plot([], [], ":", color="#333333", lw=1.2, label="fit, extrapolated")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(100, 30_000)
    axes.set_xlabel("workers")
    axes.set_ylabel("environment steps/s")
    axes.set_title("An environment with 5 ms per step, one update per step")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="upper left")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/scaling.md and docs/scaling.png")
    options = parser.parse_args()
    print(*tables().values())
    if options.write:
        marks.write(PAGE, tables())
        draw(read(), FIGURE)


if __name__ == "__main__":
    main()
