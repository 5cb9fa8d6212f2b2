"""The replay buffer, the sampling of minibatches from it, and running statistics. NumPy only."""
