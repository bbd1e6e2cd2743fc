"""Errors that a caller can fix. This module imports nothing of ours: the store uses it too."""

from __future__ import annotations


class AblateError(Exception):
    """Base of all errors that a caller can fix. The text is the whole message, a line for each fault."""


class ArgumentError(AblateError, ValueError):
    """An argument that cannot be used: its name, the reason, and its value where that helps."""

    def __init__(self, argument: str, reason: str, value: object = None) -> None:
        self.argument, self.reason, self.value = argument, reason, value
        super().__init__(f"{self.named(argument)}: {reason}")

    def named(self, argument: str) -> str:
        """The argument, by this name, with its value."""
        return argument if self.value is None else f"{argument} {self.value}"


def reason_of(error: Exception) -> str:
    """The first line of an error, without the number and the path of one of the file system."""
    return getattr(error, "strerror", None) or str(error).partition("\n")[0]


class DataError(AblateError, ValueError):
    """Data that is not available. The message is one line with the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UnreachableError(DataError):
    """Data that lies behind a network that does not answer: nothing is known to be wrong with it."""
