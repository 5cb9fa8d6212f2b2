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


def bound(found: dict) -> float:
    """Return the seconds of an update whose products run at the large one's rate, and its passes at the copy's."""
    machine, seconds, cost = found["machine"], found["seconds"], found["cost"]
    products = cost["product_flop"] / machine["flop"] * seconds["machine: product"][0]
    return products + cost["pass_bytes"] / machine["bytes"] * seconds["machine: copy"][0]


def _per_update(found: dict, part: str) -> str:
    """Return a part's share of our update's time."""
    return _percent(found["seconds"][part][0], found)


def _percent(seconds: float, found: dict) -> str:
    return f"{100 * seconds / found['seconds']['native: whole'][0]:.0f} %"


def _gflops(found: dict, part: str) -> str:
    return f"{found['cost']['product_flop'] / found['seconds'][part][0] / 1e9:,.0f}"


_COUNTS = {
    "matrix products": lambda found: f"{found['cost']['products']}",
    "MFLOP of products": lambda found: f"{found['cost']['product_flop'] / 1e6:,.1f}",
    "kB of products, each matrix once": lambda found: f"{found['cost']['product_bytes'] / 1e3:,.0f}",
    "passes over memory": lambda found: f"{found['cost']['passes']}",
    "MFLOP of passes": lambda found: f"{found['cost']['pass_flop'] / 1e6:,.2f}",
    "kB that passes read and write": lambda found: f"{found['cost']['pass_bytes'] / 1e3:,.0f}",
    "calls from Python, an update": lambda found: f"1/{found['updates_per_call']}",
    "threads that share an update": lambda found: f"{found['threads']}",
    "XLA: kernels of an update": lambda found: f"{sum(found['xla_kernels'].values())}",
}
_RATES = {
    "GFLOP/s of products: ours": lambda found: _gflops(found, "native: products"),
    "... by BLAS": lambda found: _gflops(found, "blas: products"),
    "... by XLA": lambda found: _gflops(found, "xla: products"),
    "... of a product 1,024 × 1,024 × 1,024, BLAS": lambda found: (
        f"{found['machine']['flop'] / found['seconds']['machine: product'][0] / 1e9:,.0f}"
    ),
    "GB/s of a copy in the cache": lambda found: (
        f"{found['machine']['bytes'] / found['seconds']['machine: copy'][0] / 1e9:,.0f}"
    ),
    "µs by these two rates: the bound": lambda found: f"{1e6 * bound(found):,.1f}",
    "of our update: the bound (share reached)": lambda found: _percent(bound(found), found),
    "of our update: its products alone": lambda found: _per_update(found, "native: products"),
    "of our update: its passes alone": lambda found: _per_update(found, "native: passes"),
    "of our update: the same products by BLAS": lambda found: _per_update(found, "blas: products"),
    "of our update: the same products by XLA": lambda found: _per_update(found, "xla: products"),
}
