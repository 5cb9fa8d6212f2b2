"""Flags from the declarations of options: tyro reads and explains them, ``Options`` checks their values."""

import contextlib
import dataclasses
import io
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import tyro

from ddpg.errors import UsageError, did_you_mean
from ddpg.foreign_names import ADVICE, renamed
from ddpg.options import Options, field_type

_NONE: Mapping[str, Any] = types.MappingProxyType({})


class Flag(NamedTuple):
    """A flag or a positional argument: the field of an option, for tyro."""

    name: str
    hint: Any
    default: Any
    group: str
    metavar: str = ""

    @property
    def field(self) -> tuple[Any, ...]:
        """What ``make_dataclass`` takes."""
        missing = self.default is dataclasses.MISSING
        return (self.name, self.hint) if missing else (self.name, self.hint, dataclasses.field(default=self.default))


def flags_of(
    kind: type[Options], defaults: Mapping[str, Any] = _NONE, notes: Mapping[str, str] = _NONE
) -> dict[str, Flag]:
    """Return the flags of a class of options by name.

    Args:
        kind: the class.
        defaults: those that differ from the fields'.
        notes: to add to the texts.
    """
    return {
        field.name: _flag(kind, field, defaults.get(field.name, field.default), notes.get(field.name, ""))
        for field in dataclasses.fields(kind)
    }


def _flag(kind: type[Options], field: dataclasses.Field, default: Any, note: str) -> Flag:
    scalar, many, optional = field_type(kind, field.name)
    about = field.metadata
    marks: list[Any] = [
        tyro.conf.arg(help=about["help"] + note, metavar=_metavar(field, kind), aliases=about.get("aliases"))
    ]
    marks += [tyro.conf.Positional] * bool(about.get("positional"))
    hint: Any = scalar
    if scalar is bool:
        marks += [tyro.conf.FlagCreatePairsOff] * (not about.get("group") and not default)
    elif scalar is str and many:
        hint = tuple[str, ...]
        marks += [tyro.conf.UseAppendAction] * (not about.get("positional"))
    else:
        hint = object
        marks.append(_primitive(scalar, many, optional))
    return Flag(field.name, _annotated(hint, *marks), default, about.get("group", ""), _metavar(field, kind) or "")


def _annotated(hint: Any, *marks: Any) -> Any:
    parts = (hint, *marks)
    return Annotated[parts]


def _metavar(field: dataclasses.Field, kind: type[Options]) -> str | None:
    scalar, many, optional = field_type(kind, field.name)
    if choices := field.metadata.get("choices"):
        return "{" + ",".join([*choices, *["none"] * optional]) + "}"
    if scalar is bool:
        return None
    return field.metadata.get("metavar") or ("NAME" if scalar is str else "N [N ...]" if many else "N")


def _primitive(scalar: type, many: bool, optional: bool) -> tyro.constructors.PrimitiveConstructorSpec:
    """Return how to read and show a value. What cannot be read stays text, which ``Options`` refuses by its name."""

    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        with contextlib.suppress(ValueError):
            return scalar(text)
        with contextlib.suppress(ValueError):
            return float(text) if scalar is int else text  # 1e6, which Options takes for 1000000
        return text

    def shown(value: Any) -> list[str]:
        return ["none" if one is None else str(one) for one in (value if many else (value,))]

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar="",
        instance_from_str=lambda texts: tuple(map(read, texts)) if many else read(texts[0]),
        is_instance=lambda value: True,
        str_from_instance=shown,
    )


def parsed(
    flags: Mapping[str, Flag], arguments: Sequence[str], prog: str, text: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the values by name, and what was not recognised.

    Raises:
        UsageError: an argument is missing, or a value is.
        SystemExit: help was asked for, and is printed.
    """
    notes = io.StringIO()
    try:
        with contextlib.redirect_stderr(notes):
            found, unknown = tyro.cli(
                _grouped(flags), prog=prog, description=text, args=arguments, return_unknown_args=True
            )
    except SystemExit as left:
        if not left.code:
            raise
        # An unknown flag may have taken what is missing now: `--env Pendulum-v1`.
        known = {_flag_name(prefix + name) for name in {*flags} - {*ADVICE} for prefix in ("", "no_")}
        words = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        refuse_unknown([word for word in words if word not in known and _hint(word, [*flags], prog)], flags, prog)
        text = _said(notes.getvalue())
        without = re.match(r"Missing value for argument '--([\w-]+)'", text)
        flag = flags.get(without[1].replace("-", "_")) if without else None
        choices = f" One of {flag.metavar}." if flag and flag.metavar.startswith("{") else ""
        raise UsageError(text + choices) from None
    holders = {flag.group: getattr(found, _identifier(flag.group)) if flag.group else found for flag in flags.values()}
    return {name: getattr(holders[flag.group], name) for name, flag in flags.items()}, unknown


def _grouped(flags: Mapping[str, Flag]) -> Callable[..., Any]:
    """Return the dataclass that tyro reads: the flags of a group are a dataclass in it, which gets a heading."""
    groups: dict[str, list] = {}
    for flag in flags.values():
        groups.setdefault(flag.group, []).append(flag.field)
    own = groups.pop("", [])
    for group, fields in groups.items():
        inner = dataclasses.make_dataclass(_identifier(group), fields)
        hint = _annotated(inner, tyro.conf.OmitArgPrefixes)
        own.append((_identifier(group), hint, dataclasses.field(default_factory=inner)))
    return dataclasses.make_dataclass("Flags", own, kw_only=True)


def _identifier(group: str) -> str:
    return group.replace(" ", "_")


def refuse_unknown(unknown: Sequence[str], flags: Iterable[str], prog: str) -> None:
    """Refuse what was not recognised.

    Raises:
        UsageError: there is something; names the first, and what may have been meant.
    """
    if unknown:
        word = next((token for token in unknown if token.startswith("-")), unknown[0]).partition("=")[0]
        hint = _hint(word, [*flags], prog) if word.startswith("-") else ""
        raise UsageError(f"{prog} does not know {word!r}{hint}; all that it knows: {prog} --help")


def _hint(word: str, names: Sequence[str], prog: str) -> str:
    """Return what a flag that does not exist was probably meant to be."""
    name = word.strip("-").replace("-", "_").lower()
    for candidate in (name, name.removeprefix("no_")):
        if here := renamed(candidate, names):
            return f"; it is {_flag_name(here)} here"
        if candidate in ADVICE:
            return f": {ADVICE[candidate].format(verb=prog.rpartition(' ')[2])}"
    flags = {flag.strip("-"): flag for flag in map(_flag_name, names)}
    close = did_you_mean(word.strip("-"), flags, cutoff=0.7)
    return close.replace("did you mean '", "did you mean '--")


def _flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _said(box: str) -> str:
    """Return what tyro says in a box, in one line, without the help that follows under a rule."""
    blocks: list[list[str]] = [[]]
    for line in (line.strip(" │") for line in box.splitlines()):
        if re.match("╭|╰|──|---", line):
            blocks.append([])
        else:
            blocks[-1].append(line)
    # Where a terminal has ASCII alone, the title does not stand in the box's edge but above a rule.
    told = next((block for block in blocks[1:] if any(block)), blocks[0])
    return " ".join(" ".join(told).split())
