"""Findings of a study: its arms, differences and verdicts."""
