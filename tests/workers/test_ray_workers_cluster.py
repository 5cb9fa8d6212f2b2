"""Which Ray cluster workers connect to, and how many CPUs a local one has. A fake replaces Ray."""

from types import SimpleNamespace

import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.errors import EnvironmentFault
from ddpg.workers import ray_workers
from ddpg.workers.ray_workers import connect_to_ray


@pytest.fixture
def init_calls(monkeypatch):
    """Replace Ray with a fake; return the options of each call of its ``init``."""
    calls = []
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **options: calls.append(options))
    monkeypatch.setattr(ray_workers, "import_ray", lambda: ray)
    monkeypatch.setattr(ray_workers, "available_cores", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(ray_workers.socket, "create_connection", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return calls


@pytest.mark.parametrize(("workers", "cpus"), [(4, 4), (2, 4), (9, 9)])
def test_a_local_cluster_has_the_available_cores_or_one_cpu_per_worker(workers, cpus, init_calls):
    connect_to_ray(None, workers)
    assert (init_calls[0]["address"], init_calls[0]["num_cpus"]) == (None, cpus)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379"])
def test_ray_address_in_the_environment_is_used(address, init_calls, monkeypatch):
    connect_to_ray(address, 2)
    monkeypatch.setenv("RAY_ADDRESS", address)
    connect_to_ray(None, 2)
    assert init_calls[0] == init_calls[1]
    assert init_calls[0]["address"] == address
    assert "num_cpus" not in init_calls[0]
    connect_to_ray("10.0.0.2:6379", 2)
    assert init_calls[2]["address"] == "10.0.0.2:6379"
    monkeypatch.setenv("RAY_ADDRESS", "")
    connect_to_ray(None, 2)
    assert init_calls[3]["num_cpus"] == 4


def test_ray_address_in_the_environment_is_checked_before_ray_starts(init_calls, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(ray_workers.socket, "create_connection", refuse)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with refuses(EnvironmentFault, "10.0.0.1:6379"):
        connect_to_ray(None, 2)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with refuses(UsageError, "RAY_ADDRESS 'ray://head:10001'"):
        connect_to_ray(None, 2)
    assert not init_calls


def test_a_cluster_that_answers_but_refuses_is_said_to_have_a_token(init_calls, monkeypatch):
    def refuse(**options):
        raise ConnectionError("Failed to connect")  # all that Ray 2.60 says of a wrong token

    monkeypatch.setattr(ray_workers.import_ray(), "init", refuse)
    with refuses(EnvironmentFault, "10.0.0.1:6379 Failed token RAY_AUTH_TOKEN RAY_AUTH_MODE=token"):
        connect_to_ray("10.0.0.1:6379", 2)
    with refuses(EnvironmentFault, "'auto' Failed"):
        connect_to_ray("auto", 2)
