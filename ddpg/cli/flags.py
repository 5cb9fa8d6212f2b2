"""Command lines by tyro: options become flags, and a mistake becomes one line with a hint about what was meant."""

import contextlib
import dataclasses
import io
import re
import shlex
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import tyro

from ddpg.config.name_hints import ADVICE, meaning_here, renamed
from ddpg.config.options import Options, field_type
from ddpg.errors import UsageError, brief, did_you_mean

_NONE: Mapping[str, Any] = types.MappingProxyType({})
_LONGEST_WORD = 4096  # characters; no path is longer


class Flag(NamedTuple):
    """A flag or positional argument, made from an option's field for tyro."""

    name: str
    hint: Any
    default: Any
    group: str
    metavar: str = ""
    aliases: tuple[str, ...] = ()
    is_positional: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a command line that give it a value."""
        return (flag_name(self.name), flag_name(f"no_{self.name}"), *self.aliases)


def flags_of(
    kind: type[Options], defaults: Mapping[str, Any] = _NONE, notes: Mapping[str, str] = _NONE
) -> dict[str, Flag]:
    """Return the flags of a class of options by name.

    By name, too: ``defaults`` that differ from the fields', and ``notes`` to append to the help.
    """
    return {
        field.name: _flag(kind, field, defaults.get(field.name, field.default), notes.get(field.name, ""))
        for field in dataclasses.fields(kind)
    }


def _flag(kind: type[Options], field: dataclasses.Field, default: Any, note: str) -> Flag:
    scalar, many, optional = field_type(kind, field.name)
    about = field.metadata
    marks: list[Any] = [
        tyro.conf.arg(
            help=about.get("help", "") + note,
            metavar=_metavar(field, kind),
            aliases=about.get("aliases"),
            help_behavior_hint="(required)" if about.get("positional") and default == () else None,
        )
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
    group, metavar, aliases = about.get("group", ""), _metavar(field, kind) or "", tuple(about.get("aliases") or ())
    return Flag(field.name, _annotated(hint, *marks), default, group, metavar, aliases, bool(about.get("positional")))


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
    """Return tyro's rule to read and show a value; text that cannot be converted stays text, which Options refuses."""

    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        with contextlib.suppress(ValueError):
            return scalar(text)
        with contextlib.suppress(ValueError):
            return float(text) if scalar is int else text  # 1e6, which Options converts to 1000000
        return text

    def value_of(texts: list[str]) -> Any:
        values = tuple(map(read, texts))
        return values[0] if not many or values == (None,) else values

    def shown(value: Any) -> list[str]:
        return ["none" if one is None else str(one) for one in (value if isinstance(value, tuple) else (value,))]

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar="",
        instance_from_str=value_of,
        is_instance=lambda value: True,
        str_from_instance=shown,
    )


