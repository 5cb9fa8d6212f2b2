"""Fault injection: each script causes one kind of fault and writes a table to ``benchmarks/results/faults/``."""
