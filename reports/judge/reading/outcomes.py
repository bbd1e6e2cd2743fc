"""Outcome of a run: its stored status and, for text, the judgement of its final loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from types import MappingProxyType

from store import Store
from store.documents import ReferenceLosses, ResultDocument, StudyArm, StudyDocument, TextMeta
from store.documents.data import NEAR_UNIGRAM
from store.documents.result import Outcome
from store.documents.study import UNJUDGED
from store.store import Status
from store.tables import Row

ENDED = ("finished", "diverged")
FAILED = ("stalled", "diverged")
LEARNING = 0.1
"""A run is slow, not stalled, if in the second half of training its validation loss fell by more than this share of its
distance to the mean loss of the runs that trained."""

Ended = Outcome | ResultDocument
LossByRun = Mapping[str, float]
LossCurve = Callable[[str], list[tuple[int, float]]]
"""A run's digest → its steps and validation losses, in order."""


def outcomes(
    study: StudyDocument,
    arms: Iterable[StudyArm],
    results: Mapping[str, Ended | None],
    corpora: Mapping[str, TextMeta],
    curve: LossCurve,
) -> dict[str, Row]:
    """Outcome columns that complement the result, by digest of each finished run of these arms.

    `uniform` is the loss of a uniform guess. A finished run *diverged* if its loss is no better than that. It *stalled*
    if its loss is no better than that of token frequencies, no longer fell, and is far from its arm's better seeds. No
    run stalled if all are that near to token frequencies, since then all are too short; nor did a run of an
    undertrained arm.
    """
    found: dict[str, Row] = {}
    losses: dict[str, float] = {}
    low: dict[str, ReferenceLosses] = {}
    for arm in arms:
        if not study.predicts_next_token or arm.data not in corpora:
            continue  # losses of other objectives do not compare with those of token frequencies
        known, ended = corpora[arm.data].references, [(run.digest, results.get(run.digest)) for run in arm.runs]
        own = {
            digest: result.loss
            for digest, result in ended
            if result is not None and result.status == "finished" and result.loss is not None
        }
        losses |= own
        found |= {digest: {"uniform": known.uniform} for digest in own}
        for digest, loss in own.items():
            if known.outcome(loss) == "diverged":
                found[digest] |= _failed("diverged", loss, "uniform", known.uniform)
        if not arm.length.undertrained:
            low |= dict.fromkeys(_near_frequencies(own, known), known)
    trained = [losses[digest] for digest, row in found.items() if "status" not in row and digest not in low]
    if not trained or study.scale in UNJUDGED:
        return {digest: {"uniform": row["uniform"]} for digest, row in found.items()}
    for digest, known in low.items():
        if not _learns(curve(digest), fmean(trained)):
            found[digest] |= _failed("stalled", losses[digest], "unigram", known.unigram)
    return found


def _near_frequencies(losses: LossByRun, known: ReferenceLosses) -> Iterator[str]:
    """Runs of an arm that learned little beyond token frequencies.

    Losses within NEAR_UNIGRAM of their neighbour form a group, whose median decides for all: no threshold separates two
    seeds that ended alike.
    """
    order = sorted((loss, digest) for digest, loss in losses.items() if known.outcome(loss) != "diverged")
    together = [order[:1]]
    for before, after in pairwise(order):
        if after[0] - before[0] > NEAR_UNIGRAM:
            together.append([])
        together[-1].append(after)
    for group in together:
        if group and median(loss for loss, _ in group) > known.stalled_above:
            yield from (digest for _, digest in group)


def _learns(curve: list[tuple[int, float]], trained: float) -> bool:
    """Whether the validation loss was still falling towards that of the runs that trained."""
    if len(curve) < 2:
        return False
    last, end = curve[-1]
    half = next(loss for step, loss in curve if step >= last / 2)
    return end > trained and half - end > LEARNING * (half - trained)


def _failed(status: str, loss: float, name: str, compared: float) -> Row:
    return {"status": status, "reason": f"its loss is {loss:.3f}, and that of a {name} model {compared:.3f}"}


# Progress of a study, from the store alone.

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
