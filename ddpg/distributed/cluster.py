"""Connecting this process to a Ray cluster: one that is there, or one of this machine."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

from ddpg.distributed.choosing import import_ray
from ddpg.errors import EnvironmentFault, UsageError
from ddpg.experience.faults import said
from ddpg.native.cores import available_cores


def connect(address: str | None, cpus: int) -> tuple[Any, bool]:
    """Connect, unless this process is connected already.

    Args:
        address: ``HOST:PORT`` of a cluster's head, or ``"auto"``; none: the one that this process is connected to, that
            of the environment variable ``RAY_ADDRESS``, or one of this machine.
        cpus: of a cluster of this machine; at least those that this process may use.

    Returns:
        Ray, and whether the connection is this call's, so that who called ends it.

    Raises:
        UsageError: Ray is not installed, or an address that is none.
        EnvironmentFault: no cluster can be reached or started.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray, False
    name = "ray_address"
    if address is None:
        name, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS") or None
    if address is not None and address != "auto":
        _check_reachable(name, address)
    here = address is None
    size = {"num_cpus": max(cpus, available_cores()), "include_dashboard": False} if here else {}
    with _handlers_kept():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **size)
        except Exception as error:  # whatever Ray raises where nobody answers
            where = (
                "a cluster on this machine could not be started" if here else f"no Ray cluster answers at {address!r}"
            )
            raise EnvironmentFault(f"{where}: {said(error)}") from None
    return ray, True


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Bring the handlers of signals back: Ray takes SIGTERM for itself."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _check_reachable(name: str, address: str) -> None:
    """Refuse an address that is none, or where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise UsageError(f"{name}={address!r} must be 'auto', or HOST:PORT of a cluster's head such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFault(
            f"no Ray cluster answers at {address!r} ({said(error)}); start one with: ray start --head"
        ) from None
