"""The one error of this package."""

from __future__ import annotations

from ablate.store import AblateError


class DataError(AblateError, ValueError):
    """The data asked for cannot be had. The message is one line that says what to do about it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
