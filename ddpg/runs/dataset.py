"""Read a data set of recorded transitions for offline learning: a NumPy archive (``.npz``) or a Minari data set.

A file cannot run code: nothing is unpickled, and no module that a file names is imported.
"""

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.memory_limit import memory_limit
from ddpg.errors import FileFault, UsageError, brief, format_error, import_optional, located
from ddpg.interaction.action_mask import KEY
from ddpg.interaction.validation import validate_path, validate_text

if TYPE_CHECKING:
    from ddpg.agents.off_policy import OffPolicyAgent

MINARI = "minari:"  # prefix of the name of a Minari data set

DESCRIPTION = 64 << 20  # bytes of a Minari data set's metadata.json at most: 8 for each byte of an image, its bounds

SMALL = 1024  # bytes of an array in an archive that is looked at though a data set has no such name

# Accepted names of each array, in the conventions of Minari, D4RL and gymnasium; a file has exactly one of them.
KEYS = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_observations": ("next_observations",),
    "terminated": ("terminations", "terminals", "terminated"),
    "truncated": ("truncations", "timeouts", "truncated"),
}


class Dataset(NamedTuple):
    """N transitions in env units, in the order of :meth:`ddpg.DDPG.remember`'s arguments."""

    observations: np.ndarray  # [N, *observation shape]
    actions: np.ndarray  # [N, *action shape]
    rewards: np.ndarray  # [N]
    next_observations: np.ndarray  # [N, *observation shape]; the true last one where an episode ended
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray  # [N] bool


def load_dataset(source: str | Path) -> Dataset:
    """Return the transitions of a data set: ``agent.remember(*ddpg.load_dataset("data.npz"))``.

    Args:
        source: the path of an ``.npz`` file with the arrays of :data:`KEYS`, or ``"minari:NAME"`` for a Minari data
            set that has been downloaded to this machine. Its Dict, Tuple and Discrete observations are flattened as
            ``gymnasium.wrappers.FlattenObservation`` does.

    Raises:
        UsageError: if there is no such data set, an array is missing or has another length or type, the file holds a
            :meth:`ddpg.ReplayBuffer.arrays`, whose actions are not in env units, or Minari is not installed.
        FileFault: if the file is damaged.
    """
    check_source(source)
    name = str(source)
    try:
        return _of_minari(name) if name.startswith(MINARI) else _of_archive(Path(source))
    except MemoryError:
        raise UsageError(f"{name} needs more memory than there is; take a part of it") from None


def fill(agent: "OffPolicyAgent", source: str | Path) -> None:
    """Store a whole data set in an agent's replay buffer.

    Raises:
        UsageError: as for :func:`load_dataset`; if the data set does not fit into the buffer; if a value does not fit
            the spaces of the agent. Nothing is stored then.
    """
    dataset = load_dataset(source)
    count = len(dataset.rewards)
    if count > agent.replay.capacity:
        raise UsageError(
            f"{source} has {count} transitions, and buffer_size={agent.replay.capacity} keeps the last of them alone; "
            f"give --buffer-size {count}"
        )
    with located(f"{source}"):
        agent.remember(*dataset)


def check_offline(dataset: Any, offline_timesteps: int | None, collector: str) -> None:
    """Refuse a data set that does not exist or comes with workers, and ``offline_timesteps`` without a data set.

    Raises:
        UsageError: if so, or as :func:`check_source`.
    """
    if dataset is None:
        if offline_timesteps is not None:
            raise UsageError(f"offline_timesteps={offline_timesteps} is for a run with a data set; give --dataset too")
        return
    check_source(dataset)
    if collector != "local":
        raise UsageError(f"collector={brief(collector)} and dataset both provide transitions; give only one of them")


def check_source(source: Any) -> None:
    """Refuse a ``source`` that cannot be a data set, without reading it.

    Raises:
        UsageError: if the file does not exist or does not end in ``.npz``, Minari is not installed, or it has no such
            data set here.
    """
    if isinstance(source, str) and source.startswith(MINARI):
        validate_text(source, "dataset", "the name of a data set")
        _minari_folder(source)
        return
    path = validate_path(source, "dataset")
    if path.suffix != ".npz":
        raise UsageError(
            f"dataset={brief(str(source))} is neither a file that ends in .npz nor the name of one of Minari's data "
            f"sets, such as {MINARI}D4RL/pen/human-v2"
        )
    if not path.exists():
        raise UsageError(f"dataset={brief(str(source))} does not exist; give the path of an .npz file")


# -- NumPy's archives -----------------------------------------------------------------------------------


