"""Studies of what recipes learn, seed by seed: one table of all results, and the pages and pictures made from it."""
