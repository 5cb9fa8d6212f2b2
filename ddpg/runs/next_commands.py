"""The commands that messages about a run name, as they can be copied into a shell."""

import shlex
from pathlib import Path

from ddpg.runs import directory


def command_for(verb: str, run: Path, env_id: str, *flags: str) -> str:
    """Return the ``ddpg`` command that does ``verb`` with a run in ``env_id``."""
    return shlex.join(["ddpg", verb, str(run), *leave_to_import(env_id), *flags])


def leave_to_import(*env_ids: str) -> list[str]:
    """Return the flags by which a command may import the modules of environments named ``module:Id``, each once."""
    modules = dict.fromkeys(env_id.rpartition(":")[0] for env_id in env_ids)
    return [word for module in modules if module for word in ("--allow-import", module)]


def how_to_go_on(run: Path, env_id: str) -> str:
    """Say from where a run can be resumed, and how."""
    newest = directory.checkpoints(run)[-1:]
    command = command_for("resume", run, env_id)
    return f"go on from step {newest[0].name} with: {command}" if newest else "it has no checkpoint"
