"""Model specs, families, checkpoints and the one transformer."""
