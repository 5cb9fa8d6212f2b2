"""Which options a collector accepts, and the error without Ray."""

import sys

import pytest
from refusals import refuses

from ddpg import UsageError, train
from ddpg.workers.worker_options import check_collector


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("proces", 2, None), "'process'"),
        (("local", 2, None), "workers 2 collector process ray"),
        (("process", None, None), "workers"),
        (("process", 0, None), "workers"),
        (("process", 2000, None), "1 1024"),
        (("process", 2, "auto"), "collector ray"),
    ],
)
def test_inconsistent_collector_options_are_refused(chosen, message):
    with refuses(UsageError, message):
        check_collector(*chosen)


def test_consistent_collector_options_are_accepted():
    check_collector("local", None, None)
    check_collector("process", 1, None)


def test_without_ray_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with refuses(UsageError, "ray") as caught:
        train("Pendulum-v1", collector="ray", workers=2, root=tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
