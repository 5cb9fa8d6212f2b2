"""Commands in messages, such as the one that resumes a run: quoted, so that they can be copied into a shell."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from ddpg.config.imports import references_of
from ddpg.runs import run_directory


def command_for(verb: str, run: Path, document: Mapping[str, Any], *flags: str) -> str:
    """Return the command ``ddpg VERB RUN`` with the flags that the run needs; ``document`` is its ``config.json``."""
    return shlex.join(["ddpg", verb, as_argument(run), *allow_import_flags(*references_of(document)), *flags])


def as_argument(path: PurePath) -> str:
    """Return a path as an argument of a command that does not look like a flag.

    Its parts are separated by ``/``, also on Windows: with a backslash it would be quoted, for POSIX shells.
    """
    text = path.as_posix()
    return f"./{text}" if text.startswith("-") else text


def allow_import_flags(*names: str) -> list[str]:
    """Return the ``--allow-import`` flags for names ``module:Name``, one for each module."""
    modules = dict.fromkeys(name.rpartition(":")[0] for name in names)
    return [word for module in modules if module for word in ("--allow-import", module)]


class ResumeCommand(NamedTuple):
    """How a run is resumed: its directory, its ``config.json``, and flags that this file does not hold."""

    run: Path
    document: Mapping[str, Any]
    flags: Sequence[str] = ()

    def text(self, *flags: str) -> str:
        """Return the command, with further flags."""
        return command_for("resume", self.run, self.document, *self.flags, *flags)

    def hint(self) -> str:
        """Return a sentence with the step from which the run can be resumed, and the command."""
        newest = run_directory.checkpoints(self.run)[-1:]
        return f"go on from step {newest[0].name} with: {self.text()}" if newest else "it has no checkpoint"


def without_resume_hint(text: str) -> str:
    """Return a message without the sentence of :meth:`ResumeCommand.hint` at its end."""
    return re.sub(r"(; with that put right)?[;,] go on from step \d+ with: .*", "", text)
