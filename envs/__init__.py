"""Gymnasium environments of the ``ddpg-paths`` distribution; importing this registers them."""

from gymnasium import register

from ddpg_envs.half_field import HalfFieldOffenseEnv
from ddpg_envs.lqr import LQREnv

__all__ = ["HalfFieldOffenseEnv", "LQREnv"]

register(
    "ddpg_envs/HalfFieldOffense-v0",
    entry_point="ddpg_envs.half_field:HalfFieldOffenseEnv",
    max_episode_steps=500,
)
register("ddpg_envs/LQR-v0", entry_point="ddpg_envs.lqr:LQREnv", max_episode_steps=100)
