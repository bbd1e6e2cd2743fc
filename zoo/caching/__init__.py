"""State that models keep while they decode."""
