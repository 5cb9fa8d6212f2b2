"""Versions of the software on which a run and its returns depend, so that a difference can be named."""

import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Mapping

import numpy as np

_ALWAYS = ("ddpg-paths", "tensorflow", "tflearn", "gymnasium", "numpy", "llvmlite")
# Packages that environments compute with, and the modules that they import from them.
_ENGINES = {
    "mujoco": "mujoco",
    "box2d": "Box2D",
    "box2d-py": "Box2D",  # installed by 'gymnasium[box2d]' of older versions
    "dm-control": "dm_control",
    "gymnasium-robotics": "gymnasium_robotics",
    "envpool": "envpool",
}


def versions_here() -> dict[str, str]:
    """Return the versions of Python, of the packages that compute, and of the physics engines imported so far."""
    names = [*_ALWAYS, *(package for package, module in _ENGINES.items() if module in sys.modules)]
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # another package provides the module
            continue
    return found


def format_versions(versions: Mapping[str, str]) -> str:
    """Return versions as text for a message."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the versions that differ, as ``"numpy 2.3.0 there, 2.4.6 here"``; empty if none does.

    A package that only one of the two lists does not count: an environment may import its engine later.
    """
    names = [name for name in before if name in now and before[name] != now[name]]
    return ", ".join(f"{name} {before[name]} there, {now[name]} here" for name in names)


def versions_of_evaluation() -> dict[str, str]:
    """Return the versions that an evaluation depends on, by package; call it after the environment is made.

    ``machine`` is the processor and operating system. ``functions`` is a checksum of NumPy's sines, exponentials and
    similar functions, because the last bits of their results depend on the processor's vector instructions.
    """
    found = {
        name: version
        for name, version in versions_here().items()
        if name not in ("tensorflow", "tflearn", "llvmlite", "ddpg-paths")
    }
    return {**found, "machine": f"{platform.machine()} {platform.system()}", "functions": _functions()}


def _functions() -> str:
    values = np.linspace(-4, 4, 1001)
    found = [function(values) for function in (np.sin, np.cos, np.tanh, np.exp, np.arctan)]
    found += [np.hypot(values, values[::-1]), np.arctan2(values, values[::-1])]
    return hashlib.sha256(np.stack(found).tobytes()).hexdigest()[:12]
