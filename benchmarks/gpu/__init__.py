"""Measure updates on a GPU: TensorFlow's XLA programs are exported, and run through JAX on a machine with a GPU."""
