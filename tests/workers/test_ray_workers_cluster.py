"""Which Ray cluster is connected to, and how large one of this machine is. Ray itself is not needed."""

from types import SimpleNamespace

import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.errors import EnvironmentFault
from ddpg.workers import ray_workers
from ddpg.workers.ray_workers import connect_to_ray


@pytest.fixture
def begun(monkeypatch):
    """In the place of Ray; what its ``init`` was called with."""
    calls = []
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **options: calls.append(options))
    monkeypatch.setattr(ray_workers, "import_ray", lambda: ray)
    monkeypatch.setattr(ray_workers, "available_cores", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(ray_workers.socket, "create_connection", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return calls


@pytest.mark.parametrize(("asked", "cpus"), [(4, 4), (2, 4), (9, 9)])
def test_a_cluster_of_this_machine_has_the_cores_that_this_process_may_use(asked, cpus, begun):
    connect_to_ray(None, asked)
    assert (begun[0]["address"], begun[0]["num_cpus"]) == (None, cpus)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379"])
def test_an_address_of_the_environment_is_one(address, begun, monkeypatch):
    connect_to_ray(address, 2)
    monkeypatch.setenv("RAY_ADDRESS", address)
    connect_to_ray(None, 2)
    assert begun[0] == begun[1]
    assert begun[0]["address"] == address
    assert "num_cpus" not in begun[0]
    connect_to_ray("10.0.0.2:6379", 2)
    assert begun[2]["address"] == "10.0.0.2:6379"
    monkeypatch.setenv("RAY_ADDRESS", "")
    connect_to_ray(None, 2)
    assert begun[3]["num_cpus"] == 4


def test_an_address_of_the_environment_is_looked_at_first(begun, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(ray_workers.socket, "create_connection", refuse)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with refuses(EnvironmentFault, "10.0.0.1:6379"):
        connect_to_ray(None, 2)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with refuses(UsageError, "RAY_ADDRESS 'ray://head:10001'"):
        connect_to_ray(None, 2)
    assert not begun
