"""What recipes learn, seed by seed: studies, their numbers in one table, and the pages and pictures made of it."""
