"""What to do in a state: NumPy policies, exploration, noise, schedules."""
