"""The manifest of a checkpoint, checked before anything is built from it.

| field | what it says |
|---|---|
| ``format`` | 3 |
| ``kind``, ``algorithm``, ``config`` | the class of the agent, the algorithm and its options |
| ``observation_space``, ``action_space`` | as :mod:`ddpg.checkpoints.space_json` describes them |
| ``seed``, ``num_timesteps``, ``num_updates``, ``owed_updates``, ``largest_reward`` | counters |
| ``random_states`` | the state of every random generator, by name: PCG64 |
| ``arrays`` | dtype and shape of every array, by file and name |
| ``sha256`` | of every file of arrays |
| ``manifest_sha256`` | of all the other fields, as JSON with sorted keys and no spaces |

The checksums tell damage, not forgery: who changes a field and its checksum is held to the ranges alone.
"""

import hashlib
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.safe_json import convert, one_of, refusal, short_repr
from ddpg.checkpoints.space_json import Box, check_space
from ddpg.errors import FileFault, UsageError

FORMAT = 3
MANIFEST = "manifest.json"
DIGEST = "manifest_sha256"
REPLAY = (
    *("observations", "last_observations", "successors", "actions", "rewards", "terminated", "truncated", "position"),
)
PRIORITIES = ("priorities", "largest_priority")  # of the rows, where there are any

_PER_CALL = 2**20  # updates of a call, at most
# What fills a call is made at once, or beside the next step of all environments, which may earn as many; and an agent
# that goes on with other options owes what it owed: see ddpg.agents.learn_loop.
_OWED = 2 * _PER_CALL
_FILE = re.compile(r"[\w.-]+\.safetensors")

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+\Z", max_length=200)]
_Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Rows: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_PerCall: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_PER_CALL)]


class ArraySpec(msgspec.Struct, forbid_unknown_fields=True):
    """What an array is made of."""

    dtype: one_of("float32", "float64", "uint8", "int32", "int64")  # type: ignore[valid-type]
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**40)]], msgspec.Meta(max_length=16)]

    @property
    def nbytes(self) -> int:
        """Its bytes, in memory and in a file."""
        return math.prod(self.shape) * {"float32": 4, "float64": 8, "uint8": 1, "int32": 4, "int64": 8}[self.dtype]


Table: TypeAlias = dict[str, ArraySpec]


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    state: Annotated[int, msgspec.Meta(ge=0)]
    inc: Annotated[int, msgspec.Meta(ge=0)]


class _RandomState(msgspec.Struct, forbid_unknown_fields=True):
    bit_generator: one_of("PCG64")  # type: ignore[valid-type]
    state: _Words
    has_uint32: Annotated[int, msgspec.Meta(ge=0, le=1)]
    uinteger: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Custom(msgspec.Struct, forbid_unknown_fields=True):
    custom: str


Option: TypeAlias = (
    Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
    | Annotated[list[Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]], msgspec.Meta(max_length=64)]
    | float
    | bool
    | str
    | _Custom
    | None
)


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[3]
    kind: Name
    algorithm: Name
    config: dict[str, Any]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    num_timesteps: _Count
    num_updates: _Count
    owed_updates: Annotated[float, msgspec.Meta(ge=0)]
    largest_reward: Annotated[float, msgspec.Meta(ge=1)]
    random_states: dict[str, Any]
    arrays: dict[str, dict[str, Any]]
    sha256: dict[str, Any]
    manifest_sha256: _Sha256


def seal(fields: dict[str, Any]) -> bytes:
    """Return the file of a manifest with these fields, its format and its checksum added.

    Raises:
        UsageError: :func:`read` would refuse it.
    """
    whole: dict[str, Any] = {"format": FORMAT, **fields}
    try:
        whole[DIGEST] = hashlib.sha256(safe_json.canonical_json(whole)).hexdigest()
        lines = (
            f" {safe_json.canonical_json(name).decode()}: {safe_json.canonical_json(whole[name]).decode()}"
            for name in whole
        )
        data = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
        if len(data) > safe_json.LARGEST:
            raise UsageError(
                f"{MANIFEST} would have {len(data)} bytes, more than the {safe_json.LARGEST} that are read"
            )
        check(MANIFEST, safe_json.parse_json(MANIFEST, data))
    except (ValueError, TypeError) as error:  # NaN, or what JSON has no word for; and all that reading would refuse
        reason = str(error).removesuffix(f"; {safe_json.ADVICE}")
        raise UsageError(f"this cannot be saved, since it could not be read again: {reason}") from None
    return data


