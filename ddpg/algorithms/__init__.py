"""Algorithms: the gradient updates of DDPG, its variants and DQN, one per file, and their registry."""
