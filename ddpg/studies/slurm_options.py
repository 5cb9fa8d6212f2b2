"""What a cell asks Slurm for: partition, time, memory, CPUs."""

import dataclasses
import re

from ddpg.config.options import Options, option

_TIME = r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}"  # as sbatch: minutes, minutes:seconds, h:m:s, days-h, days-h:m:s
_MEMORY = r"\d+[KMGT]?"


@dataclasses.dataclass(frozen=True)
class SlurmOptions(Options):
    """What each cell's job asks for; without a value, the cluster's default."""

    slurm_partition: str | None = option(None, "partition of the jobs; none: the cluster's default")
    slurm_account: str | None = option(None, "account that the jobs are charged to; none: the cluster's default")
    slurm_time: str | None = option(
        None,
        "time limit of a job, as sbatch takes it (02:00:00); a cell that needs longer saves, and goes on in the same "
        "job requeued; none: the partition's",
        metavar="TIME",
    )
    slurm_memory: str | None = option(
        None, "memory of a job, as sbatch takes it (4G); none: the partition's", metavar="SIZE"
    )
    slurm_cpus: int = option(1, "CPUs of a job, which are its threads", at_most=4096)
    slurm_option: tuple[str, ...] = option((), "a further option of sbatch; may be repeated", metavar="=--NAME=VALUE")

    def __post_init__(self):
        super().__post_init__()
        self._check(self.slurm_cpus >= 1, "slurm_cpus", "at least 1")
        for name in ("slurm_partition", "slurm_account"):
            value = getattr(self, name)
            self._check(value is None or bool(re.fullmatch(r"[\w.+,@-]+", value)), name, "a name known to Slurm")
        self._check(
            self.slurm_time is None or bool(re.fullmatch(_TIME, self.slurm_time)),
            "slurm_time",
            "minutes, hours:minutes:seconds or days-hours, such as 02:00:00",
        )
        self._check(
            self.slurm_memory is None or bool(re.fullmatch(_MEMORY, self.slurm_memory)),
            "slurm_memory",
            "a number of megabytes, or a number with K, M, G or T, such as 4G",
        )
        self._check(
            all(re.fullmatch(r"--?[A-Za-z][^\x00-\x1f]*", word) and len(word) < 4096 for word in self.slurm_option),
            "slurm_option",
            "options of sbatch that begin with -, such as --gres=gpu:1",
        )

    def sbatch_words(self) -> list[str]:
        """Return the options of ``sbatch``."""
        named = {
            "partition": self.slurm_partition,
            "account": self.slurm_account,
            "time": self.slurm_time,
            "mem": self.slurm_memory,
            "cpus-per-task": self.slurm_cpus,
        }
        return [*self.slurm_option, *(f"--{name}={value}" for name, value in named.items() if value is not None)]

    def command_flags(self) -> list[str]:
        """Return the flags of ``ddpg study`` that differ from their defaults."""
        found = []
        for field in dataclasses.fields(SlurmOptions):
            value, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                found += [f"{flag}={one}" for one in (value if isinstance(value, tuple) else (value,))]
        return found

    def changed(self) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        return [field.name for field in dataclasses.fields(SlurmOptions) if getattr(self, field.name) != field.default]
