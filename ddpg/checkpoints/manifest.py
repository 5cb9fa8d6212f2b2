"""The manifest of a checkpoint: its schema, and the checks that it passes before anything is built from it.

| field | content |
|---|---|
| ``format`` | 3 |
| ``kind``, ``algorithm``, ``config`` | the agent's class, the algorithm and its options |
| ``observation_space``, ``action_space`` | as :mod:`ddpg.checkpoints.space_json` describes them |
| ``seed``, ``num_timesteps``, ``num_updates``, ``owed_updates``, ``largest_reward`` | counters |
| ``own_steps`` | environment steps of the agent, without offline timesteps; earlier versions saved none |
| ``random_states`` | the state of every random generator, by name: PCG64 |
| ``arrays`` | dtype and shape of every array, by file and name |
| ``sha256`` | of every file of arrays |
| ``manifest_sha256`` | of all the other fields, as JSON with sorted keys and no spaces |

The checksums reveal damage, not forgery: against a forged manifest only the checks of types and ranges protect.
"""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

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
PRIORITIES = ("priorities", "largest_priority")  # saved if sampling is prioritised
RECORDED = "recorded"  # saved if some transitions were recorded elsewhere: demonstrations, a data set

_PER_CALL = 2**20  # the largest updates_per_call
# The bound of owed updates. A full call is made at once or, with ``overlap``, during the next step of all environments,
# which may add as many again. An agent that continues with other options keeps its owed updates (agents/learn_loop.py).
_OWED = 2 * _PER_CALL
ARRAY_FILE = re.compile(r"[\w.-]+\.safetensors")
# The dtypes that files hold, and what safetensors calls them.
ARRAY_DTYPES = {"float32": "F32", "float64": "F64", "uint8": "U8", "int32": "I32", "int64": "I64"}

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+\Z", max_length=200)]
AlgorithmName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+(:\w+)?\Z", max_length=200)]
Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Rows: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_PerCall: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_PER_CALL)]


class ArraySpec(msgspec.Struct, forbid_unknown_fields=True):
    """Dtype and shape of an array."""

    dtype: one_of(*ARRAY_DTYPES)  # type: ignore[valid-type]
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=2**40)]], msgspec.Meta(max_length=16)]

    @property
    def nbytes(self) -> int:
        """Its size in bytes, in memory and in a file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


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
    | Annotated[list[Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | float], msgspec.Meta(max_length=64)]
    | float
    | bool
    | str
    | _Custom
    | None
)


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[3]
    kind: Name
    algorithm: AlgorithmName
    config: dict[str, Any]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    num_timesteps: _Count
    num_updates: _Count
    owed_updates: Annotated[float, msgspec.Meta(ge=0, lt=_OWED)]
    largest_reward: Annotated[float, msgspec.Meta(ge=1, le=3.4028235e38)]  # the largest float32
    random_states: dict[str, Any]
    arrays: dict[str, dict[str, Any]]
    sha256: dict[str, Any]
    manifest_sha256: Sha256
    own_steps: _Count | msgspec.UnsetType = msgspec.UNSET


def seal(fields: dict[str, Any]) -> bytes:
    """Return the bytes of a manifest with these fields; its format and its checksum are added.

    Raises:
        UsageError: if :func:`read` would refuse it.
    """
    whole: dict[str, Any] = {"format": FORMAT, **fields}
    try:
        whole[DIGEST] = safe_json.document_sha256(whole, DIGEST)
        lines = (
            f" {safe_json.canonical_json(name).decode()}: {safe_json.canonical_json(whole[name]).decode()}"
            for name in whole
        )
        data = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
        if len(data) > safe_json.LARGEST:
            longest = max(whole, key=lambda name: len(safe_json.canonical_json(whole[name])))
            raise UsageError(
                f"{MANIFEST} would have {len(data)} bytes, more than the {safe_json.LARGEST} that are read, most of "
                f"them for {longest}" + "; give it fewer numbers, or equal bounds" * longest.endswith("_space")
            )
        check(MANIFEST, safe_json.parse_json(MANIFEST, data))
    except (ValueError, TypeError) as error:  # NaN, a value that is not JSON, or a value that reading refuses
        reason = str(error).removesuffix(f"; {safe_json.ADVICE}")
        raise UsageError(f"this cannot be saved, since it could not be read again: {reason}") from None
    return data


def read(path: Path) -> tuple[dict[str, Any], dict[str, Table]]:
    """Read and check the manifest file at ``path``; return it and its tables of arrays by group.

    Raises:
        FileFault: if it is damaged, of another format, or holds a value that no agent could have saved.
        FileNotFoundError: if ``path`` does not exist.
    """
    found = safe_json.read_json(path)
    return found, check(str(path), found)


def check(where: str, found: Any) -> dict[str, Table]:
    """Check every field of a manifest and return its tables of arrays by group.

    Raises:
        FileFault: if a field is not as the schema says; ``where`` names the file.
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
    if safe_json.document_sha256(found, DIGEST) != whole.manifest_sha256:
        raise FileFault(
            f"{where} does not match its own checksum, {DIGEST}: it was edited or damaged; take another checkpoint"
        )
    return tables


def _tables(where: str, whole: _Manifest) -> dict[str, Table]:
    for name, checksum in whole.sha256.items():
        if not ARRAY_FILE.fullmatch(name):
            raise FileFault(f"{where} names a file {short_repr(name)} outside itself; it was tampered with")
        convert(f"{where}: sha256[{name!r}]", checksum, Sha256)
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
    for name, value in whole.random_states.items():
        place = f"{where}: random_states[{name!r}]"
        words = convert(place, value, _RandomState).state
        for part in ("state", "inc"):
            if getattr(words, part) >= 2**128:
                raise refusal(f"{place}.state.{part}", getattr(words, part), "less than 2^128")
        if words.inc % 2 == 0:
            raise refusal(f"{place}.state.inc", words.inc, "an odd number")


def _check_replay(where: str, table: Table, observation_space: Any, capacity: int) -> None:
    if {*table} - {RECORDED} not in (set(REPLAY), {*REPLAY, *PRIORITIES}):
        raise refusal(
            where,
            sorted(table),
            f"the arrays {sorted(REPLAY)}, {sorted(PRIORITIES)} or neither, and {RECORDED} or not",
        )
    if not isinstance(observation_space, Box):
        raise refusal(where, observation_space, "a Box as observation space")
    rows = table["rewards"].shape[0] if table["rewards"].shape else 0
    if rows > capacity:
        raise refusal(f"{where}['rewards'].shape", table["rewards"].shape, f"at most buffer_size rows, {capacity}")
    kind, shape = "uint8" if observation_space.dtype == "uint8" else "float32", observation_space.shape
    last = table["last_observations"].shape[:1]
    expected = {"observations": (kind, [rows, *shape]), "last_observations": (kind, [*last, *shape])}
    expected |= {"rewards": ("float32", [rows, 1])}
    flags = [name for name in ("terminated", "truncated", RECORDED) if name in table]
    expected |= dict.fromkeys(flags, ("uint8", [rows, 1]))
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
