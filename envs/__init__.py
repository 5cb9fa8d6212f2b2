"""Gymnasium environments of the ``ddpg-paths`` distribution; importing this registers them."""

from gymnasium import register

from .control_suite import DECISIONS, TASKS
from .goal import GoalEnv
from .half_field import HalfFieldOffenseEnv
from .lqr import LQREnv
from .platform import PlatformEnv

__all__ = ["GoalEnv", "HalfFieldOffenseEnv", "LQREnv", "PlatformEnv"]

register(
    "ddpg_envs/AsymmetricLQR-v0",
    entry_point="ddpg_envs.lqr:LQREnv",
    max_episode_steps=100,
    kwargs={"low": -0.5, "high": 2.5},
)
register("ddpg_envs/Goal-v0", entry_point="ddpg_envs.goal:GoalEnv")
register("ddpg_envs/HalfFieldOffense-v0", entry_point="ddpg_envs.half_field:HalfFieldOffenseEnv", max_episode_steps=500)
register("ddpg_envs/LQR-v0", entry_point="ddpg_envs.lqr:LQREnv", max_episode_steps=100)
register("ddpg_envs/Platform-v0", entry_point="ddpg_envs.platform:PlatformEnv", max_episode_steps=200)
for _domain, _tasks in TASKS.items():
    for _task in _tasks:
        register(
            f"dmc/{_domain}-{_task}-v0",
            entry_point="ddpg_envs.control_suite:ControlSuiteEnv",
            max_episode_steps=DECISIONS,
            kwargs={"domain": _domain, "task": _task},
        )
