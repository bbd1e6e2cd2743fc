"""A study's progress on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager

from ablate.running.progress.counts import counts_shown
from ablate.running.progress.following import Progress
from ablate.running.progress.lines import Lines, Tell, to_standard_error
from ablate.running.progress.screen import ProgressBars
from store import Store

__all__ = ["Lines", "Progress", "Wanted", "open_counts", "open_progress", "teller"]

Wanted = bool | Tell
"""A caller's choice of progress: True for standard error, False for silence, or a function that takes each line."""


def open_progress(
    store: Store, title: str, labels: Mapping[str, tuple[str, int]], wanted: Wanted, *, blind: bool = False
) -> Progress:
    """The progress output that the caller chose; on a terminal, a live table. labels: arm and seed, by digest. blind:
    without losses."""
    if _on_terminal(wanted):
        return ProgressBars(store, title, labels, blind)
    return Lines(store, title, labels, blind, tell=teller(wanted))


def open_counts(wanted: Wanted) -> AbstractContextManager[None]:
    """Show the progress of an evaluation in this process, as a bar on a terminal."""
    return counts_shown(teller(wanted), _on_terminal(wanted))


def teller(wanted: Wanted) -> Tell:
    """Function that outputs a line of text as the caller chose."""
    if callable(wanted):
        return wanted
    return to_standard_error if wanted else lambda line: None


def _on_terminal(wanted: Wanted) -> bool:
    return wanted is True and sys.stderr is not None and sys.stderr.isatty()
