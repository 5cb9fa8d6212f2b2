"""Checkpoints for tests: the fields of a valid manifest, and deliberately changed files. Without TensorFlow."""

import hashlib
import json

import gymnasium as gym
import numpy as np

from ddpg.checkpoints.space_json import describe_space


def fields(**changes):
    """Return a manifest's fields, as an agent passes them to ``checkpoint.write``."""
    return {
        "kind": "DDPG",
        "algorithm": "DDPG",
        "config": {"hidden": [4], "gamma": 0.99, "norm": None, "buffer_size": 5, "updates_per_call": 4, "jit": False},
        "observation_space": describe_space(gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)),
        "action_space": describe_space(gym.spaces.Box(np.float32([-2.0]), np.float32([4.0]))),
        "seed": 0,
        "num_timesteps": 60,
        "own_steps": 50,
        "num_updates": 40,
        "owed_updates": 0.5,
        "largest_reward": 7.0,
        "random_states": {name: np.random.default_rng(1).bit_generator.state for name in ("exploration", "replay")},
        **changes,
    }


def replay(rows=3, position=None):
    """Return the arrays of a replay memory with five rows, for the spaces above."""
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(rows, 2)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": np.ones((rows, 1), np.float32),
        "last_observations": rng.normal(size=(rows, 2)).astype(np.float32),
        "successors": np.full(rows, -1, np.int32),
        "terminated": np.zeros((rows, 1), np.uint8),
        "truncated": np.zeros((rows, 1), np.uint8),
        "position": np.asarray(rows if position is None else position),
    }


def reseal(document):
    """Recompute a changed manifest's checksum, as an attacker would."""
    rest = {name: value for name, value in document.items() if name != "manifest_sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "manifest_sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def sealed(path, **changes):
    """Change fields of the manifest of the checkpoint at ``path``, with a matching checksum."""
    file = path / "manifest.json"
    file.write_text(json.dumps(reseal({**json.loads(file.read_text()), **changes})))


def sealed_array_file(path, group, data):
    """Replace the bytes of an array file, and its checksum in the manifest."""
    (path / f"{group}.safetensors").write_bytes(data)
    checksums = json.loads((path / "manifest.json").read_text())["sha256"]
    sealed(path, sha256={**checksums, f"{group}.safetensors": hashlib.sha256(data).hexdigest()})
