"""Softmax attention's parts: which keys are seen, how scores are made, and the backends, one file each."""
