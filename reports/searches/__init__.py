"""Findings of a search: its best settings, the settings that matter, and scores of both on fresh seeds."""
