"""Stepping environments: env runners, spaces and actions, and checks of everything they return. NumPy only."""
