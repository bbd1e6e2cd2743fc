"""Progress of an evaluation in this process: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ablate.running.progress.lines import LINE_SECONDS, Tell
from evals.counting import listening
from store.documents.claim import Count


@contextmanager
def counts_shown(tell: Tell, on_terminal: bool) -> Iterator[None]:
    """Show the counts that the block reports. tell: receives each line, if the output is not a terminal."""
    if on_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task("evaluating", total=None)

            def move(count: Count) -> None:
                bars.update(bar, description=count.what, completed=count.done, total=count.total)

            with listening(move):
                yield
        return
    said = time.monotonic()

    def now_and_then(count: Count) -> None:
        nonlocal said
        if time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            tell(str(count))

    with listening(now_and_then):
        yield
