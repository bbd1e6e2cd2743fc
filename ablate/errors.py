"""What may be wrong with a call. Every error of ablate that a caller can mend is an `AblateError`."""

from __future__ import annotations

from ablate.store import AblateError


class ArgumentError(AblateError, ValueError):
    """An argument that cannot be used: which one, why, and its value where that helps."""

    def __init__(self, argument: str, reason: str, value: object = None) -> None:
        self.argument, self.reason, self.value = argument, reason, value
        super().__init__(f"{self.named(argument)}: {reason}")

    def named(self, argument: str) -> str:
        """The argument, by this name, with its value."""
        return argument if self.value is None else f"{argument} {self.value}"
