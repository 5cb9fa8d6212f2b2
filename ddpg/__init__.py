"""DDPG actor-critic with pluggable gradient paths, on TensorFlow graphs and tflearn.

Names are imported when first used, so that ``import ddpg`` is instant and a process that only needs
``ddpg.experience.replay``, ``ddpg.acting.noise`` or ``ddpg.experience.spaces`` never imports TensorFlow.
"""

import importlib as _importlib

__version__ = "0.1.0"

_HOME = {
    "DDPG": "ddpg.agents.ddpg",
    "DDPGConfig": "ddpg.config",
    "DQN": "ddpg.agents.dqn",
    "DQNConfig": "ddpg.config",
    "ActorNetwork": "ddpg.networks.actor",
    "CriticNetwork": "ddpg.networks.critic",
    "QNetwork": "ddpg.networks.q_network",
    "mlp": "ddpg.networks.layers",
    "conv": "ddpg.networks.layers",
    "Bounding": "ddpg.gradients.bounding",
    "ReplayBuffer": "ddpg.experience.replay",
    "Batch": "ddpg.experience.replay",
    "FlattenParameterisedAction": "ddpg.experience.wrappers",
    "GaussianNoise": "ddpg.acting.noise",
    "OrnsteinUhlenbeckNoise": "ddpg.acting.noise",
    "Callback": "ddpg.agents.callbacks",
    "ProgressBar": "ddpg.agents.callbacks",
    "evaluate": "ddpg.runs.evaluation",
    "train": "ddpg.runs.training",
    "compare_paths": "ddpg.laboratory.compare",
    "draw_paths": "ddpg.laboratory.picture",
    "UsageError": "ddpg.errors",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str):
    if name in _HOME:
        value = globals()[name] = getattr(_importlib.import_module(_HOME[name]), name)
        return value
    raise AttributeError(f"module 'ddpg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
