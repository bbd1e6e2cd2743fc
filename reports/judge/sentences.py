"""Pieces of the sentences in which a judgement gives its reasons."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


class Prose(str):
    """A sentence that renders as HTML, with text between backticks as code."""

    __slots__ = ()

    def __html__(self) -> str:
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self))


def listed(names: Sequence[str]) -> str:
    """`pre`, `pre and post`, `pre, post and double`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def prefixed_range(values: Sequence[float]) -> str:
    """`57 k`, or `57 k to 60 k`."""
    low, high = (f"{prefixed(value)}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def prefixed(value: float) -> str:
    """Two significant digits, with a decimal prefix."""
    for unit, scale in ((" B", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= scale:
            return f"{float(f'{value / scale:.2g}'):g}{unit}"
    return f"{float(f'{value:.2g}'):g}"
