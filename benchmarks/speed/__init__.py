"""How fast training is, beside other packages, on one machine in one run."""
