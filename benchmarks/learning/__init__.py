"""Studies of how well recipes learn: a CSV of all runs, and the tables and pictures on pages that are made from it."""
