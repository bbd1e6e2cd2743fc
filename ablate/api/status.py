"""`ablate status`: how far a store's studies are, and what runs now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ablate.store import Store
from ablate.store.claims import last_beat
from ablate.store.documents import StudyDocument
from reports.reading.progress import STALLED_SECONDS, Running, study_progress


@dataclass(frozen=True)
class RunningRun:
    """A run that a process works on now. beat_seconds_ago: how long ago it last showed that it lives."""

    digest: str
    arm: str
    seed: int
    step: int
    steps: int
    beat_seconds_ago: float


@dataclass(frozen=True)
class StudyState:
    """A study's runs: how many are planned so far, have ended and have failed, and those that run now."""

    name: str
    scale: str
    runs: int
    ended: int
    failed: int
    running: tuple[RunningRun, ...]


def states(store: Store) -> list[StudyState]:
    """The state of every study of a store, which need not exist yet."""
    documents = (folder.read() for folder in store.studies())
    return [_state(store, document) for document in documents if document is not None]


def _state(store: Store, study: StudyDocument) -> StudyState:
    found = study_progress(store, study)
    running = tuple(_alive(store, found.runs))
    return StudyState(study.name, study.scale, found.total, found.ended, found.failed, running)


def _alive(store: Store, runs: tuple[Running, ...]) -> Iterator[RunningRun]:
    for run in runs:
        ago = time.time() - last_beat(store.run_dir(run.digest))
        if ago < STALLED_SECONDS:
            yield RunningRun(run.digest, run.arm, run.seed, run.step, run.steps, max(0.0, ago))
