"""What a user holds: agents that act, remember and learn."""
