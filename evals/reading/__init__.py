"""Reading text with a model: in windows, in batches, without training."""
