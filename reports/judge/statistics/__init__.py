"""Intervals, tests and estimates."""
