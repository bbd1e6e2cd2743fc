"""Fast kernels, and helpers for torch.compile and for precision."""
