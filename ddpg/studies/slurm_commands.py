"""Submit, list and end Slurm jobs with Slurm's commands; no other module calls these.

:class:`SlurmOptions` holds the resources that a job requests. A job is identified by its name, which is unique for a
batch of cells, and its index in the batch's array. So it is found even if ``sbatch`` timed out after submitting it, or
if the command that submitted it was killed.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from ddpg.checkpoints import safe_json
from ddpg.config.options import Options, option
from ddpg.errors import EnvironmentFault, UsageError

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
ENDED = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"]
)  # a job in any other state may still run
_TIMEOUT = 120.0  # seconds to wait for an answer; Slurm's default MessageTimeout is 10
DELIVERY = 4.0  # seconds to wait for scancel to send a signal; it repeats one after 5
_COLUMNS = "JobArrayID:60,Name:60,State:30,exit_code:20,NodeList:200"
_PASSING = re.compile(r"unable to contact|timed out|try again|temporarily|connection (refused|reset)", re.IGNORECASE)
_FILTERS = ("SQUEUE_", "SCANCEL_")  # variables of the user's that would hide jobs from squeue and scancel
_TIME = r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}"  # as sbatch: minutes, minutes:seconds, h:m:s, days-h, days-h:m:s
_NAME = r"[\w.+,@-]+"


@dataclasses.dataclass(frozen=True)
class SlurmOptions(Options):
    """The resources that each cell's job requests; an option without a value leaves the cluster's default."""

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
        for name, pattern, expected in (
            ("slurm_partition", _NAME, "a name known to Slurm"),
            ("slurm_account", _NAME, "a name known to Slurm"),
            ("slurm_time", _TIME, "minutes, hours:minutes:seconds or days-hours, such as 02:00:00"),
            ("slurm_memory", r"\d+[KMGT]?", "a number of megabytes, or a number with K, M, G or T, such as 4G"),
        ):
            value = getattr(self, name)
            self._check(value is None or bool(re.fullmatch(pattern, value)), name, expected)
        self._check(
            all(re.fullmatch(r"--?[A-Za-z][^\x00-\x1f]*", word) and len(word) < 4096 for word in self.slurm_option),
            "slurm_option",
            "options of sbatch that begin with -, such as --gres=gpu:1",
        )

    def sbatch_words(self) -> list[str]:
        """Return these options as arguments of ``sbatch``."""
        named = {
            "partition": self.slurm_partition,
            "account": self.slurm_account,
            "time": self.slurm_time,
            "mem": self.slurm_memory,
            "cpus-per-task": self.slurm_cpus,
        }
        return [*self.slurm_option, *(f"--{name}={value}" for name, value in named.items() if value is not None)]

    def command_flags(self) -> list[str]:
        """Return the options that differ from their defaults as flags of ``ddpg study``."""
        found = []
        for name in self.changed():
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            found += [f"{flag}={one}" for one in (value if isinstance(value, tuple) else (value,))]
        return found

    def changed(self) -> list[str]:
        """Return the names of the options that differ from their defaults."""
        return [field.name for field in dataclasses.fields(SlurmOptions) if getattr(self, field.name) != field.default]


class Unavailable(EnvironmentFault):
    """Slurm does not answer at the moment, so the call may succeed later."""


class JobState(NamedTuple):
    """A job as Slurm lists it; ``exit_status`` is negative if a signal ended it."""

    job: str
    state: str
    exit_status: int
    node: str

    @property
    def array(self) -> int:
        """The number of its array; later arrays have larger ones."""
        return int(self.job.partition("_")[0])

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again."""
        return self.state in ENDED


def check_installed() -> None:
    """Check that Slurm's commands are installed.

    Raises:
        UsageError: if one is missing.
    """
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"engine='slurm' needs the command {missing[0]!r}, which is not on the PATH; call it on a machine that "
            "submits to Slurm, or take engine='process'"
        )


