"""Outcomes of the claims that a study states, and of a published table that it replicates."""
