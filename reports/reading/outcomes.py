"""What became of a run: its status in the store and, of text, what its final loss adds to it."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.store.documents import ReferenceLosses, ResultDocument, StudyDocument, TextMeta
from reports.reading.keys import Row, RunKey

UNJUDGED = frozenset({"smoke"})
"""Scales whose runs are too short for any verdict, and to stall."""
FAILED = ("stalled", "diverged")


def outcomes(
    study: StudyDocument,
    keys: list[RunKey],
    results: Mapping[str, ResultDocument | None],
    corpora: Mapping[str, TextMeta],
) -> dict[str, Row]:
    """By the digest of a finished run: what a frame says of it beyond its result.

    `uniform` is the worst loss that a model need have. A finished run that is no better than token frequencies has the
    status *stalled*, unless every run of the study is: then all of them are too short.
    """
    references = _references(study, corpora)
    found = {key.digest: (references.get(key.arm), results[key.digest]) for key in keys}
    rows = {
        digest: _outcome(known, result.loss)
        for digest, (known, result) in found.items()
        if known is not None and result is not None and result.status == "finished" and result.loss is not None
    }
    learned = any("status" not in row for row in rows.values()) and study.scale not in UNJUDGED
    return rows if learned else {digest: {"uniform": row["uniform"]} for digest, row in rows.items()}


def _references(study: StudyDocument, corpora: Mapping[str, TextMeta]) -> dict[str, ReferenceLosses]:
    """By arm. Losses of other objectives than next tokens do not compare with them."""
    if study.objective is not None:
        return {}
    return {arm.name: corpora[arm.data].references for arm in study.arms if arm.data in corpora}


def _outcome(known: ReferenceLosses, loss: float) -> Row:
    outcome = known.outcome(loss)
    if outcome == "trained":
        return {"uniform": known.uniform}
    compared, name = (known.unigram, "unigram") if outcome == "stalled" else (known.uniform, "uniform")
    reason = f"its loss is {loss:.3f}, and that of a {name} model {compared:.3f}"
    return {"uniform": known.uniform, "status": outcome, "reason": reason}
