"""What an update computes: DDPG and its relatives, one algorithm a file, and their registry."""
