"""Outcome of a run: its stored status and, for text, the judgement of its final loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import fmean, median

from store.documents import ReferenceLosses, ResultDocument, StudyArm, StudyDocument, TextMeta
from store.documents.data import NEAR_UNIGRAM
from store.documents.result import Outcome
from store.documents.study import UNJUDGED
from store.result_columns import Row

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
        if study.objective is not None or arm.data not in corpora:
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
