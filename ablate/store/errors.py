"""The base of every error that a caller of ablate can mend."""

from __future__ import annotations


class AblateError(Exception):
    """What was given, or what the store holds, cannot be used. The text is the whole message, a line for each fault."""
