"""The one error of this package."""

from __future__ import annotations

from ablate.store import AblateError


class DataError(AblateError, ValueError):
    """The requested data is not available. The message is one line with the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
