"""Studies: environments times configurations times seeds, each an ordinary run."""
