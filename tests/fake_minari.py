"""A stand-in for the package ``minari``: data sets in memory, with the functions that the package calls."""

import json
import sys
import types
from typing import NamedTuple

import numpy as np

BOX = {"type": "Box"}  # a space as Minari writes it, shortened


class Episode(NamedTuple):
    """An episode like ``minari.EpisodeData``, with one more observation than steps."""

    id: int
    observations: object
    actions: object
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def install(monkeypatch, folder, name, episodes, space=BOX):
    """Install a module ``minari`` with one data set, ``name``, of these episodes; ``space``: their observations'."""
    data = folder / name / "data"
    data.mkdir(parents=True)
    (data / "metadata.json").write_text(json.dumps({"observation_space": json.dumps(space), "action_space": "{}"}))
    module, storage = types.ModuleType("minari"), types.ModuleType("minari.storage")
    storage.get_dataset_path = lambda dataset_id: folder / dataset_id
    module.load_dataset = lambda dataset_id: types.SimpleNamespace(iterate_episodes=lambda: iter(episodes))
    monkeypatch.setitem(sys.modules, "minari", module)
    monkeypatch.setitem(sys.modules, "minari.storage", storage)
    return data
