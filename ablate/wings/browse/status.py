"""`ablate status`: progress of a store's studies, and the runs in progress."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reports.judge.reading.outcomes import ENDED, STALLED_SECONDS, Running, study_progress
from store import Store

PURPOSES = {"tuning": "tuning", "judging": "search"}
"""Purpose of a run that no study names yet, by the held-out split of its final loss."""


@dataclass(frozen=True)
class RunningRun:
    """A run in progress. arm: the arm's name, or the purpose of a run that no study names. beat_seconds_ago: seconds
    since the last heartbeat."""

    digest: str
    arm: str
    seed: int
    step: int
    steps: int
    beat_seconds_ago: float


@dataclass(frozen=True)
class StudyState:
    """A study's progress: numbers of runs that are planned so far, have ended and have failed; the runs in progress.

    stage: `tuning, round 2`, whose runs these are; empty once the arms are planned.
    """

    name: str
    scale: str
    question: str
    runs: int
    ended: int
    failed: int
    running: tuple[RunningRun, ...]
    stage: str = ""


def states(store: Store) -> list[StudyState]:
    """The state of every study of a store; empty if the store does not exist yet."""
    states = []
    for study in store.study_documents():
        found = study_progress(store, study)
        running = tuple(_alive(store, found.runs))
        about = study.name, study.scale, study.question
        states.append(StudyState(*about, found.total, found.ended, found.failed, running))
    return [*states, *tuning_states(store)]


def tuning_states(store: Store) -> Iterator[StudyState]:
    """The state of every study that tunes its arms."""
    for tuned in store.tuning():
        status = {digest: store.status(digest) for digest in tuned.runs}
        ended = sum(each in ENDED for each in status.values())
        failed = sum(store.read_error(digest) is not None for digest, each in status.items() if each not in ENDED)
        running = tuple(_alive(store, (_unfinished(store, digest, arm) for digest, arm in tuned.runs.items())))
        about = tuned.name, tuned.scale, tuned.question
        yield StudyState(*about, len(status), ended, failed, running, tuned.stage)


def running_elsewhere(store: Store, studies: Sequence[StudyState]) -> tuple[RunningRun, ...]:
    """Runs in progress that no study's document names, such as those of searches."""
    named = {run.digest for study in studies for run in study.running}
    alive = [digest for digest in store.runs() if digest not in named and _beat_ago(store, digest) < STALLED_SECONDS]
    return tuple(_alive(store, (_unfinished(store, digest) for digest in alive)))


def _unfinished(store: Store, digest: str, arm: str | None = None) -> Running | None:
    """A run that has begun and not ended; None for others. arm: by default, the run's purpose."""
    run = store.read_run(digest) if store.status(digest) == "partial" else None
    if run is None:
        return None
    last = store.last_step(digest)
    step, loss = (last.step, last.loss) if last else (0, None)
    return Running(digest, arm or PURPOSES.get(run.reads, "run"), run.seed, step, run.steps, loss)


def _alive(store: Store, runs: Iterable[Running | None]) -> Iterator[RunningRun]:
    for run in filter(None, runs):
        if (ago := _beat_ago(store, run.digest)) < STALLED_SECONDS:
            yield RunningRun(run.digest, run.arm, run.seed, run.step, run.steps, max(0.0, ago))


def _beat_ago(store: Store, digest: str) -> float:
    """Seconds since the last heartbeat of the run's worker."""
    return time.time() - store.last_beat(digest)
