"""Effects of the factors of a design, each from half of its runs against the other half."""
