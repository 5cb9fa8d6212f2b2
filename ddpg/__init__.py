"""DDPG actor-critic with pluggable gradient paths, on TensorFlow graphs and tflearn.

Names are imported when first used, so that ``import ddpg`` is instant and a process that only needs
``ddpg.replay.buffer``, ``ddpg.policies.noise`` or ``ddpg.interaction.spaces`` never imports TensorFlow. When a name
needs TensorFlow, its start-up notices are suppressed (:mod:`ddpg.quiet`).
"""

import importlib as _importlib
import typing as _typing

import ddpg.quiet as _quiet

_NAMES = {
    "ddpg.agents.callbacks": "Callback CallbackList ProgressBar "
    "StopTrainingOnMaxEpisodes StopTrainingOnNoModelImprovement StopTrainingOnRewardThreshold",
    "ddpg.agents.ddpg": "DDPG",
    "ddpg.agents.dqn": "DQN",
    "ddpg.config.algorithm_options": "DDPGConfig DQNConfig",
    "ddpg.errors": "UsageError",
    "ddpg.exports.numpy_policy": "load_policy",
    "ddpg.gradients.bounding": "Bounding",
    "ddpg.interaction.action_mask": "ActionMask",
    "ddpg.interaction.actions": "FlattenParameterisedAction",
    "ddpg.interaction.envpool": "EnvPoolVector",
    "ddpg.laboratory.compare": "compare_paths",
    "ddpg.laboratory.picture": "draw_paths",
    "ddpg.networks.actor": "ActorNetwork",
    "ddpg.networks.critic": "CriticNetwork",
    "ddpg.networks.layers": "conv mlp",
    "ddpg.networks.q_network": "QNetwork",
    "ddpg.policies.noise": "GaussianNoise OrnsteinUhlenbeckNoise",
    "ddpg.replay.buffer": "ReplayBuffer",
    "ddpg.replay.minibatch": "Batch",
    "ddpg.runs.critic_check": "check_critic",
    "ddpg.runs.dataset": "load_dataset",
    "ddpg.runs.evaluation": "evaluate",
    "ddpg.runs.run_callbacks": "CSVCallback CheckpointCallback EvalCallback TensorBoardCallback TrackerCallback",
    "ddpg.runs.training": "resume train",
    "ddpg.runs.video": "record",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOME), "__version__"]

if _typing.TYPE_CHECKING:  # the names of _HOME as type checkers read them
    __version__: str
    from ddpg.agents.callbacks import Callback as Callback
    from ddpg.agents.callbacks import CallbackList as CallbackList
    from ddpg.agents.callbacks import ProgressBar as ProgressBar
    from ddpg.agents.callbacks import StopTrainingOnMaxEpisodes as StopTrainingOnMaxEpisodes
    from ddpg.agents.callbacks import StopTrainingOnNoModelImprovement as StopTrainingOnNoModelImprovement
    from ddpg.agents.callbacks import StopTrainingOnRewardThreshold as StopTrainingOnRewardThreshold
    from ddpg.agents.ddpg import DDPG as DDPG
    from ddpg.agents.dqn import DQN as DQN
    from ddpg.config.algorithm_options import DDPGConfig as DDPGConfig
    from ddpg.config.algorithm_options import DQNConfig as DQNConfig
    from ddpg.errors import UsageError as UsageError
    from ddpg.exports.numpy_policy import load_policy as load_policy
    from ddpg.gradients.bounding import Bounding as Bounding
    from ddpg.interaction.action_mask import ActionMask as ActionMask
    from ddpg.interaction.actions import FlattenParameterisedAction as FlattenParameterisedAction
    from ddpg.interaction.envpool import EnvPoolVector as EnvPoolVector
    from ddpg.laboratory.compare import compare_paths as compare_paths
    from ddpg.laboratory.picture import draw_paths as draw_paths
    from ddpg.networks.actor import ActorNetwork as ActorNetwork
    from ddpg.networks.critic import CriticNetwork as CriticNetwork
    from ddpg.networks.layers import conv as conv
    from ddpg.networks.layers import mlp as mlp
    from ddpg.networks.q_network import QNetwork as QNetwork
    from ddpg.policies.noise import GaussianNoise as GaussianNoise
    from ddpg.policies.noise import OrnsteinUhlenbeckNoise as OrnsteinUhlenbeckNoise
    from ddpg.replay.buffer import ReplayBuffer as ReplayBuffer
    from ddpg.replay.minibatch import Batch as Batch
    from ddpg.runs.critic_check import check_critic as check_critic
    from ddpg.runs.dataset import load_dataset as load_dataset
    from ddpg.runs.evaluation import evaluate as evaluate
    from ddpg.runs.run_callbacks import CheckpointCallback as CheckpointCallback
    from ddpg.runs.run_callbacks import CSVCallback as CSVCallback
    from ddpg.runs.run_callbacks import EvalCallback as EvalCallback
    from ddpg.runs.run_callbacks import TensorBoardCallback as TensorBoardCallback
    from ddpg.runs.run_callbacks import TrackerCallback as TrackerCallback
    from ddpg.runs.training import resume as resume
    from ddpg.runs.training import train as train
    from ddpg.runs.video import record as record
else:

    def __getattr__(name: str):
        if name in _HOME:
            with _quiet.quiet_import():
                value = globals()[name] = getattr(_importlib.import_module(_HOME[name]), name)
            return value
        if name == "__version__":  # of the installed package, from its git tag
            return _importlib.import_module("importlib.metadata").version("ddpg-paths")
        hints = _importlib.import_module("ddpg.config.name_hints").IMPORTS
        if name in hints:  # Python would replace an AttributeError of "from ddpg import" by one without the hint
            raise ImportError(f"ddpg has no {name}: {hints[name]}", name="ddpg")
        raise AttributeError(f"module 'ddpg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
