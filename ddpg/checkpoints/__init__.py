"""Checkpoints: files that hold data and no code, and how they are written, read and checked."""
