"""The roofline as tables in Markdown."""

from pathlib import Path

from benchmarks.speed.report import markdown

ROOFLINE = Path(__file__).parents[2] / "results" / "roofline.json"
_PARTS = {
    "native: whole": "an update, ours",
    "native: products": "its products alone",
    "native: passes": "its passes alone",
    "native: nothing": "neither: the call",
    "blas: products": "the same products by NumPy's BLAS",
    "xla: products": "the same products by XLA",
    "xla: whole": "an update by XLA",
}


def roofline_tables(document: dict) -> str:
    """Return what an update costs, and where its time goes."""
    tasks = document["tasks"]
    heads = ["", *tasks]
    costs = [[title, *(text(found) for found in tasks.values())] for title, text in _COUNTS.items()]
    times = [
        [title, *(_microseconds(found["seconds"][part]) for found in tasks.values())] for part, title in _PARTS.items()
    ]
    rates = [[title, *(text(found) for found in tasks.values())] for title, text in _RATES.items()]
    parts = [markdown(heads, costs), "µs of an update, median (least to most):", markdown(heads, [*times, *rates])]
    return "\n\n".join(parts)


def _microseconds(spread: list[float]) -> str:
    middle, least, most = (f"{1e6 * seconds:,.1f}" for seconds in spread)
    return f"{middle} ({least} to {most})"


def _share(found: dict) -> float:
    """Return how much of an update's time the faster one of BLAS and XLA takes for its products."""
    seconds = found["seconds"]
    return min(seconds["blas: products"][0], seconds["xla: products"][0]) / seconds["native: whole"][0]


def _gflops(found: dict, part: str) -> str:
    return f"{found['cost']['product_flop'] / found['seconds'][part][0] / 1e9:,.0f}"


_COUNTS = {
    "matrix products": lambda found: f"{found['cost']['products']}",
    "their MFLOP": lambda found: f"{found['cost']['product_flop'] / 1e6:,.1f}",
    "their kB, each matrix once": lambda found: f"{found['cost']['product_bytes'] / 1e3:,.0f}",
    "passes over memory": lambda found: f"{found['cost']['passes']}",
    "their MFLOP ": lambda found: f"{found['cost']['pass_flop'] / 1e6:,.2f}",
    "their kB": lambda found: f"{found['cost']['pass_bytes'] / 1e3:,.0f}",
    "calls from Python, an update": lambda found: f"1/{found['updates_per_call']}",
    "threads that share an update": lambda found: f"{found['threads']}",
    "XLA: kernels of an update": lambda found: f"{sum(found['xla_kernels'].values())}",
}
_RATES = {
    "GFLOP/s of products: ours": lambda found: _gflops(found, "native: products"),
    "... by BLAS": lambda found: _gflops(found, "blas: products"),
    "... by XLA": lambda found: _gflops(found, "xla: products"),
    "share reached: best products of others / our update": lambda found: f"{100 * _share(found):.0f} %",
}
