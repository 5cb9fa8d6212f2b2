"""Training runs: their environments, evaluations, files, plots and videos."""
