"""Needs, breaks and supported operations of a model's parts, and which parts cannot be combined."""
