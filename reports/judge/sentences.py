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
