"""Many runs: studies over environments, configurations and seeds, and hyperparameter tuning."""
