"""A study's progress on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.running.following import Progress
from evals.found import listening
from store import Store
from store.documents.run import Count
from store.terminal import raw, visible

# Plain lines, for files and other programs.

Tell = Callable[[str], None]
"""Function that outputs a line of text."""
LINE_SECONDS = 10.0
"""Seconds between progress lines in plain output."""


def to_standard_error(line: str) -> None:
    print(visible(line), file=sys.stderr, flush=True)


@dataclass
class Lines(Progress):
    """Plain lines: one at the end of each run, and every `LINE_SECONDS` one on the progress of the others."""

    tell: Tell = field(default=to_standard_error)
    _work: str = field(default="", init=False)
    _said: float = field(default_factory=time.monotonic, init=False)

    def say(self, line: str) -> None:
        self.tell(line)

    def work(self, what: str, share: float) -> None:
        now = time.monotonic()
        if what != self._work or now - self._said >= LINE_SECONDS:
            self.say(f"{what} {share:.0%}" if share else what)
            self._work, self._said = what, now

    def draw(self) -> None:
        if self.current and time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            runs = "; ".join(f"{run.label} {run.doing}" for run in self.current.values())
            self.say(f"{self.summary()}: {runs}")


# Progress of an evaluation in this process: a bar on a terminal, a line every few seconds elsewhere.


@contextmanager
def open_counts(wanted: Wanted, on_terminal: bool | None = None) -> Iterator[None]:
    """Show the counts that the block reports. on_terminal: None for whether standard error is one."""
    if _on_terminal(wanted) if on_terminal is None else on_terminal:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Bars(*columns, console=Console(file=raw(sys.stderr)), transient=True) as bars:
            bar = bars.add_task("evaluating", total=None)

            def move(count: Count) -> None:
                bars.update(bar, description=visible(count.what), completed=count.done, total=count.total)

            with listening(move):
                yield
        return
    said = time.monotonic()

    def now_and_then(count: Count) -> None:
        nonlocal said
        if time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            teller(wanted)(str(count))

    with listening(now_and_then):
        yield


# A live table on a terminal.

BAR_WIDTH = 20


@dataclass
class ProgressBars(Progress):
    """A summary line of the study, and a progress bar for each current run."""

    _live: Live | None = field(default=None, init=False)

    def __enter__(self) -> Progress:
        self._live = Live(console=Console(file=raw(sys.stderr)), refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def work(self, what: str, share: float) -> None:
        self._screen().update(f"{what} {share:.0%}")

    def say(self, line: str) -> None:
        self._screen().console.print(Text(visible(line)))

    def draw(self) -> None:
        table = Table.grid()
        table.add_row(Text(visible(self.summary()), style="bold"))
        runs = Table.grid(padding=(0, 2))
        for run in self.current.values():
            bar = ProgressBar(total=1.0, completed=run.share, width=BAR_WIDTH)
            runs.add_row(Text(visible(f"  {run.label}")), bar, Text(visible(run.doing)))
        table.add_row(runs)
        self._screen().update(table)

    def _screen(self) -> Live:
        if self._live is None:
            raise RuntimeError("the screen is not open")
        return self._live

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


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


def teller(wanted: Wanted) -> Tell:
    """Function that outputs a line of text as the caller chose."""
    if callable(wanted):
        return wanted
    return to_standard_error if wanted else lambda line: None


def _on_terminal(wanted: Wanted) -> bool:
    return wanted is True and sys.stderr is not None and sys.stderr.isatty()
