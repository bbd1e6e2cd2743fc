"""Errors and warnings of model specs, conversions and plug-ins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from zoo.vocabulary import nearest

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
        """The same error with `prefix` in front of its path."""
        return SpecError(".".join(filter(None, (prefix, self.path))), self.reason, self.kind)


@contextmanager
def under(prefix: str) -> Iterator[None]:
    """Put `prefix` in front of the path of SpecErrors raised inside the block."""
    try:
        yield
    except SpecError as error:
        raise error.under(prefix) from None


class SpecWarning(UserWarning):
    """A model's spec is valid but probably unintended."""


class UnsupportedError(SpecError):
    """A model, or an option of one, that conversion, a cache or a decoding method cannot handle; `path` names it."""


class ConversionWarning(UserWarning):
    """A model was converted, but something was left out or could not be checked."""


class PluginError(ImportError):
    """A plug-in cannot be used; the message is one line that names it and the reason."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"`, x being the candidate that papers and other libraries call `word`, or else the
    nearest in spelling; empty if none is near."""
    known = list(candidates)
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    near = nearest(str(word), known) or next(iter(close), None)
    return f" (did you mean '{near}'?)" if near else ""
