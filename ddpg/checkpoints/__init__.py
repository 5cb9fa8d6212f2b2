"""Files that hold data only: checkpoints, and how they are written and checked."""
