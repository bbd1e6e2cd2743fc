"""Capabilities and costs of a trained model: evaluations, speed, memory, and the machine's own ceiling."""
