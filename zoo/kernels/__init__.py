"""Fast kernels, and what a compiler and low precision need to be told."""
