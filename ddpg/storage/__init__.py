"""Files that hold data only: checkpoints."""
