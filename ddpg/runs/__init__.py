"""What a training run needs and leaves: environments, evaluation, files, pictures."""
