"""Plain lines, for files and other programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ablate.running.progress.following import Progress

Tell = Callable[[str], None]
"""Function that outputs a line of text."""
LINE_SECONDS = 10.0
"""Seconds between progress lines in plain output."""


def to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass
class Lines(Progress):
    """Plain lines: one at the end of each run, and every `LINE_SECONDS` one on the progress of the others."""

    tell: Tell = field(default=to_standard_error)
    _stage: str = field(default="", init=False)
    _said: float = field(default_factory=time.monotonic, init=False)

    def say(self, line: str) -> None:
        self.tell(line)

    def data(self, stage: str, share: float) -> None:
        now = time.monotonic()
        if stage != self._stage or now - self._said >= LINE_SECONDS:
            self.say(f"data: {stage}" if stage != self._stage else f"data: {stage} {share:.0%}")
            self._stage, self._said = stage, now

    def draw(self) -> None:
        if self.current and time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            runs = "; ".join(f"{run.label} {run.doing}" for run in self.current.values())
            self.say(f"{self.summary()}: {runs}")
