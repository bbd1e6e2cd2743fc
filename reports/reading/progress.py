"""How far a study is, from the store alone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ablate.store import Store
from ablate.store.documents import StudyArm, StudyDocument, StudyRun

STALLED_SECONDS = 120.0
"""A study of which nothing was written for so long is not running."""


@dataclass(frozen=True)
class Running:
    """A run that has begun and not ended. `loss` is None where it was not finite, or nothing was logged yet."""

    arm: str
    seed: int
    step: int
    steps: int
    loss: float | None


@dataclass(frozen=True)
class StudyProgress:
    """Runs of the study that ended, of all that it asked for so far, and those under way."""

    ended: int
    total: int
    runs: tuple[Running, ...]
    is_running: bool

    @property
    def share(self) -> float:
        """Of the work, by runs and steps."""
        begun = sum(run.step / run.steps for run in self.runs)
        return (self.ended + begun) / self.total if self.total else 0.0


def study_progress(store: Store, study: StudyDocument) -> StudyProgress:
    keys = [(arm, run) for arm in study.arms for run in arm.runs]
    statuses = {run.digest: store.status(run.digest) for _, run in keys}
    begun = [(arm, run) for arm, run in keys if statuses[run.digest] == "partial"]
    written = max((_written(store, digest) for digest in statuses), default=0.0)
    return StudyProgress(
        ended=sum(statuses[run.digest] in ("finished", "diverged") for _, run in keys),
        total=len(keys),
        runs=tuple(_running(store, arm, run) for arm, run in begun),
        is_running=bool(begun) and time.time() - written < STALLED_SECONDS,
    )


def _running(store: Store, arm: StudyArm, run: StudyRun) -> Running:
    last = store.last_step(run.digest)
    return Running(arm.name, run.seed, last.step if last else 0, arm.steps, last.loss if last else None)


def _written(store: Store, digest: str) -> float:
    """When a run was last written to, in seconds since 1970; 0 where it was not begun."""
    return max((path.stat().st_mtime for path in store.written_paths(digest)), default=0.0)
