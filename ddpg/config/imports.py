"""User code that a flag or a file names as ``module:attribute``: when it may be imported, and how it is checked.

A file alone never makes this package import code: :func:`imports_allowed` (``--allow-import`` on the command line) says
which modules may be imported, and any other reference such as ``mymodule:path`` is refused. Files save the reference.
"""

import contextlib
import contextvars
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from ddpg.errors import UsageError, brief, did_you_mean, format_error

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

_allowed: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("allowed", default=frozenset())
_importer: contextvars.ContextVar[Callable[[str], ModuleType]] = contextvars.ContextVar(
    "importer", default=importlib.import_module
)
_references: dict[int, tuple[Any, str]] = {}  # by id; the object is kept, so that no other one gets its id


def is_reference(value: object) -> bool:
    """Return whether ``value`` is text such as ``"mymodule:path"``."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def references_in(values: Iterable[object]) -> list[str]:
    """Return those of ``values`` that are references, each once."""
    return list(dict.fromkeys(str(value) for value in values if is_reference(value)))


def reference_of(value: object) -> str | None:
    """Return the reference that ``value`` was imported by, or ``None``."""
    found = _references.get(id(value))
    return None if found is None else found[1]


def name_of(value: object) -> str:
    """Return how messages name a user's object: by its reference, its ``__name__``, or its ``repr``."""
    return reference_of(value) or getattr(value, "__name__", None) or brief(value)


@contextlib.contextmanager
def imports_allowed(modules: Iterable[str], importer: Callable[[str], ModuleType] | None = None) -> Iterator[None]:
    """Allow references to ``modules`` inside the block, in this thread.

    Args:
        modules: their full names.
        importer: imports a module by its name; ``None``: the importer outside the block, by default
            ``importlib.import_module``.
    """
    tokens = _allowed.set(_allowed.get() | {*modules}), _importer.set(importer or _importer.get())
    try:
        yield
    finally:
        _allowed.reset(tokens[0])
        _importer.reset(tokens[1])


def allowed_modules() -> list[str]:
    """Return the names of the modules that may be imported here, sorted."""
    return sorted(_allowed.get())


def import_reference(reference: str, option: str) -> Any:
    """Import and return the object that a reference names.

    Args:
        reference: ``"module:attribute"``.
        option: the option whose value it is, for messages.

    Raises:
        UsageError: if its module is not allowed, does not exist or cannot be imported, or has no such attribute.
    """
    module, name = import_module_of(reference, option), reference.rpartition(":")[2]
    try:
        found = getattr(module, name)
    except AttributeError:
        raise UsageError(
            f"{option}={reference!r}: the module {module.__name__!r} has no {name!r}{did_you_mean(name, vars(module))}"
        ) from None
    _references[id(found)] = found, reference
    return found


def import_module_of(reference: str, option: str) -> ModuleType:
    """Return the module of a reference; arguments and errors as of :func:`import_reference`."""
    name = reference.rpartition(":")[0]
    if name not in _allowed.get():
        raise UsageError(
            f"{option}={reference!r} names code of your own, which is imported only where that is allowed: "
            f"--allow-import {name}; in Python give the function or class itself, or load what names it inside "
            f"`with ddpg.config.imports.imports_allowed([{name!r}]):`"
        )
    try:
        return _importer.get()(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"{option}={reference!r}: the module {name!r} needs the package {error.name!r}, which is not installed"
            ) from None
        raise UsageError(
            f"{option}={reference!r}: no module {name!r} is installed or in this directory; write its name right, "
            "without .py, or change to the directory that it is in"
        ) from None
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise UsageError(
            f"{option}={reference!r}: the module {name!r} cannot be imported: {format_error(error)}"
        ) from None


def check_signature(function: object, arguments: str, option: str, others: Mapping[str, str]) -> None:
    """Refuse a callable that cannot be called with the arguments that an option's callables get.

    Args:
        function: the user's callable; if Python cannot tell its signature, it is accepted.
        arguments: names separated by commas; those in brackets are passed by name, to a function that has them:
            ``"actor, critic, states[, batch]"``.
        option: the option's name.
        others: the arguments of other options' callables, by option.

    Raises:
        UsageError: if it takes other arguments, or its parameters have the names of another option's arguments, or
            these names in another order.
    """
    always, _, rest = arguments.partition("[")
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    by_name = [name for name in re.findall(r"\w+", rest) if name in signature.parameters]
    given = re.findall(r"\w+", always)
    name = name_of(function)
    try:
        signature.bind(*given, **dict.fromkeys(by_name))
    except TypeError:
        raise UsageError(f"{option}={name} must take ({arguments}), but takes {signature}") from None
    parameters = [*signature.parameters][: len(given)]
    if parameters != given and sorted(parameters) == sorted(given):
        raise UsageError(f"{option}={name} must take ({arguments}) in this order, but takes {signature}")
    meant = [other for other, takes in others.items() if parameters == re.findall(r"\w+", takes.partition("[")[0])]
    if parameters != given and meant:
        raise UsageError(
            f"{option}={name} must take ({arguments}), but takes {signature}, like those of {meant[0]}; give it there"
        )


def references_of(document: Mapping[str, Any]) -> list[str]:
    """Return the environment id in a run's document, and the references to user code in its algorithm and options."""
    return [document["env_id"], *references_in([document.get("algorithm"), *document.get("config", {}).values()])]
