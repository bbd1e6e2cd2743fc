"""Sentences and tables."""
