"""Errors that a caller can fix. This module imports no other of ours, since the store uses it, too."""

from __future__ import annotations


class AblateError(Exception):
    """Base of all errors that a caller can fix. The text is the complete message, with a line for each fault."""


class ArgumentError(AblateError, ValueError):
    """An argument that cannot be used: its name, the reason and, if that helps, its value."""

    def __init__(self, argument: str, reason: str, value: object = None) -> None:
        self.argument, self.reason, self.value = argument, reason, value
        super().__init__(f"{self.named(argument)}: {reason}")

    def named(self, argument: str) -> str:
        """The argument under this name, with its value if one was given."""
        return argument if self.value is None else f"{argument} {self.value}"


def reason_of(error: Exception) -> str:
    """First line of an error's message; for an OSError the reason alone, without number and path."""
    return getattr(error, "strerror", None) or str(error).partition("\n")[0]


class DataError(AblateError, ValueError):
    """Data is not available. The message is one line with the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UnreachableError(DataError):
    """The network or host of the data does not answer; the data itself may be intact."""


class ReportError(AblateError):
    """The study cannot be reported: it is missing, or its runs must not be compared."""
