"""Which collectors there are, and what each of them takes. No TensorFlow here."""

from typing import Any

from ddpg.errors import UsageError, did_you_mean
from ddpg.experience.values import as_whole

COLLECTORS = ("local", "process", "ray")


def check_collector(collector: str, workers: int | None, ray_address: str | None) -> None:
    """Refuse what is no collector, and what belongs to another one.

    Args:
        collector: ``"local"``: this process steps the environment; ``"process"``, ``"ray"``: workers do.
        workers: how many; none of ``"local"``.
        ray_address: of a cluster, for ``"ray"``.

    Raises:
        UsageError: it is not one of these, workers or an address that it has no use for, none where it needs them, or
            no Ray.
    """
    if collector not in COLLECTORS:
        known = ", ".join(COLLECTORS)
        raise UsageError(f"collector={collector!r} is not one of {known}{did_you_mean(collector, COLLECTORS)}")
    if collector == "local" and workers is not None:
        raise UsageError(
            f"workers={workers} are for collector='process' or 'ray', got 'local'; set --collector process beside it"
        )
    if collector != "local" and workers is None:
        raise UsageError(f"collector={collector!r} needs workers; give their number: --workers 4")
    if workers is not None and as_whole(workers, "workers", at_least=1) > 1024:
        raise UsageError(f"workers={workers} must be a whole number from 1 to 1024")
    if ray_address is not None and collector != "ray":
        raise UsageError(f"ray_address={ray_address!r} is for collector='ray', got {collector!r}; set one of the two")
    if collector == "ray":
        import_ray()


def import_ray() -> Any:
    """Return the module.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(
            f"collector='ray' needs the package {error.name!r}; install the extra 'ray', or take collector='process'"
        ) from None
    return ray
