"""A norm and a tracker for ablate."""
