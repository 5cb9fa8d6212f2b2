"""Which engine trains the cells of a study or a tuning, and its options; checked before anything is begun."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from ddpg.errors import UsageError
from ddpg.interaction.validation import validate_choice
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import COMMAND, Engine, LocalEngine
from ddpg.studies.slurm_commands import SlurmOptions
from ddpg.workers.worker_options import import_ray

ENGINES = ("process", "ray", "slurm")


@dataclasses.dataclass(frozen=True)
class EngineChoice:
    """An engine by its name, and its options.

    Attributes:
        name: ``"process"``: processes on this machine, which share its cores; ``"ray"``: actors on a Ray cluster, one
            CPU each; ``"slurm"``: Slurm array jobs.
        jobs: maximum number of cells at a time; ``None``: one per core, or per CPU of the Ray cluster; all with Slurm.
        ray_address: address of a running cluster; ``None``: a new one on this machine, which ends with the study.
        slurm: the resources that each Slurm job requests.
        command: the ``ddpg`` command of the cells.
    """

    name: str = "process"
    jobs: int | None = None
    ray_address: str | None = None
    slurm: SlurmOptions = SlurmOptions()
    command: Sequence[str] = COMMAND

    def check(self) -> None:
        """Check the name, and that the other options belong to that engine.

        Raises:
            UsageError: if the name is unknown, an option belongs to another engine, or Ray or Slurm is not installed.
        """
        validate_choice(self.name, "engine", ENGINES)
        if self.name == "ray":
            import_ray("engine='ray'", "engine='process'")
        elif self.ray_address is not None:
            raise UsageError(
                f"ray_address={self.ray_address!r} is for engine='ray', got {self.name!r}; set one of the two"
            )
        if self.name == "slurm":
            slurm_commands.check_installed()
        elif changed := self.slurm.changed():
            value = getattr(self.slurm, changed[0])
            raise UsageError(f"{changed[0]}={value!r} is for engine='slurm', got {self.name!r}; set one of the two")

    def command_flags(self) -> list[str]:
        """Return the flags of ``ddpg study`` that choose this engine and its options, except ``--jobs``."""
        name = [] if self.name == "process" else ["--engine", self.name]
        address = [] if self.ray_address is None else ["--ray-address", self.ray_address]
        return [*name, *address, *self.slurm.command_flags()]

    @contextlib.contextmanager
    def started(self) -> Iterator[Engine]:
        """Yield the engine, which has been checked, and close it after the block.

        Raises:
            EnvironmentFault: if no cluster can be reached or started.
        """
        engine: Engine
        if self.name == "ray":
            from ddpg.studies.ray_cells import RayEngine

            engine = RayEngine(self.jobs, self.ray_address, self.command)
        elif self.name == "slurm":
            from ddpg.studies.slurm_cells import SlurmEngine

            engine = SlurmEngine(self.jobs, self.slurm, self.command)
        else:
            engine = LocalEngine(self.jobs, self.command)
        try:
            yield engine
        finally:
            engine.close()