def read(path: Path) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return the manifest at ``path``, a file, checked; and its tables of arrays, by group.

    Raises:
        FileFault: none that this version can rely on.
        FileNotFoundError: nothing is there.
    """
    found = safe_json.read_json(path)
    return found, check(str(path), found)


def check(where: str, found: Any) -> dict[str, Table]:
    """Return the tables of arrays of a manifest that holds to all of the above.

    Raises:
        FileFault: it does not; ``where`` names the file.
    """
    if not isinstance(found, dict) or not isinstance(found.get("sha256"), dict):
        raise FileFault(f"{where} is not the manifest of a checkpoint")
    if found.get("format") != FORMAT:
        raise FileFault(
            f"{where} has format {short_repr(found.get('format'))}, this version reads {FORMAT}; "
            "load it with the version of ddpg-paths that wrote it"
        )
    whole = convert(f"{where}:", found, _Manifest)
    tables = _tables(where, whole)
    _check_values(where, whole)
    observation_space = check_space(f"{where}: observation_space", whole.observation_space)
    check_space(f"{where}: action_space", whole.action_space)
    if "replay" in tables:
        _check_replay(f"{where}: arrays['replay']", tables["replay"], observation_space, whole.config["buffer_size"])
    rest = {name: value for name, value in found.items() if name != DIGEST}
    if hashlib.sha256(safe_json.canonical_json(rest)).hexdigest() != whole.manifest_sha256:
        raise FileFault(
            f"{where} does not match its own checksum, {DIGEST}: it was edited or damaged; take another checkpoint"
        )
    return tables


def _tables(where: str, whole: _Manifest) -> dict[str, Table]:
    for name, checksum in whole.sha256.items():
        if not _FILE.fullmatch(name):
            raise FileFault(f"{where} names a file {short_repr(name)} outside itself; it was tampered with")
        convert(f"{where}: sha256[{name!r}]", checksum, _Sha256)
    files = {f"{group}.safetensors" for group in whole.arrays}
    if files != whole.sha256.keys():
        raise refusal(f"{where}: arrays", sorted(whole.arrays), f"one group for each of {sorted(whole.sha256)}")
    tables: dict[str, Table] = {}
    for group, arrays in whole.arrays.items():
        place = f"{where}: arrays[{group!r}]"
        tables[group] = {name: convert(f"{place}[{name!r}]", spec, ArraySpec) for name, spec in arrays.items()}
        if "__metadata__" in arrays:
            raise refusal(place, "__metadata__", "another name for an array: safetensors keeps that one")
    return tables


def _check_values(where: str, whole: _Manifest) -> None:
    for name, value in whole.config.items():
        convert(f"{where}: config[{name!r}]", value, Option)
    for name, kind in (("buffer_size", _Rows), ("updates_per_call", _PerCall)):
        convert(f"{where}: config[{name!r}]", whole.config.get(name), kind)
    if not whole.owed_updates < _OWED:
        raise refusal(f"{where}: owed_updates", whole.owed_updates, f"less than {_OWED:,}")
    if whole.largest_reward > 3.4028235e38:
        raise refusal(f"{where}: largest_reward", whole.largest_reward, "a number of float32")
    for name, value in whole.random_states.items():
        place = f"{where}: random_states[{name!r}]"
        words = convert(place, value, _RandomState).state
        for part in ("state", "inc"):
            if getattr(words, part) >= 2**128:
                raise refusal(f"{place}.state.{part}", getattr(words, part), "less than 2^128")
        if words.inc % 2 == 0:
            raise refusal(f"{place}.state.inc", words.inc, "an odd number")


def _check_replay(where: str, table: Table, observation_space: Any, capacity: int) -> None:
    if set(table) not in (set(REPLAY), {*REPLAY, *PRIORITIES}):
        raise refusal(where, sorted(table), f"the arrays {sorted(REPLAY)}, and {sorted(PRIORITIES)} or neither")
    if not isinstance(observation_space, Box):
        raise refusal(where, observation_space, "a Box as observation space")
    rows = table["rewards"].shape[0] if table["rewards"].shape else 0
    if rows > capacity:
        raise refusal(f"{where}['rewards'].shape", table["rewards"].shape, f"at most buffer_size rows, {capacity}")
    kind, shape = "uint8" if observation_space.dtype == "uint8" else "float32", observation_space.shape
    last = table["last_observations"].shape[:1]
    expected = {"observations": (kind, [rows, *shape]), "last_observations": (kind, [*last, *shape])}
    expected |= {"rewards": ("float32", [rows, 1])}
    expected |= dict.fromkeys(("terminated", "truncated"), ("uint8", [rows, 1]))
    if "priorities" in table:
        expected |= {"priorities": ("float64", [rows]), "largest_priority": ("float64", [])}
    for name, (dtype, shape) in expected.items():
        if (table[name].dtype, table[name].shape) != (dtype, shape):
            raise refusal(f"{where}['{name}']", f"{table[name].dtype} {table[name].shape}", f"{dtype} {shape}")
    if last and last[0] > rows:
        raise refusal(f"{where}['last_observations'].shape", table["last_observations"].shape, f"at most {rows} rows")
    actions, position, successors = table["actions"], table["position"], table["successors"]
    if actions.dtype != "float32" or len(actions.shape) != 2 or actions.shape[0] != rows:
        raise refusal(f"{where}['actions']", f"{actions.dtype} {actions.shape}", f"float32 [{rows}, A]")
    if successors.dtype not in ("int32", "int64") or successors.shape != [rows]:
        raise refusal(f"{where}['successors']", f"{successors.dtype} {successors.shape}", f"int32 [{rows}]")
    if position.dtype not in ("int32", "int64") or position.shape:
        raise refusal(f"{where}['position']", f"{position.dtype} {position.shape}", "one int64")
