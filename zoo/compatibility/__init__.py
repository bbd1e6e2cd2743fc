"""What parts of a model need, break and support, and which of them cannot be combined."""
