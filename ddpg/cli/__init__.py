"""The ``ddpg`` command: its flags, its commands and what they print."""
