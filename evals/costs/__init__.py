"""Costs of a model: speed, memory and cache, measured or predicted."""
