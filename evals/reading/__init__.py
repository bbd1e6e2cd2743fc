"""How a model reads text: in windows, in batches, without training."""
