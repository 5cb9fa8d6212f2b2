"""Where a gradient may flow: pure functions on tensors, without variables or sessions."""
