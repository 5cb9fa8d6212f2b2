"""Compare the speed of training with other packages, on one machine in one run."""
