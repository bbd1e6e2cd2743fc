"""Claims of a study as its document keeps them: since when each was stated, and whether results were known by then."""

from __future__ import annotations

from collections.abc import Callable

from ablate.store.documents import StudyClaim, StudyDocument
from ablate.study.claim_spec import ClaimSpec
from ablate.study.handbook import handbook
from ablate.study.study import Study

PUBLISHED = ("source", "where")
"""Fields that the handbook gives to a claim unless the study does."""


def study_claims(study: Study, planned: str) -> tuple[StudyClaim, ...]:
    """The claims of a study that is first planned on this date."""
    screens = study.screen is not None
    return tuple(stated(each, study.baseline, planned, screens=screens) for each in study.claims)


def stated(spec: ClaimSpec, baseline: str, planned: str, *, screens: bool) -> StudyClaim:
    """A claim with what it leaves to the study and to the handbook.

    screens: whether the study screens factors, which are against nothing.
    """
    compared = spec.arm is not None and spec.expect != "stalls" and not screens
    against = (spec.against or baseline) if compared else None
    entry = handbook().get(spec.claim or "")
    published = {name: getattr(spec, name) or getattr(entry, name, None) for name in PUBLISHED}
    return StudyClaim(**{**spec.model_dump(), **published, "against": against, "planned": planned})


def with_dates(study: StudyDocument, before: StudyDocument | None, had_result: Callable[[str], bool]) -> StudyDocument:
    """The document, whose claims keep the dates of the one that it replaces.

    A claim that the earlier document lacks is `edited` where results could have suggested it: a run of that document
    had one, or every arm that the claim names did.

    had_result: whether a run had a result before anything was planned now, by its digest.
    """
    known = {} if before is None else {_key(each): each for each in before.claims}
    began = before is not None and any(had_result(run.digest) for arm in before.arms for run in arm.runs)
    ended = {arm.name for arm in study.arms if any(had_result(run.digest) for run in arm.runs)}

    def dated(claim: StudyClaim) -> StudyClaim:
        if (kept := known.get(_key(claim))) is not None:
            return claim.model_copy(update={"planned": kept.planned, "edited": kept.edited})
        named = {name for pair in claim.pairs for name in pair if name is not None}
        arms = {arm.name for arm in study.arms} if study.design else named
        return claim.model_copy(update={"edited": began or arms <= ended})

    return study.model_copy(update={"claims": tuple(map(dated, study.claims))})


def _key(claim: StudyClaim) -> str:
    """Content of a claim that is judged. Other words for who says so make no other claim."""
    return claim.model_dump_json(exclude={"planned", "edited", "claim", *PUBLISHED})