def parse_flags(
    flags: Mapping[str, Flag], arguments: Sequence[str], prog: str, text: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the values by name, and the words that were not recognised.

    Raises:
        UsageError: if an argument or a value is missing, or too long.
        SystemExit: if help was requested, after it is printed.
    """
    for word in arguments:
        if len(word) > _LONGEST_WORD:
            raise UsageError(f"{brief(word)} has {len(word)} characters; expected at most {_LONGEST_WORD}")
    notes = io.StringIO()
    given = {word.partition("=")[0].replace("_", "-") for word in arguments}
    given |= {word[:2] for word in arguments}  # -oFILE gives -o its value
    helped = not given.isdisjoint(("-h", "--help"))
    # tyro needs a millisecond for each flag, so it reads only those that are given; the others have their defaults.
    read = {
        name: flag for name, flag in flags.items() if helped or flag.is_positional or not given.isdisjoint(flag.words)
    }
    try:
        with contextlib.redirect_stderr(notes):
            # The fields hold the help texts; searching for them in source comments would take half of the time.
            found, unknown = tyro.cli(
                _grouped(read),
                prog=prog,
                description=text,
                args=arguments,
                return_unknown_args=True,
                config=(tyro.conf.HelptextFromCommentsOff,),
            )
    except SystemExit as left:
        if not left.code:
            raise
        # An unknown flag may have swallowed the argument that is missing now: `--env Pendulum-v1`.
        known = {flag_name(prefix + name) for name in {*flags} - {*ADVICE} for prefix in ("", "no_")}
        words = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        refuse_unknown([word for word in words if word not in known and _hint(word, [*flags], prog)], flags, prog)
        text = _tyro_message(notes.getvalue())
        without = re.match(r"Missing value for argument '--([\w-]+)'", text)
        flag = flags.get(without[1].replace("-", "_")) if without else None
        choices = f" One of {flag.metavar}." if flag and flag.metavar.startswith("{") else ""
        path = next((word for word in words if word not in known and re.search("[./]", word)), None)
        dash = f" {brief(path)} was taken for a flag; write ./{path}" if path else ""
        raise UsageError(text + choices + dash) from None
    holders = {flag.group: getattr(found, _identifier(flag.group)) if flag.group else found for flag in read.values()}
    values = {name: getattr(holders[flag.group], name) for name, flag in read.items()}
    return {name: flag.default for name, flag in flags.items()} | values, unknown


def _grouped(flags: Mapping[str, Flag]) -> Callable[..., Any]:
    """Return the dataclass that tyro reads; each group of flags is a nested dataclass, which gets a heading."""
    groups: dict[str, list] = {}
    for flag in flags.values():
        field = (flag.name, flag.hint, dataclasses.field(default=flag.default))
        groups.setdefault(flag.group, []).append(field)
    own = groups.pop("", [])
    for group, fields in groups.items():
        inner = dataclasses.make_dataclass(_identifier(group), fields)
        hint = _annotated(inner, tyro.conf.OmitArgPrefixes)
        own.append((_identifier(group), hint, dataclasses.field(default_factory=inner)))
    return dataclasses.make_dataclass("Flags", own, kw_only=True)


def _identifier(group: str) -> str:
    return group.replace(" ", "_")


def refuse_unknown(unknown: Sequence[str], flags: Iterable[str], prog: str) -> None:
    """Refuse words that were not recognised.

    Raises:
        UsageError: if there is one; the message names the first, and a similar flag.
    """
    if unknown:
        token = next((token for token in unknown if token.startswith("-")), unknown[0])
        word = token.partition("=")[0]
        hint = _hint(word, [*flags], prog) if word.startswith("-") else _hint_without_flag(token, flags)
        raise UsageError(f"{prog} does not know {brief(word)}{hint}; all that it knows: {prog} --help")


def _hint(word: str, names: Sequence[str], prog: str) -> str:
    """Return a hint about the flag that was probably meant."""
    name = word.strip("-").replace("-", "_").lower()
    for candidate in (name, name.removeprefix("no_")):
        if here := renamed(candidate, names):
            return f"; it is {flag_name(here)} here{meaning_here(candidate)}"
        if advice := ADVICE.get(candidate):
            flag = re.match(r"use --(?:no-)?([a-z-]+)", advice)
            elsewhere = "with ddpg train " if flag and flag[1].replace("-", "_") not in names else ""
            return f": {elsewhere}{advice.format(verb=prog.rpartition(' ')[2])}"
    if name in names:  # a positional argument
        return f": give its value without a flag, {prog} {name.upper()}"
    flags = {flag.strip("-"): flag for flag in map(flag_name, names)}
    close = did_you_mean(word.strip("-"), flags, cutoff=0.7)
    return close.replace("did you mean '", "did you mean '--")


def _hint_without_flag(word: str, names: Iterable[str]) -> str:
    """Return a hint about the flag that takes one word, for a word after its first."""
    from ddpg.runs.wrappers import is_wrapper  # imports gymnasium, which takes a second

    known = {*names}
    if "env_kwargs" in known and re.match(r"[^\W\d]\w*=", word):
        return f"; --env-kwargs takes one keyword argument, so write --env-kwargs {brief(word, quotes=False)}"
    if "wrap" in known and is_wrapper(word):
        return f"; --wrap takes one wrapper, so write --wrap {shlex.quote(word)}"
    return ""


def flag_name(name: str) -> str:
    """Return the flag of an option."""
    return "--" + name.replace("_", "-")


def _tyro_message(box: str) -> str:
    """Return the message in tyro's box as one line, without the help below it."""
    blocks: list[list[str]] = [[]]
    for line in (line.strip(" │") for line in box.splitlines()):
        if re.match("╭|╰|──|---", line):
            blocks.append([])
        else:
            blocks[-1].append(line)
    # In an ASCII terminal, the title is not in the border of the box but on a line of its own above a rule.
    message = next((block for block in blocks[1:] if any(block)), blocks[0])
    return " ".join(" ".join(message).split())
