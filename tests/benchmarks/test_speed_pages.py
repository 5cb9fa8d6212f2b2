"""Summaries and tables of the speed benchmark; README and docs/performance.md agree with the committed results."""

import json

from benchmarks import marks
from benchmarks.speed import pages
from benchmarks.speed.report import bfloat16_table, machines_sentence, machines_table, report, short_table, tables
from benchmarks.speed.results import RESULTS
from benchmarks.speed.summary import summarise

TASK = "Pendulum 64-64"
PLACES = [(page, name) for page in (pages.README, pages.PAGE) for name in (pages.SPEED, pages.MACHINES)]
PLACES += [(pages.PAGE, pages.NARROW), (pages.PAGE, pages.ELSEWHERE)]
PLACES += [(pages.UPDATE_PAGE, name) for name in (pages.LIMITS, pages.OPERATIONS, pages.SHARES)]


def row(peer, repeat, kind="training", cores=2, task=TASK, **numbers):
    return {"kind": kind, "task": task, "cores": cores, "peer": peer, "repeat": repeat, **numbers}


ROWS = [
    row(peer, repeat, steps_per_second=rate, cpu_seconds_per_1000_steps=1.0, megabytes=300.0)
    for peer, rates in {"ours": (90, 100, 400), "SBX": (50, 25, 20)}.items()
    for repeat, rate in enumerate(rates)
] + [row("Tianshou", 0, failed="no such module")]
LATENCIES = [row(peer, 0, "acting", 1, microseconds=took) for peer, took in (("ours", 10.0), ("SBX", 40.0))]


def test_ratios_are_of_medians():
    ours, theirs, third = summarise(ROWS)
    spread = ours.spreads["steps_per_second"]
    assert (spread.median, spread.least, spread.most, ours.ratio) == (100, 90, 400, 1)
    assert (theirs.ratio, theirs.ratios) == (4, (2, 5))
    assert (third.why, third.spreads, third.ratio) == ("no such module", {}, None)


def test_less_time_is_better():
    _, theirs = summarise(LATENCIES)
    assert theirs.ratio == 4


def test_without_ours_there_is_no_ratio():
    (theirs,) = summarise(ROWS[3:6])
    assert theirs.ratio is None


def test_the_report_gives_the_reason_of_a_failure():
    text = report([*ROWS, row("SBX", 3, failed="took longer")])
    assert "25 (20 to 50)" in text
    assert "4.00 (1 failed: took longer)" in text
    assert "Tianshou                        (no such module)" in text


def test_each_kind_has_a_table():
    text = tables(ROWS + LATENCIES)
    assert f"| {TASK} | 2 | SBX | 25 (20 to 50) | 1.00 | 300 | × 4.00 |" in text
    assert f"| {TASK} | 2 | Tianshou (no such module) | – | – | – |  |" in text
    assert f"| {TASK} | 1 | SBX | 40.0 | × 4.00 |" in text
    assert text.count("\n|---|") == text.count("factor in our favour") == 2


def test_the_short_table_has_rates_on_one_core_and_on_two():
    one_core = [row("ours", 0, cores=1, steps_per_second=70, cpu_seconds_per_1000_steps=1.0, megabytes=300.0)]
    assert f"| {TASK} | 100 (70) | – (–) | – (–) | – (–) | – (–) |" in short_table(ROWS + one_core)


HERE = {"machine": {"processor": "Abacus", "cores": 2}, "rows": ROWS}
THERE = {
    "machine": {"processor": "Quipu", "generation": "Knots 2", "clock_mhz": 2500, "blas_gflops": {"1": 98.5, "2": 190}},
    "about": "Counted by hand.",
    "rows": [row(peer, 0, steps_per_second=rate) for peer, rate in (("ours", 300), ("SBX", 200), ("Tianshou", 10))],
}


def test_machines_are_compared_in_columns():
    """Both measured SBX: 100 / 25 and 300 / 200. Tianshou failed on one, and ours is not compared with itself."""
    text = machines_table([HERE, THERE])
    assert text.splitlines()[:3] == [
        "| task | cores | package | Abacus | Knots 2 |",
        "|---|---|---|---|---|",
        f"| {TASK} | 2 | SBX | × 4.00 | × 1.50 |",
    ]
    assert "- Abacus, rates not measured" in text
    assert "- Quipu (Knots 2), 2.5 GHz, 98.5 GFLOP/s on one core and 190 GFLOP/s on 2 cores" in text
    assert text.endswith("Counted by hand.")
    assert f"- {TASK}. SBX: 1.5 to 4.0" in machines_sentence([HERE, THERE])


