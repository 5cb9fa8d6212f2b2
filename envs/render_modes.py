"""Check an environment's render mode."""

from collections.abc import Mapping
from typing import Any

from ddpg.errors import UsageError, brief


def checked_mode(render_mode: Any, metadata: Mapping[str, Any]) -> str | None:
    """Return ``render_mode`` if the environment's metadata lists it, or ``None``.

    Raises:
        UsageError: if the environment has no such mode.
    """
    modes = metadata["render_modes"]
    if render_mode is not None and not (isinstance(render_mode, str) and render_mode in modes):
        raise UsageError(f"render_mode={brief(render_mode)} must be one of {modes}, or None")
    return render_mode
