"""Compare an update's time with the limits of the machine, and find where the rest of the time goes."""
