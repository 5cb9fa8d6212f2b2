"""Actor and critic networks, their layers, optimizers and target networks."""
