"""Decisions on a stream of proposed changes to a base."""
