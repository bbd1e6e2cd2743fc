"""Progress of a study, from the store alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from ablate.store import Store
from ablate.store.documents import StudyArm, StudyDocument, StudyRun
from ablate.store.store import Status
from reports.reading.outcomes import ENDED

STALLED_SECONDS = 120.0
"""A study of which nothing was written for so long is not running."""
NONE_KNOWN: Mapping[str, Status] = MappingProxyType({})


@dataclass(frozen=True)
class Running:
    """A run that has begun and not ended. `loss` is None where it was not finite, or nothing was logged yet."""

    digest: str
    arm: str
    seed: int
    step: int
    steps: int
    loss: float | None


@dataclass(frozen=True)
class StudyProgress:
    """Runs of the study that ended and that failed, of all that it asked for so far, and those under way."""

    ended: int
    failed: int
    total: int
    runs: tuple[Running, ...]
    is_running: bool

    @property
    def share(self) -> float:
        """Finished share of the work, by runs and steps."""
        begun = sum(run.step / run.steps for run in self.runs)
        return (self.ended + begun) / self.total if self.total else 0.0


def study_progress(store: Store, study: StudyDocument, known: Mapping[str, Status] = NONE_KNOWN) -> StudyProgress:
    """Progress now. known: statuses of runs, by digest, that the store need not be asked for."""
    keys = {run.digest: (arm, run) for arm, run in _planned(study)}
    statuses = {digest: known.get(digest) or store.status(digest) for digest in keys}
    ended = sum(status in ENDED for status in statuses.values())
    last = _last_written(store, study, keys) if ended < len(keys) else _last_beat(store, keys)
    return StudyProgress(
        ended=ended,
        failed=sum(store.read_error(digest) is not None for digest, status in statuses.items() if status not in ENDED),
        total=len(keys),
        runs=tuple(_running(store, *keys[digest]) for digest, status in statuses.items() if status == "partial"),
        is_running=time.time() - last < STALLED_SECONDS,
    )


def _planned(study: StudyDocument) -> Iterator[tuple[StudyArm, StudyRun]]:
    """Runs of every size, those of the size that is compared last. Sizes may share some."""
    arms = [*(arm for size in study.ladder for arm in size.arms), *study.arms]
    return ((arm, run) for arm in arms for run in arm.runs)


def _planned_at(study: StudyDocument) -> float:
    """Time of planning in seconds since 1970."""
    return datetime.fromisoformat(study.created).timestamp()


def _running(store: Store, arm: StudyArm, run: StudyRun) -> Running:
    last = store.last_step(run.digest)
    return Running(run.digest, arm.name, run.seed, last.step if last else 0, arm.steps, last.loss if last else None)


def _last_written(store: Store, study: StudyDocument, digests: Iterable[str]) -> float:
    """Last write in seconds since 1970. A worker that measures or evaluates writes only its heartbeat."""
    return max(_planned_at(study), _last_beat(store, digests), *(_written(store, digest) for digest in digests))


def _last_beat(store: Store, digests: Iterable[str]) -> float:
    """Last heartbeat of a worker that has a run now, also of one that is trained and not yet measured."""
    return max(map(store.last_beat, digests), default=0.0)


def _written(store: Store, digest: str) -> float:
    """When a run was last written to, in seconds since 1970; 0 where it was not begun."""
    return max((entry.stat().st_mtime for entry in store.written(digest)), default=0.0)
