"""The endurance benchmark: its summary of samples, and how it reads processes and tables."""

import os

import pytest

from benchmarks.faults import common, endurance


def write_samples(folder, memory):
    """Write samples every 50,000 steps whose private memory is ``memory(step)`` MB."""
    lines = [",".join(endurance.COLUMNS)]
    steps = range(50_000, 600_001, 50_000)
    lines += [f"{step},{memory(step)},700,11,10,17,4000000,{step // 10},20000" for step in steps]
    (folder / "endurance_one.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    return tmp_path


def test_growing_memory_is_reported(results):
    """From 350,000 steps on, between checkpoints: 135, 145, 155 MB."""
    write_samples(results, lambda step: 100 + step / 10_000)
    row = endurance.summary("one")
    assert row["private MB"] == "135.0 to 155.0"
    assert row["largest above first"] == "14.81%"
    assert row["tables, bytes a step"] == "0.100"


def test_memory_while_saving_is_reported_separately(results):
    write_samples(results, lambda step: 220 if step % 100_000 == 0 else 200)
    row = endurance.summary("one")
    assert (row["largest above first"], row["while saving"]) == ("0.00%", "10.00%")


def test_a_process_is_measured_from_outside(tmp_path):
    found = endurance.process_of(os.getpid())
    assert found["threads"] >= 1
    assert 0 < found["private_mb"] <= found["peak_mb"]
    assert endurance.process_of(2**22 + 1) is None


def test_the_last_complete_row_is_read(tmp_path):
    table = tmp_path / "metrics.csv"
    assert endurance.last_step(table) is None
    table.write_text("timesteps,fps\n")
    assert endurance.last_step(table) is None
    table.write_text("timesteps,fps\n" + "".join(f"{step},1.5\n" for step in range(2_000)) + "20")
    assert endurance.last_step(table) == 1999
