"""Figures, each with a table of its data."""
