"""What a model costs: speed, memory and cache, measured or predicted."""
