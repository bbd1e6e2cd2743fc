"""Recorded results of studies: small files that are committed beside them."""
