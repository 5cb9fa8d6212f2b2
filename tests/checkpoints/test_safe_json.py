"""Types that files are checked by."""

import importlib
import pkgutil
import typing

import msgspec
import pytest

import ddpg

ROOMS = ("checkpoints", "runs", "studies", "exports")


def kinds():
    for room in ROOMS:
        package = importlib.import_module(f"ddpg.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.name:
                    yield kind


def names_within(kind):
    for part in () if typing.get_origin(kind) is typing.Literal else getattr(kind, "__args__", ()):
        yield from [part] if isinstance(part, str) else names_within(part)


@pytest.mark.parametrize("kind", sorted(kinds(), key=str), ids=lambda kind: kind.__name__)
def test_types_resolve_on_every_python(kind):
    """Python 3.10 leaves the name in ``list["Space"]`` as it is; that of the whole, ``"list[Space]"``, it finds."""
    assert kind.__module__.partition(".")[0] == ddpg.__name__
    assert [name for hint in kind.__annotations__.values() for name in names_within(hint)] == []
