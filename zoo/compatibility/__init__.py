"""Needs, breakages and support of a model's parts, and which of them cannot be combined."""
