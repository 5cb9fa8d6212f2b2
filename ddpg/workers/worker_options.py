"""Check the choice of the collector, and that it supports the agent's options. TensorFlow is not imported."""

import multiprocessing
import sys
from typing import Any

from ddpg.config.algorithm_options import AgentConfig
from ddpg.config.imports import name_of
from ddpg.errors import UsageError, brief, import_optional
from ddpg.interaction.validation import validate_choice, validate_int, validate_text

COLLECTORS = ("local", "process", "ray")
GUARD = 'if __name__ == "__main__":'


def check_not_importing(what: str) -> None:
    """Check that this is not a worker process that is still importing the user's script, which calls ``what``.

    Otherwise every worker process would train, too, into run directories of its own.

    Raises:
        UsageError: if it is.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # set by multiprocessing during the import
        raise UsageError(
            f"{what} is called while a worker process imports the script that started it; put what the script does "
            f"under {GUARD}"
        )


def check_main_is_a_file(what: str) -> None:
    """Check that worker processes can import the main module, which they cannot if Python reads it from stdin.

    Raises:
        UsageError: if they cannot.
    """
    if getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
        raise UsageError(
            f"{what} needs a script in a file, because every worker process imports it, and this one comes from "
            f"standard input: save it as a file, with what it does under {GUARD}"
        )


def check_collector(collector: str, workers: int | None, ray_address: str | None) -> None:
    """Check the collector's name and that the other two arguments belong to it.

    Args:
        collector: ``"local"``: this process steps the environment; ``"process"``, ``"ray"``: workers do.
        workers: number of workers; ``None`` with ``"local"``.
        ray_address: address of a cluster; only with ``"ray"``.

    Raises:
        UsageError: if the name is unknown, an argument is missing or belongs to another collector, or Ray is not
            installed.
    """
    validate_choice(collector, "collector", COLLECTORS)
    if collector == "local" and workers is not None:
        raise UsageError(
            f"workers={brief(workers)} are for collector='process' or 'ray', got 'local'; set the collector to one of "
            "the two, or leave workers out"
        )
    if collector != "local" and workers is None:
        raise UsageError(f"collector={brief(collector)} needs workers; give their number, such as workers=4")
    if workers is not None and validate_int(workers, "workers", at_least=1) > 1024:
        raise UsageError(f"workers={workers} must be a whole number from 1 to 1024")
    if ray_address is not None:
        validate_text(ray_address, "ray_address", "the address of a Ray cluster, or None")
    if ray_address is not None and collector != "ray":
        raise UsageError(
            f"ray_address={brief(ray_address)} is for collector='ray', got {brief(collector)}; set one of the two"
        )
    if collector == "ray":
        import_ray()


def check_options(config: AgentConfig, n_envs: int = 1) -> None:
    """Check that workers support all options.

    Raises:
        UsageError: if they do not support some; the message names each of these options and the reason.
    """
    noise = getattr(config, "noise", None)
    reasons = {
        f"n_envs={n_envs}": n_envs != 1 and "each worker has one environment; take more workers",
        f"noise={name_of(noise)}": noise is not None
        and not isinstance(noise, str)
        and "checkpoints hold what such an object remembers, and it would be in the workers",
        f"parameter_noise={getattr(config, 'parameter_noise', 0)}": getattr(config, "parameter_noise", 0) > 0
        and "its size is adapted to the actions of one learner's copy; take noise_scale",
        "overlap=True": config.overlap and "workers step their environments while the learner learns as it is",
        f"step_timeout={config.step_timeout}": config.step_timeout is not None
        and "a worker that hangs is found by its rollouts, and replaced",
    }
    refused = [f"{option} ({why})" for option, why in reasons.items() if why]
    if refused:
        raise UsageError(f"collectors other than 'local' cannot have {'; '.join(refused)}: change that, or stay local")


def import_ray(what: str = "collector='ray'", instead: str = "collector='process'") -> Any:
    """Return the module ``ray``.

    Args:
        what: the setting that needs Ray, for the message.
        instead: a setting that does not need it.

    Raises:
        UsageError: if Ray is not installed.
    """
    return import_optional("ray", what, f"install the extra 'ray', or take {instead}")