def _of_archive(path: Path) -> Dataset:
    with safe_json.advising("give the path of an .npz file that can be read"):
        found, names = _arrays(path)
    return _checked(str(path), found, names)


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of an archive, and their names in it, by the fields of :class:`Dataset`."""
    with safe_json.open_regular_file(path.resolve()) as (file, _):
        try:
            with zipfile.ZipFile(file) as archive:
                sizes = {one.filename.removesuffix(".npy"): one.file_size for one in archive.infolist()}
            file.seek(0)
            names = {field: _name_of(path, field, sizes) for field in KEYS}
            if (size := sum(sizes[name] for name in names.values())) > memory_limit():
                raise UsageError(f"{path} has {size} bytes of arrays, more than this machine has memory for")
            with np.load(file, allow_pickle=False) as arrays:
                if sizes.get("position", SMALL) < SMALL and np.ndim(arrays["position"]) == 0:
                    raise UsageError(
                        f"{path} is a replay memory (position is the row to be written next), whose actions are not in "
                        'env units; write it without position, and agent.to_env(arrays["actions"]) as actions'
                    )
                found = {field: arrays[name] for field, name in names.items()}
            if others := [name for field, name in names.items() if not isinstance(found[field], np.ndarray)]:
                raise ValueError(f"{others[0]} is no array")  # NumPy returns bytes for a member that is not .npy data
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # zipfile, zlib and NumPy raise many types for a file that is no archive
            raise FileFault(
                f"{path} is no archive of numbers as numpy.savez writes it ({format_error(error)}); write it anew"
            ) from None
    return found, names


def _name_of(path: Path, field: str, found: Mapping[str, Any]) -> str:
    names = [name for name in KEYS[field] if name in found]
    if len(names) == 1:
        return names[0]
    known = " or ".join(KEYS[field])
    if names:
        raise UsageError(f"{path} has {' and '.join(names)}, names of the same array; keep one of them")
    others = ", ".join(map(brief, found)) or "nothing"
    raise UsageError(f"{path} has no array {known}, but {others}; a data set has one of each: {', '.join(KEYS)}")


def _checked(where: str, arrays: Mapping[str, np.ndarray], names: Mapping[str, str]) -> Dataset:
    """Return the arrays as a data set after checking types and lengths; ``remember`` checks the values."""
    columns = {}
    count = len(arrays["observations"]) if arrays["observations"].ndim else 0
    if not count:
        raise UsageError(f"{where}: {names['observations']} has shape {arrays['observations'].shape}; expected rows")
    for field, array in arrays.items():
        name = f"{where}: {names[field]}"
        if array.dtype.kind not in "biuf":
            raise UsageError(f"{name} holds {array.dtype}, expected numbers")
        if array.shape[:1] != (count,):
            raise UsageError(f"{name} has shape {array.shape}, expected {count} rows, one for each observation")
        if field in ("rewards", "terminated", "truncated"):
            if array.shape not in ((count,), (count, 1)):
                raise UsageError(f"{name} has shape {array.shape}, expected {(count,)}")
            array = array.reshape(count)
        if field in ("terminated", "truncated"):
            if (bad := (array != 0) & (array != 1)).any():
                raise UsageError(f"{name} holds {array[bad][0]} in row {bad.argmax()}, expected flags, 0 or 1")
            array = array.astype(bool)
        columns[field] = array
    return Dataset(**columns)


# -- Minari ---------------------------------------------------------------------------------------------


def _minari_folder(source: str) -> Path:
    """Return the folder of a data set; refuse a ``source`` that is no name, or that Minari does not have here."""
    name = source.removeprefix(MINARI)
    if not re.fullmatch(r"[\w-]{1,200}(/[\w-]{1,200})*", name):  # as Minari has them: no path, no space
        raise UsageError(
            f"dataset={brief(source)} is no name of a Minari data set, of letters, digits, _, - and /, such as "
            f"{MINARI}D4RL/pen/human-v2"
        )
    import_optional("minari", f"dataset={brief(source)}", "install the extra 'minari', or give an .npz file")
    from minari.storage import get_dataset_path

    folder = Path(get_dataset_path(name)) / "data"
    if not folder.is_dir():
        here = ", ".join(_versions(name, folder.parent))
        get = f'get it with: minari download {name} (which needs pip install "minari[hf]")'
        raise UsageError(f"{source} is not on this machine; {f'it has {here}' if here else get}")
    return folder


def _of_minari(source: str) -> Dataset:
    folder = _minari_folder(source)
    import minari

    try:
        with safe_json.advising("download the data set again"):
            described = safe_json.read_json(folder / "metadata.json", DESCRIPTION)
    except FileNotFoundError:
        raise FileFault(f"{folder} has no metadata.json; download the data set again") from None
    if not (isinstance(described, dict) and {"observation_space", "action_space"} <= described.keys()):
        # Without the spaces Minari would make the environment named in the file, and so import a module it names.
        raise UsageError(f"{source} does not describe its spaces; write it with minari.create_dataset_from_buffers")
    try:
        space = json.loads(described["observation_space"])
        episodes = [*minari.load_dataset(source.removeprefix(MINARI)).iterate_episodes()]
        parts = [_transitions(source, episode, space) for episode in episodes if len(episode.rewards)]
    except (UsageError, MemoryError):
        raise
    except ImportError as error:  # Minari's own text says how to install what the file's format needs
        raise UsageError(f"{source} needs another package ({error}); the extra 'minari' installs h5py") from None
    except Exception as error:  # h5py and Minari raise many types for a damaged file
        raise FileFault(
            f"{source} cannot be read ({format_error(error)}); download it again, or install the Minari that wrote it"
        ) from None
    if not parts:
        raise UsageError(f"{source} has no transition; take another data set")
    for field, (name, *_) in KEYS.items():
        if len(shapes := {np.shape(part[field])[1:] for part in parts}) > 1:
            raise UsageError(
                f"{source} has {name} of shapes {' and '.join(map(str, sorted(shapes)[:2]))} in different episodes, "
                "expected one shape; take those of one environment"
            )
    arrays = {field: np.concatenate([part[field] for part in parts]) for field in KEYS}
    return _checked(source, arrays, {field: names[0] for field, names in KEYS.items()})


def _versions(name: str, path: Path) -> list[str]:
    """Return the names of the data sets on this machine that differ from ``name``, of path ``path``, in the version."""
    name, stem = (re.sub(r"-v\d+$", "", one) for one in (name, path.name))
    versions = [re.fullmatch(re.escape(stem) + r"-v(\d+)", one.name) for one in path.parent.glob("*")]
    return [f"{name}-v{number}" for number in sorted(int(found[1]) for found in versions if found)]


def _transitions(source: str, episode: Any, space: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the T transitions of a Minari episode, which has T + 1 observations of ``space``.

    The last one ends the episode, even without a flag: the next episode may begin in the same state.
    """
    steps, where = len(episode.rewards), f"{source}: episode {episode.id}"
    if not isinstance(episode.actions, np.ndarray):
        raise UsageError(
            f"{where} has actions of type {type(episode.actions).__name__}, expected arrays: give those of "
            "parameterised actions to agent.remember, as a list of (choice, parameters)"
        )
    observations = _flat(where, episode.observations, space)
    found = {"actions": episode.actions, "terminations": episode.terminations, "truncations": episode.truncations}
    for name, array, expected in ("observations", observations, steps + 1), *((*one, steps) for one in found.items()):
        if len(array) != expected:
            raise UsageError(f"{where} has {len(array)} {name} for {steps} steps, expected {expected}")
    truncated = np.array(episode.truncations)
    if not episode.terminations[-1]:
        truncated[-1] = True
    return {
        "observations": observations[:-1],
        "actions": episode.actions,
        "rewards": episode.rewards,
        "next_observations": observations[1:],
        "terminated": episode.terminations,
        "truncated": truncated,
    }


def _flat(where: str, observations: Any, space: Mapping[str, Any]) -> np.ndarray:
    """Return observations as one array: others are flattened as ``gymnasium.wrappers.FlattenObservation`` does.

    Args:
        where: the episode, for the message.
        observations: as Minari reads them: an array, or a dict or a tuple of them.
        space: theirs, as Minari writes it; the parts of a Dict are in the order of the environment's.

    Raises:
        UsageError: if there is an action mask among them, or something that is no array of numbers.
    """
    kind = space["type"]
    if kind in ("Dict", "Tuple") and KEY not in space["subspaces"]:
        parts = space["subspaces"]
        named = parts.items() if kind == "Dict" else enumerate(parts)
        columns = [_flat(where, observations[name], part) for name, part in named]
        return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)
    if kind == "Discrete":
        return observations[:, None] == space["start"] + np.arange(space["n"])
    if kind not in ("Box", "MultiBinary"):
        what = f"a {KEY}" if kind == "Dict" else f"a {kind}"
        raise UsageError(
            f"{where} has {what} in its observations, expected arrays: flatten them, and write an .npz file"
        )
    return observations
