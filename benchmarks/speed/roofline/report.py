"""Format the roofline measurements as Markdown tables."""

from pathlib import Path

from benchmarks import marks

ROOFLINE = Path(__file__).parents[2] / "results" / "roofline.json"
_PARTS = {
    "native: whole": "our update",
    "native: products": "its products alone",
    "native: passes": "its passes alone",
    "native: nothing": "neither: the call alone",
    "blas: products": "the same products by NumPy's BLAS",
    "xla: products": "the same products by XLA",
    "xla: whole": "XLA's update",
}


def roofline_tables(document: dict) -> str:
    """Return tables of an update's counts, and of the times and rates of its parts."""
    tasks = document["tasks"]
    heads = ["", *tasks]
    costs = [[title, *(text(found) for found in tasks.values())] for title, text in _COUNTS.items()]
    times = [
        [title, *(_microseconds(found["seconds"][part]) for found in tasks.values())] for part, title in _PARTS.items()
    ]
    rates = [[title, *(text(found) for found in tasks.values())] for title, text in _RATES.items()]
    counted, measured = marks.table(heads, costs), marks.table(heads, [*times, *rates])
    return f"{counted}\n\nµs per update, median (minimum to maximum):\n\n{measured}"


def _microseconds(spread: list[float]) -> str:
    middle, least, most = (f"{1e6 * seconds:,.1f}" for seconds in spread)
    return f"{middle} ({least} to {most})"


def bound(found: dict) -> float:
    """Return the seconds of an update whose products run at a large product's rate, and its passes at a copy's rate."""
    machine, seconds, cost = found["machine"], found["seconds"], found["cost"]
    products = cost["product_flop"] / machine["flop"] * seconds["machine: product"][0]
    return products + cost["pass_bytes"] / machine["bytes"] * seconds["machine: copy"][0]


def _share(found: dict, part: str) -> str:
    """Return a part's time as a share of our update's time."""
    return _percent(found["seconds"][part][0], found)


def _percent(seconds: float, found: dict) -> str:
    return f"{100 * seconds / found['seconds']['native: whole'][0]:.0f} %"


def _gflops(found: dict, part: str) -> str:
    return f"{found['cost']['product_flop'] / found['seconds'][part][0] / 1e9:,.0f}"


_COUNTS = {
    "matrix products": lambda found: f"{found['cost']['products']}",
    "MFLOP of products": lambda found: f"{found['cost']['product_flop'] / 1e6:,.1f}",
    "kB of products, each matrix counted once": lambda found: f"{found['cost']['product_bytes'] / 1e3:,.0f}",
    "passes over memory": lambda found: f"{found['cost']['passes']}",
    "MFLOP of passes": lambda found: f"{found['cost']['pass_flop'] / 1e6:,.2f}",
    "kB that passes read and write": lambda found: f"{found['cost']['pass_bytes'] / 1e3:,.0f}",
    "calls from Python per update": lambda found: f"1/{found['updates_per_call']}",
    "threads per update": lambda found: f"{found['threads']}",
    "XLA's kernels per update": lambda found: f"{sum(found['xla_kernels'].values())}",
}
_RATES = {
    "GFLOP/s of products: ours": lambda found: _gflops(found, "native: products"),
    "... by BLAS": lambda found: _gflops(found, "blas: products"),
    "... by XLA": lambda found: _gflops(found, "xla: products"),
    "... BLAS, one product of 1,024 × 1,024 × 1,024": lambda found: (
        f"{found['machine']['flop'] / found['seconds']['machine: product'][0] / 1e9:,.0f}"
    ),
    "GB/s of a copy in the cache": lambda found: (
        f"{found['machine']['bytes'] / found['seconds']['machine: copy'][0] / 1e9:,.0f}"
    ),
    "bound from the last two rates, µs": lambda found: f"{1e6 * bound(found):,.1f}",
    "bound / our update (share reached)": lambda found: _percent(bound(found), found),
    "its products alone / our update": lambda found: _share(found, "native: products"),
    "its passes alone / our update": lambda found: _share(found, "native: passes"),
    "the same products by BLAS / our update": lambda found: _share(found, "blas: products"),
    "the same products by XLA / our update": lambda found: _share(found, "xla: products"),
}
