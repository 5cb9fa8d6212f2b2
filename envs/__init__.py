"""Gymnasium environments of the ``ddpg-paths`` distribution; importing this registers them."""

from gymnasium import register

from ddpg_envs.lqr import LQREnv

__all__ = ["LQREnv"]

register("ddpg_envs/LQR-v0", entry_point="ddpg_envs.lqr:LQREnv", max_episode_steps=100)
