"""Merge the runs in the folders of studies into one table."""

import csv
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.learning.long_form import ASKED, KEPT, OPTIONS, Cell, make_cell
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.toml_file import read_toml
from ddpg.errors import FileFault
from ddpg.studies.study import FILES, Group, cells_of
from ddpg.studies.study_folder import read_cells
from ddpg.studies.study_report import write_report

_UNKNOWN = object()


def collect(root: Path) -> list[Cell]:
    """Return all cells of a study's folder, finished or not, and rewrite its report.

    Raises:
        UsageError: if the folder has no study.
        FileFault: if a file of a cell is damaged.
    """
    groups = read_cells(root)
    if unread := write_report(root, groups).unread:
        raise FileFault(unread[0])
    found: dict[tuple[str, str, int], list[tuple[int, str, str]]] = {}
    with (root / FILES.results).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["measure"] in KEPT:
                key = row["env"], row["config"], int(row["seed"])
                found.setdefault(key, []).append((int(row["step"]), row["measure"], row["value"]))
    cells = []
    for group in groups:
        about = [(0, ASKED, str(group.total_timesteps)), (0, OPTIONS, str(checksum(group)))]
        for cell in cells_of([group]):
            key = group.name, group.configuration, cell.seed
            cells.append(make_cell((root.name, *key), [*about, *found.get(key, [])]))
    return cells


def checksum(group: Group) -> int:
    """Return a checksum of a group's options and evaluation settings, to detect that a study has changed.

    Options at their defaults do not count, so an option that is added to the package later does not change it.
    """
    usual = CONFIGS[group.algorithm]().to_json()
    options = {name: value for name, value in group.options.items() if value != usual.get(name, _UNKNOWN)}
    described = {
        "algorithm": group.algorithm,
        "options": options,
        "episodes": group.evaluation_episodes,
        "n_envs": group.n_envs,
    }
    return zlib.crc32(json.dumps(described, sort_keys=True).encode())


def merged(before: Iterable[Cell], *collected: Sequence[Cell]) -> list[Cell]:
    """Return the cells of ``before`` and of all ``collected`` studies.

    If a cell occurs twice, the one with more steps is kept, or the later one if they have equally many. A cell of
    ``before`` is dropped if its configuration has other options now, because it no longer belongs to the study.
    """
    now = {cell.key: cell for cells in collected for cell in cells}
    options = {cell.key[:3]: cell.one(OPTIONS, "") for cell in now.values()}
    kept = {cell.key: cell for cell in before if options.get(cell.key[:3]) in (None, cell.one(OPTIONS, ""))}
    result = {key: kept.get(key, cell) for key, cell in now.items()}
    result |= {key: cell for key, cell in kept.items() if key not in result}
    for cells in collected:
        for cell in cells:
            if cell.reached >= result[cell.key].reached:
                result[cell.key] = cell
    return list(result.values())


def in_order(cells: Sequence[Cell], folder: Path = Path(__file__).parent) -> list[Cell]:
    """Return the cells in the order of the study files in ``folder``, followed by all others."""
    places: dict[tuple[str, str], int] = {}
    for study in {cell.study for cell in cells}:
        path = folder / f"{study}.toml"
        if path.exists():
            settings = read_toml(path)
            for place, name in enumerate([*settings["environments"], *settings["configurations"]]):
                places[study, name] = place

    def place_of(cell: Cell) -> tuple[int, int, int]:
        last = len(places)
        return places.get((cell.study, cell.env_id), last), places.get((cell.study, cell.recipe), last), cell.seed

    return sorted(cells, key=place_of)
