"""Run the symbolic update on minibatches: compiled by XLA, by our own compiler, or op by op."""
