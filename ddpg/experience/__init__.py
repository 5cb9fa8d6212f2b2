"""What happened: interaction, transitions, replay, and the spaces they live in. No TensorFlow."""
