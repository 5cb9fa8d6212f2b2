"""Actor and critic networks, their layers and their targets."""
