"""One run in progress."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ablate.readable import clock, short
from ablate.running.request import Request
from ablate.store import Store
from ablate.store.claims import Watch
from ablate.store.documents import MetricsRecord

SILENT_SECONDS = 20.0
"""Silence of a process that is told of."""
PHASES = {"train": "starting", "measure": "measuring", "evals": "evaluating"}


@dataclass
class Run:
    """A run in progress, as the store shows it."""

    label: str
    request: Request
    steps: int
    work: float
    watch: Watch
    step: int = 0
    doing: str = "starting"
    share: float = 0.0
    """Share of its current phase that is done."""
    began: float | None = None
    """When its worker started, by the monotonic clock; once it has shown itself, when it did."""
    claimed: bool = False
    is_new: bool = True
    """Whether nothing of it was done before."""

    def look(self, store: Store) -> None:
        missing, holder = self.request.missing(), self.watch.holder()
        if holder is not None and not self.claimed:
            self.claimed, self.began = True, time.monotonic()
        last = store.last_step(self.request.digest)
        self.step = last.step if last else 0
        if last and missing[:1] == ["train"]:
            self.doing, self.share = step_text(last, self.steps), last.step / self.steps
        elif missing and store.log_path(self.request.digest).exists():
            count = holder.count if holder else None
            self.doing = f"{PHASES[missing[0]]}{f': {count}' if count else ''}"
            self.share = count.done / count.total if count else 0.0
        elif missing:
            self.doing = "queued"
        if holder is not None and self.watch.silent_seconds >= SILENT_SECONDS:
            silent, timeout = clock(self.watch.silent_seconds), clock(self.request.execution.stall_timeout)
            self.doing = f"no sign of life for {silent} from process {holder.pid}, of at most {timeout}"


def step_text(record: MetricsRecord, steps: int) -> str:
    """`step 120/400  loss 3.214  5.2k tokens/s`"""
    loss = "not finite" if record.loss is None else f"{record.loss:.3f}"
    return f"step {record.step}/{steps}  loss {loss}  {short(record.tokens_per_second or 0.0)} tokens/s"
