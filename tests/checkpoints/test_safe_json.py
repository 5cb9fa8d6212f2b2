"""The types that files are validated by can be resolved on every supported Python."""

import importlib
import pkgutil
import typing

import msgspec
import pytest

import ddpg

SUBPACKAGES = ("checkpoints", "runs", "studies", "exports")


def structs():
    for subpackage in SUBPACKAGES:
        package = importlib.import_module(f"ddpg.{subpackage}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.name:
                    yield kind


def names_within(kind):
    for part in () if typing.get_origin(kind) is typing.Literal else getattr(kind, "__args__", ()):
        yield from [part] if isinstance(part, str) else names_within(part)


@pytest.mark.parametrize("kind", sorted(structs(), key=str), ids=lambda kind: kind.__name__)
def test_types_resolve_on_every_python(kind):
    """Python 3.10 does not resolve the name in ``list["Space"]``, but the name in ``"list[Space]"``."""
    assert kind.__module__.partition(".")[0] == ddpg.__name__
    assert [name for hint in kind.__annotations__.values() for name in names_within(hint)] == []
