"""Progress of a store's studies, runs in progress, and logs of runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablate.api.named import named_run
from ablate.running.runlog import DONE
from reports.judge.reading.outcomes import STALLED_SECONDS, Running, study_progress
from store import Store
from store.files import check_regular

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
    """A study's progress: numbers of runs that are planned so far, have ended and have failed; the runs in progress."""

    name: str
    scale: str
    runs: int
    ended: int
    failed: int
    running: tuple[RunningRun, ...]


def states(store: Store) -> list[StudyState]:
    """The state of every study of a store; empty if the store does not exist yet."""
    states = []
    for study in store.study_documents():
        found = study_progress(store, study)
        running = tuple(_alive(store, found.runs))
        states.append(StudyState(study.name, study.scale, found.total, found.ended, found.failed, running))
    return states


def running_elsewhere(store: Store, studies: Sequence[StudyState]) -> tuple[RunningRun, ...]:
    """Runs in progress that no study's document names: those of searches, and of tuning, which comes before the arms
    are known."""
    named = {run.digest for study in studies for run in study.running}
    alive = [digest for digest in store.runs() if digest not in named and _beat_ago(store, digest) < STALLED_SECONDS]
    found = []
    for digest in alive:
        run = store.read_run(digest) if store.status(digest) == "partial" else None
        if run is not None:
            last = store.last_step(digest)
            step, loss = (last.step, last.loss) if last else (0, None)
            found.append(Running(digest, PURPOSES.get(run.reads, "run"), run.seed, step, run.steps, loss))
    return tuple(_alive(store, found))


def _alive(store: Store, runs: Iterable[Running]) -> Iterator[RunningRun]:
    for run in runs:
        if (ago := _beat_ago(store, run.digest)) < STALLED_SECONDS:
            yield RunningRun(run.digest, run.arm, run.seed, run.step, run.steps, max(0.0, ago))


def _beat_ago(store: Store, digest: str) -> float:
    """Seconds since the last heartbeat of the run's worker."""
    return time.time() - store.last_beat(digest)


LOOK_SECONDS = 0.2


def logs(run: str | Path, *, store: str | Path = "runs", follow: bool = False) -> Iterator[str]:
    """Read the log of a run, whatever the engine: what was done, when and where, with warnings and tracebacks.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder.
        store: the store's folder; not needed if `run` is a folder.
        follow: keep yielding new lines until the run is done.

    Returns:
        The log's lines, without line ends.

    Raises:
        StoreError: there is no such run, or no worker has started on it.

    Example:
        >>> print(*ablate.logs("3f2a"), sep="\\n")
    """
    place, digest = named_run(run, store, Store.logged)
    return _lines(place.log_path(digest), follow)


def _lines(path: Path, follow: bool) -> Iterator[str]:
    rest, over = "", False
    check_regular(path)
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            *lines, rest = (rest + log.read()).split("\n")
            yield from lines
            over = lines[-1].endswith(f" {DONE}") if lines else over
            if over or not follow:
                break
            time.sleep(LOOK_SECONDS)
    if rest:
        yield rest
