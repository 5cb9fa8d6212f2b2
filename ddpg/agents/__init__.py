"""What a user holds: agents that act, store transitions and learn."""
