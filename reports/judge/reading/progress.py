"""Progress of a study, from the store alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from reports.judge.reading.outcomes import ENDED
from store import Store
from store.documents import StudyDocument
from store.store import Status

STALLED_SECONDS = 120.0
"""A study counts as not running after this many seconds without a write."""
NONE_KNOWN: Mapping[str, Status] = MappingProxyType({})


@dataclass(frozen=True)
class Running:
    """A run that has started and not ended. `loss` is None if it was not finite, or if nothing was logged yet."""

    digest: str
    arm: str
    seed: int
    step: int
    steps: int
    loss: float | None


@dataclass(frozen=True)
class StudyProgress:
    """Counts of the study's ended, failed and requested runs, and the runs under way."""

    ended: int
    failed: int
    total: int
    runs: tuple[Running, ...]
    is_running: bool

    @property
    def share(self) -> float:
        """Finished fraction of the work: ended runs, plus the finished fraction of steps of those under way."""
        begun = sum(run.step / run.steps for run in self.runs)
        return (self.ended + begun) / self.total if self.total else 0.0


def study_progress(store: Store, study: StudyDocument, known: Mapping[str, Status] = NONE_KNOWN) -> StudyProgress:
    """Current progress. known: statuses by run digest that need not be read from the store."""
    # Sizes may share runs; the study's own arms, which are compared last, override them.
    arms = [*(arm for size in study.ladder for arm in size.arms), *study.arms]
    keys = {run.digest: (arm, run) for arm in arms for run in arm.runs}
    statuses = {digest: known.get(digest) or store.status(digest) for digest in keys}
    ended = sum(status in ENDED for status in statuses.values())
    # Seconds since 1970. A worker that measures or evaluates writes only its heartbeat, and trains no run.
    last = max(map(store.last_beat, keys), default=0.0)
    if ended < len(keys):
        written = [entry.stat().st_mtime for digest in keys for entry in store.written(digest)]
        last = max(last, datetime.fromisoformat(study.created).timestamp(), *written)
    running = []
    for digest, status in statuses.items():
        if status == "partial":
            (arm, run), step = keys[digest], store.last_step(digest)
            at, loss = (step.step, step.loss) if step else (0, None)
            running.append(Running(digest, arm.name, run.seed, at, arm.steps, loss))
    return StudyProgress(
        ended=ended,
        failed=sum(store.read_error(digest) is not None for digest, status in statuses.items() if status not in ENDED),
        total=len(keys),
        runs=tuple(running),
        is_running=time.time() - last < STALLED_SECONDS,
    )
