"""Choose the engine that runs cells: processes of this machine, a Ray cluster, or Slurm."""

import contextlib
from collections.abc import Iterator, Sequence

from ddpg.errors import UsageError, did_you_mean
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import COMMAND, Engine, LocalEngine
from ddpg.studies.slurm_options import SlurmOptions
from ddpg.workers.worker_options import import_ray

ENGINES = ("process", "ray", "slurm")


def check_engine(engine: str, ray_address: str | None, slurm: SlurmOptions | None = None) -> None:
    """Check the name of an engine, and that an address is given to Ray alone, options of jobs to Slurm alone.

    Raises:
        UsageError: if the name is unknown, an option belongs to another engine, or Ray or Slurm is not installed.
    """
    if engine not in ENGINES:
        raise UsageError(f"engine={engine!r} is not one of {', '.join(ENGINES)}{did_you_mean(engine, ENGINES)}")
    if engine == "ray":
        import_ray("engine='ray'", "engine='process'")
    elif ray_address is not None:
        raise UsageError(f"ray_address={ray_address!r} is for engine='ray', got {engine!r}; set one of the two")
    if engine == "slurm":
        slurm_commands.check_installed()
    elif slurm is not None and (changed := slurm.changed()):
        value = getattr(slurm, changed[0])
        raise UsageError(f"{changed[0]}={value!r} is for engine='slurm', got {engine!r}; set one of the two")


@contextlib.contextmanager
def engine_of(
    engine: str,
    jobs: int | None = None,
    ray_address: str | None = None,
    command: Sequence[str] = COMMAND,
    slurm: SlurmOptions | None = None,
) -> Iterator[Engine]:
    """Yield an engine, and close it after the block.

    Args:
        engine: its name.
        jobs: cells at a time; ``None``: one per core, or per CPU of the Ray cluster; with Slurm all.
        ray_address: of a running cluster; ``None``: a new one on this machine.
        command: the ``ddpg`` command.
        slurm: what a job of Slurm asks for.

    Raises:
        UsageError: as :func:`check_engine`.
        EnvironmentFault: if no cluster can be reached or started.
    """
    check_engine(engine, ray_address, slurm)
    found: Engine
    if engine == "ray":
        from ddpg.studies.ray_cells import RayEngine

        found = RayEngine(jobs, ray_address, command)
    elif engine == "slurm":
        from ddpg.studies.slurm_cells import SlurmEngine

        found = SlurmEngine(jobs, slurm, command)
    else:
        found = LocalEngine(jobs, command)
    try:
        yield found
    finally:
        found.close()
