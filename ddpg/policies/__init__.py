"""Choosing actions: policies in NumPy, exploration, noise, schedules."""
