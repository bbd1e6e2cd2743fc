"""`ablate status`: what a store's studies have, and what runs now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablate.store import Store
from ablate.store.claims import Watch, last_beat
from ablate.store.documents import StudyDocument
from ablate.store.processes import has_ended


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
    runs = [(arm.name, run) for arm in study.arms for run in arm.runs]
    open_runs = [(arm, run) for arm, run in runs if store.status(run.digest) in ("absent", "partial")]
    failed = sum(store.read_error(run.digest) is not None for _, run in open_runs)
    running = tuple(_running(store, [(arm, run.digest, run.seed) for arm, run in open_runs]))
    return StudyState(study.name, study.scale, len(runs), len(runs) - len(open_runs), failed, running)


def _running(store: Store, runs: list[tuple[str, str, int]]) -> Iterator[RunningRun]:
    for arm, digest, seed in runs:
        folder: Path = store.run_dir(digest)
        holder, document = Watch(folder).holder(), store.read_run(digest)
        if holder is None or document is None or has_ended(holder.host, holder.pid, holder.started):
            continue
        last = store.last_step(digest)
        ago = max(0.0, time.time() - last_beat(folder))
        yield RunningRun(digest, arm, seed, last.step if last else 0, document.steps, ago)
