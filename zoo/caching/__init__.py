"""KV caches and other state that models keep while decoding."""
