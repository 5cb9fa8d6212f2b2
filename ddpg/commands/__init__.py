"""What stands behind single commands of ``ddpg``: their flags, and what they print."""
