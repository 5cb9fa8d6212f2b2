"""DDPG actor-critic with pluggable gradient paths, on TensorFlow graphs and tflearn.

Names are imported when first used, so that ``import ddpg`` is instant and a process that only needs
``ddpg.replay``, ``ddpg.noise`` or ``ddpg.spaces`` never imports TensorFlow.
"""

import importlib as _importlib

__version__ = "0.1.0"

_HOME = {
    "DDPG": "ddpg.agent",
    "DDPGConfig": "ddpg.config",
    "DQN": "ddpg.dqn",
    "DQNConfig": "ddpg.config",
    "ActorNetwork": "ddpg.networks.actor",
    "CriticNetwork": "ddpg.networks.critic",
    "QNetwork": "ddpg.networks.q_network",
    "mlp": "ddpg.networks.layers",
    "conv": "ddpg.networks.layers",
    "Bounding": "ddpg.gradients.bounding",
    "ReplayBuffer": "ddpg.replay",
    "Batch": "ddpg.replay",
    "FlattenParameterisedAction": "ddpg.parameterised",
    "GaussianNoise": "ddpg.noise",
    "OrnsteinUhlenbeckNoise": "ddpg.noise",
    "Callback": "ddpg.callbacks",
    "ProgressBar": "ddpg.callbacks",
    "evaluate": "ddpg.evaluation",
    "train": "ddpg.training",
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
