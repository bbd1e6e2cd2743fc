"""The errors that a wrong model spec and a plug-in raise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

Kind = Literal["unknown_key", "unknown_choice", "illegal"]
"""Machine-readable type of an error: no such setting, no such variant, or anything else."""


class SpecError(ValueError):
    """Invalid spec: `path` is the setting (dotted), `reason` says why in words, and `kind` is for programs."""

    def __init__(self, path: str, reason: str, kind: Kind = "illegal") -> None:
        self.path = path
        self.reason = reason
        self.kind = kind
        super().__init__(f"{path}: {reason}" if path else reason)

    def under(self, prefix: str) -> SpecError:
        """The same error seen from outside `prefix`."""
        return SpecError(".".join(filter(None, (prefix, self.path))), self.reason, self.kind)


class SpecWarning(UserWarning):
    """A model can be built as its spec says, and hardly anyone wants it so."""


class UnsupportedError(SpecError):
    """A model, or an option of one, that cannot be converted: `path` names the option."""


class ConversionWarning(UserWarning):
    """A model was converted, and the reader should know what was left out or could not be checked."""


class PluginError(ImportError):
    """A plug-in that cannot be used: which one and why, in one line."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"`, or nothing where no candidate is near."""
    near = difflib.get_close_matches(str(word), list(candidates), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""
