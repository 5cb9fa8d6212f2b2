"""What to do in a state: policies as NumPy programs, noise, schedules."""
