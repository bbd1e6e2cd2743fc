"""Scores of tasks, compared item by item and seed by seed."""
