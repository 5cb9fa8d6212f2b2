"""The zoo: trained policies that come with the package, each with a card on its training and its returns.

    ddpg/zoo/NAME/card.json           what :class:`Card` describes
    ddpg/zoo/NAME/policy.json         a NumPy export: data only (:mod:`ddpg.exports.policy_file`)
    ddpg/zoo/NAME/policy.safetensors

NAME is the environment's id without its module or namespace: ``HalfCheetah-v5``, ``LQR-v0``. ``zoo:NAME`` can be given
in place of a run or a policy.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.manifest import AlgorithmName, Name, Option, Sha256
from ddpg.errors import UsageError, brief, did_you_mean

FOLDER = Path(__file__).parents[1] / "zoo"
PREFIX = "zoo:"
CARD = "card.json"
FILES = (CARD, "policy.json", "policy.safetensors")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class CardEvaluation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An evaluation of the policy: consecutive episodes without exploration noise.

    Attributes:
        seed: of the first reset; later resets continue its random stream.
        returns: of each episode (env units).
        lengths: of each episode (steps).
        successes: whether each episode succeeded, where the environment says so.
        versions: of the software that ran it, by name (:func:`ddpg.runs.versions.versions_of_evaluation`).
    """

    seed: Annotated[int, msgspec.Meta(ge=0)]
    returns: Annotated[list[float], msgspec.Meta(min_length=2)]
    lengths: list[Annotated[int, msgspec.Meta(ge=1)]]
    successes: list[bool] | None
    versions: dict[Name, _Text]


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a policy was trained, and its returns.

    Attributes:
        env_id: as ``ddpg train`` takes it.
        algorithm: the name of the algorithm that the options belong to.
        recipe: the recipe of the environment's preset; ``None`` if it has none.
        timesteps: environment steps of training.
        seed: of training.
        options: all of them, as in a run's ``config.json``.
        command: the command that trains the policy again.
        license: of the weights.
        versions: of the software that trained it.
        policy_sha256: the checksum in ``policy.json``, which ties the card to this policy.
        evaluation: the returns and lengths of its episodes.
    """

    format: Literal[1] = 1
    env_id: _Text
    algorithm: AlgorithmName
    recipe: _Text | None
    timesteps: Annotated[int, msgspec.Meta(ge=1)]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    options: dict[Name, Option]
    command: _Text
    license: _Text
    versions: dict[Name, _Text]
    policy_sha256: Sha256
    evaluation: CardEvaluation


class Entry(NamedTuple):
    """A policy of the zoo."""

    folder: Path
    card: Card

    @property
    def name(self) -> str:
        """The name that follows ``zoo:``."""
        return self.folder.name

    @property
    def size(self) -> int:
        """The size of its files, in bytes."""
        return sum((self.folder / name).stat().st_size for name in FILES)


def entry_name(env_id: str) -> str:
    """Return the name of an environment's entry: its id without module and namespace.

    >>> entry_name("gymnasium_robotics:FetchReach-v4"), entry_name("ddpg_envs/LQR-v0")
    ('FetchReach-v4', 'LQR-v0')
    """
    return env_id.rpartition(":")[2].rpartition("/")[2]


def is_zoo(path: Any) -> bool:
    """Return whether a run, or the path of a policy, is ``zoo:NAME``."""
    return isinstance(path, (str, Path)) and str(path).startswith(PREFIX)


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of all entries, sorted without regard to case."""
    found = os.listdir(folder) if folder.is_dir() else ()
    return sorted((name for name in found if (folder / name / CARD).is_file()), key=str.lower)


def read_entry(name: str, folder: Path = FOLDER) -> Entry:
    """Return the entry that ``zoo:NAME`` means.

    Args:
        name: with or without ``zoo:``; the environment's whole id is accepted too.
        folder: the zoo's.

    Raises:
        UsageError: if no entry has that name, or its card is damaged.
    """
    # The module of our environments may be written, as for ddpg train, although their ids need none.
    given, known = name.removeprefix(PREFIX).removeprefix("ddpg_envs:"), names(folder)
    own = entry_name(given)
    if own not in known:
        # A namespace counts, since it is another package's. The cutoff is above 0.67, the similarity of Pusher-v5 and
        # Hopper-v5.
        meant = given.rpartition(":")[2].removeprefix("ddpg_envs/")
        hint = did_you_mean(meant, known, cutoff=0.7) or f"; it has {', '.join(known)}"
        raise UsageError(f"the zoo has no policy {brief(given)}{hint}; `ddpg zoo` lists them")
    path = folder / own / CARD
    with safe_json.advising("install the package again"):
        card = safe_json.convert(f"{path}:", safe_json.read_json(path), Card)
    if entry_name(card.env_id) != own or given not in (own, card.env_id, card.env_id.rpartition(":")[2]):
        raise UsageError(f"the zoo has no policy {brief(given)}: {own} is for {card.env_id}; write zoo:{own}")
    return Entry(path.parent, card)


def write_card(folder: Path, card: Card) -> None:
    """Write the card of an entry."""
    text = json.dumps(msgspec.to_builtins(card), indent=1)
    (folder / CARD).write_text(f"{text}\n", encoding="utf-8")