def test_bfloat16_is_compared_with_float32_and_with_others():
    """300 / 100, and 300 / 60 steps/s of Stable-Baselines3; a machine without bfloat16 has no row."""
    rates = {"ours": 100, "ours, bfloat16": 300, "ours, bfloat16x3": 150, "Stable-Baselines3": 60}
    narrow = {
        "machine": {"processor": "Abacus"},
        "rows": [row(peer, 0, steps_per_second=rates[peer]) for peer in rates],
    }
    text = bfloat16_table([THERE, narrow])
    assert text.splitlines()[2:] == [
        f"| Abacus | {TASK} | 2 | bfloat16 | 300 | 100 | × 3.00 | × 5.00 | – | – |",
        f"| Abacus | {TASK} | 2 | bfloat16x3 | 150 | 100 | × 1.50 | × 2.50 | – | – |",
    ]
    assert "Stable-Baselines3 | SBX, 32 updates per 32 steps | RLtools (TD3) |" in text
    assert bfloat16_table([HERE, THERE]) == ""


def test_a_kind_can_compare_with_another_variant_of_ours():
    rates = {"ours, recipe plus": 100, "SBX CrossQ": 20}
    rows = [row(peer, 0, "stronger", 1, "HalfCheetah", steps_per_second=rate) for peer, rate in rates.items()]
    ours, theirs = summarise(rows)
    assert (ours.ratio, theirs.ratio) == (1, 5)


def test_what_one_machine_did_not_measure_is_shown_from_another():
    rates = {"ours, DQN": 100, "Stable-Baselines3 DQN": 20}
    other = {"cpu_seconds_per_1000_steps": 1.0, "megabytes": 300.0}
    rows = [row(peer, 0, "dqn", 1, "CartPole 64-64", steps_per_second=rate, **other) for peer, rate in rates.items()]
    machine = {"processor": "Abacus", "cores": 2}
    text = pages.measured_elsewhere(HERE, [{"machine": machine, "rows": [*ROWS, *rows]}, {"rows": ROWS}])
    assert text.startswith("One measurement each; packages took turns on 2 cores of Abacus.")
    assert "| CartPole 64-64 | 1 | Stable-Baselines3 DQN | 20 | 1.00 | 300 | × 5.00 |" in text
    assert "SBX" not in text
    assert text.count("factor in our favour") == 1


def test_pages_have_the_marks():
    for page, name in PLACES:
        marks.filled(page.read_text(encoding="utf-8"), name, "")


def test_writing_fills_pages_and_draws(tmp_path, monkeypatch):
    for name in ("README", "PAGE"):
        monkeypatch.setattr(pages, name, tmp_path / f"{name}.md")
        parts = (
            f"<!-- {mark}: begin -->\n<!-- {mark}: end -->"
            for mark in (pages.SPEED, pages.MACHINES, pages.NARROW, pages.ELSEWHERE)
        )
        (tmp_path / f"{name}.md").write_text("\n".join(["A", *parts, "Z"]))
    monkeypatch.setattr(pages, "FIGURE", tmp_path / "speed.png")
    for name in ("ROOFLINE", "COUNTS", "PROFILE"):
        monkeypatch.setattr(pages, name, tmp_path / "none.json")
    machine = {"processor": "Abacus", "cores": 2}
    pages.write({"machine": machine, "versions": {"ours": {"numpy": "2.1"}, "SBX": {"numpy": "1.9"}}, "rows": ROWS})
    text = (tmp_path / "PAGE.md").read_text()
    assert "Medians of 1 to 3 measurements" in text
    assert "on 2 cores of Abacus. Versions: numpy 1.9, numpy 2.1." in text
    assert "× 4.00" in text
    front = (tmp_path / "README.md").read_text()
    assert f"| {TASK} | 100 (–) |" in front
    assert "Versions" not in front
    assert (tmp_path / "speed.png").read_bytes()[:4] == b"\x89PNG"


def test_pages_agree_with_the_results():
    """If this fails, run ``python -m benchmarks.speed --write``."""
    for (path, name), text in pages.texts(json.loads(RESULTS.read_text())).items():
        assert marks.between(path.read_text(encoding="utf-8"), name) == text, path
