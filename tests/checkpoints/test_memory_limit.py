"""The memory limit is the least of physical memory, the container's limit and the process's limit."""

import resource

import pytest

from ddpg.checkpoints import memory_limit


@pytest.mark.parametrize(
    ("container", "process", "expected"),
    [
        ("max\n", resource.RLIM_INFINITY, 8e9),
        (None, resource.RLIM_INFINITY, 8e9),
        ("3000000000\n", resource.RLIM_INFINITY, 3e9),
        ("3000000000\n", 2_000_000_000, 2e9),
        ("9000000000\n", 9_000_000_000, 8e9),
    ],
)
def test_the_smallest_limit_applies(monkeypatch, tmp_path, container, process, expected):
    if container:
        (tmp_path / "memory.max").write_text(container)
    monkeypatch.setattr(memory_limit, "_LIMITS", (str(tmp_path / "memory.max"),))
    monkeypatch.setattr(memory_limit.os, "sysconf", {"SC_PAGE_SIZE": 4000, "SC_PHYS_PAGES": 2_000_000}.__getitem__)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (process, resource.RLIM_INFINITY))
    assert memory_limit.memory_limit() == expected


def test_an_unknown_limit_is_a_large_number(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(memory_limit.os, "sysconf", unknown)
    monkeypatch.setattr(memory_limit, "_LIMITS", ())
    assert memory_limit.memory_limit() >= 1 << 40
