"""The tables of the replay memory's cost, and their page."""

from benchmarks import memory


def test_updates_are_compared_with_uniform_sampling():
    drawing = {"uniform": 0.02}
    updates = {"none": 2.0, "n_steps=3": 2.5}
    lines = memory.markdown(
        {
            "transitions": 1000,
            "bytes_per_transition": 102.14,
            "milliseconds_per_minibatch": drawing,
            "milliseconds_per_update": updates,
        }
    ).splitlines()
    assert lines[0] == "102.1 bytes per transition, in a memory of 1,000."
    assert "| uniform | 0.0200 |" in lines
    assert lines[-2:] == ["| none | 2.0000 | 100.0% |", "| n_steps=3 | 2.5000 | 125.0% |"]