def submit(script: str, options: Sequence[str]) -> str:
    """Submit a batch script; return the job's number.

    Raises:
        Unavailable: if Slurm does not answer; the job may have been submitted nevertheless.
        EnvironmentFault: if Slurm refuses the job.
    """
    answer = _call("sbatch", "--parsable", *options, script)
    return answer.strip().partition(";")[0]


def jobs() -> dict[tuple[str, int], JobState]:
    """Return this user's array jobs, including those that ended a few minutes ago, by name and index in the array.

    Of two with the same name and index, as when a study's folder was removed and the study begun again, it is the
    newer. Slurm may list no job for the index of one that was cancelled before it began.

    Raises:
        Unavailable: if Slurm does not answer, or the command fails for any other reason.
    """
    try:
        listed = _call("squeue", "--me", "--array", "--noheader", "--states=all", f"--Format={_COLUMNS}")
    except EnvironmentFault as error:
        raise Unavailable(str(error)) from None
    found: dict[tuple[str, int], JobState] = {}
    for words in (line.split() for line in listed.splitlines()):
        if len(words) >= 4 and (match := re.fullmatch(r"\d+_(\d+)", words[0])) and words[3].isdecimal():
            ended = os.waitstatus_to_exitcode(int(words[3]) & 0xFFFF) if words[2] in ENDED else 0
            key, state = (words[1], int(match[1])), JobState(words[0], words[2], ended, " ".join(words[4:5]))
            if key not in found or found[key].array < state.array:
                found[key] = state
    return found


def ended_job(job: str) -> JobState | None:
    """Return the final state of a job that ``squeue`` no longer lists, from Slurm's accounting; ``None``: unknown."""
    try:
        answer = _call("sacct", "-X", "-n", "-P", "-j", job, "--format=State,ExitCode,NodeList")
    except EnvironmentFault:  # many clusters have no accounting
        return None
    for line in answer.splitlines():
        if match := re.fullmatch(r"([^\s|]+)[^|]*\|(\d+):(\d+)\|(.*)", line):  # e.g. "CANCELLED by 1000|0:15|node7"
            state, status, signal, node = match.groups()
            return JobState(job, state, -int(signal) or int(status), node)
    return None


def end(job: JobState, signal: str) -> None:
    """Cancel a waiting job, or send a signal to the batch script of a running one; a finished job is not affected.

    A job that has begun since it was listed as waiting is cancelled: it gets SIGTERM. With the filter
    ``--state=PENDING``, scancel would cancel all waiting jobs of the array.

    While other jobs of its array wait, Slurm sends a signal to the running one, but answers that it cannot, and scancel
    repeats both for a minute and a half. So scancel gets only the time for one attempt.
    """
    with contextlib.suppress(EnvironmentFault):  # the caller repeats the call while the job is listed
        if job.state == "PENDING":
            _call("scancel", job.job)
        else:
            _call("scancel", "--batch", f"--signal={signal}", job.job, timeout=DELIVERY)


def requeue(job: str) -> bool:
    """Requeue a running job, which ends its current execution; return whether Slurm accepted that."""
    try:
        _call("scontrol", "requeue", job)
    except EnvironmentFault:
        return False
    return True


def _call(*words: str, timeout: float = _TIMEOUT) -> str:
    """Return the output of a command, which has ``timeout`` seconds to end.

    Raises:
        Unavailable: if the command fails for a temporary reason.
        EnvironmentFault: if it fails for another reason.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_FILTERS)}
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{words[0]} did not answer within {timeout:g} s; is Slurm's controller up?") from None
    except OSError as error:
        raise EnvironmentFault(f"{words[0]} cannot be called ({error.strerror}); is Slurm installed?") from None
    if done.returncode != 0:
        said = safe_json.one_line(" ".join(done.stderr.split())[-500:] or "without a reason")
        kind = Unavailable if _PASSING.search(done.stderr) else EnvironmentFault
        raise kind(f"{words[0]} failed with status {done.returncode}: {said}")
    return done.stdout
