"""What drives an update: minibatches in, weights out, by XLA, machine code of our own, or op by op."""
