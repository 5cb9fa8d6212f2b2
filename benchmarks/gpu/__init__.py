"""How fast a GPU makes updates: TensorFlow's XLA programs, run through JAX where there is a GPU."""
