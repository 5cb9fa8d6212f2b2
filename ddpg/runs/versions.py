"""Versions of the packages that a run's numbers hang on."""

import importlib.metadata
import platform
import sys
from collections.abc import Mapping

_ALWAYS = ("ddpg-paths", "tensorflow", "tflearn", "gymnasium", "numpy", "llvmlite")
# What environments compute with, by the module that they import.
_ENGINES = {
    "mujoco": "mujoco",
    "Box2D": "box2d",
    "dm_control": "dm-control",
    "gymnasium_robotics": "gymnasium-robotics",
    "envpool": "envpool",
}


def versions_here() -> dict[str, str]:
    """Return the versions of Python, of what is computed with, and of the physics engines imported so far, by name."""
    names = [*_ALWAYS, *(package for module, package in _ENGINES.items() if module in sys.modules)]
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a module under another package's name
            continue
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return what differs, ``"numpy 2.3.0 there, 2.4.6 here"``; empty where nothing does.

    A name that only one of the two has is none: an environment may import its engine later.
    """
    names = [name for name in before if name in now and before[name] != now[name]]
    return ", ".join(f"{name} {before[name]} there, {now[name]} here" for name in names)
