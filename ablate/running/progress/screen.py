"""A live table on a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.running.progress.following import Progress
from ablate.terminal import raw, visible

BAR_WIDTH = 20


@dataclass
class ProgressBars(Progress):
    """A summary line of the study, and a progress bar for each current run."""

    _live: Live | None = field(default=None, init=False)

    def __enter__(self) -> Progress:
        self._live = Live(console=Console(file=raw(sys.stderr)), refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def data(self, stage: str, share: float) -> None:
        self._screen().update(f"data: {stage} {share:.0%}")

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
