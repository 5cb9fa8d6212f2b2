"""What is remembered: the replay buffer, how minibatches are drawn from it, running statistics. NumPy only."""
