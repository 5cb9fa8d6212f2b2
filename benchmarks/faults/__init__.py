"""What a run survives, tried: each script prints a table and writes it to ``benchmarks/results/faults/``."""
