"""Read and write ``config.json``, which describes a run (environment, options, seed, versions) so it can be resumed.

The file is validated before use.
"""

import datetime
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.checkpoints.manifest import AlgorithmName, Name, Option
from ddpg.checkpoints.safe_json import convert, one_of
from ddpg.errors import FileFault, UsageError

CONFIG = "config.json"
FORMAT = 1
MOST_CHANGES = 1_000  # that are kept, the newest
_CHANGING = ("total_timesteps", "evaluation_interval", "workers", "ray_address", "offline_timesteps")
_DIGEST = "config_sha256"
_ADVICE = "take another run directory, or restore this file"

_Steps = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    timesteps: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    time: _Text
    settings: dict[Name, tuple[Any, Any]]


class _RunConfig(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    env_id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    algorithm: AlgorithmName
    seed: Annotated[int, msgspec.Meta(ge=0)]
    total_timesteps: _Steps
    evaluation_interval: _Steps
    evaluation_episodes: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    n_envs: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    vectorization: one_of("sync", "async", "envpool")  # type: ignore[valid-type]
    config: dict[Name, Option]
    versions: dict[Name, _Text]
    command: list[_Text]
    config_sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    wrappers: Annotated[list[_Text], msgspec.Meta(max_length=16)] = []  # names of gymnasium wrappers
    env_kwargs: dict[Name, Any] = {}  # from ddpg.runs.env_source.checked_kwargs
    collector: one_of("local", "process", "ray") = "local"  # type: ignore[valid-type]
    workers: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    ray_address: Annotated[str, msgspec.Meta(max_length=500)] | None = None
    dataset: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    offline_timesteps: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    diagnose: bool = False
    episode_limit: int | None = None  # when the run began; None: no limit, or a run of an earlier version
    changes: Annotated[list[_Change], msgspec.Meta(max_length=MOST_CHANGES)] = []  # from with_changes


def write(run: Path, fields: dict[str, Any]) -> None:
    """Write ``config.json`` of a run directory, with a format number and a checksum.

    Raises:
        UsageError: as :func:`text_of`.
    """
    atomic_write.write_text(run / CONFIG, text_of(fields))


def text_of(fields: dict[str, Any]) -> str:
    """Return the text of ``config.json``.

    Raises:
        UsageError: if :func:`read` would refuse the text, so that the run could not be resumed.
    """
    whole = {"format": FORMAT, **fields}
    whole[_DIGEST] = safe_json.document_sha256(whole, _DIGEST)
    text = json.dumps(whole, indent=2) + "\n"
    try:
        convert("a run:", safe_json.parse_json("a run", text.encode()), _RunConfig)
    except FileFault as error:
        raise UsageError(f"{str(error).removesuffix(safe_json.ADVICE)}give another one") from None
    return text


def read(run: Path) -> dict[str, Any]:
    """Return the fields of a run directory's ``config.json``.

    Raises:
        FileFault: if the file is damaged, edited, of another format, or not a regular file.
        FileNotFoundError: if it does not exist.
    """
    path = run / CONFIG
    with safe_json.advising(_ADVICE):
        found = safe_json.read_json(path)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise FileFault(f"{path} is not the config.json of a run, of format {FORMAT}; {_ADVICE}")
        defaults = msgspec.structs.asdict(convert(f"{path}:", found, _RunConfig))
    if found[_DIGEST] != safe_json.document_sha256(found, _DIGEST):
        raise FileFault(f"{path} does not match its own checksum: it was edited or damaged; {_ADVICE}")
    fields = defaults | found  # what was found stays plain JSON, also an option that became an object
    del fields["format"], fields[_DIGEST]
    return fields


def changed_settings(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the old and the new value of each setting and option that differ between two states of ``config.json``."""
    old, new = ({name: fields[name] for name in _CHANGING} | fields["config"] for fields in (before, now))
    return {name: [old.get(name), value] for name, value in new.items() if old.get(name) != value}


def with_changes(before: dict[str, Any], now: dict[str, Any], timesteps: int) -> list[dict[str, Any]]:
    """Return the field ``changes`` of a run that is resumed: the step, the time (UTC) and the settings of each change.

    Args:
        before, now: fields of ``config.json``.
        timesteps: the step from which the run goes on. Later changes were made in steps that are now repeated, with
            the settings of now, so they count from this step on.
    """
    kept = [change | {"timesteps": min(change["timesteps"], timesteps)} for change in before["changes"]]
    if changed := changed_settings(before, now):
        time = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        kept.append({"timesteps": timesteps, "time": time, "settings": changed})
    return kept[-MOST_CHANGES:]
