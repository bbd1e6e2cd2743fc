"""Claims in a study's document: the date each was stated, and whether results were known by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate.study.claim_spec import ClaimSpec
from ablate.study.handbook import handbook
from store.documents import StudyClaim, StudyDocument

if TYPE_CHECKING:
    from ablate.study.study import Study

PUBLISHED = ("source", "where", "sizes")
"""Fields that a claim takes from the handbook unless the study sets them."""


def study_claims(study: Study, planned: str) -> tuple[StudyClaim, ...]:
    """The claims of a study first planned on the date `planned`."""
    screens = study.screen is not None
    return tuple(stated(each, study.baseline, planned, screens=screens) for each in study.claims)


def stated(spec: ClaimSpec, baseline: str, planned: str, *, screens: bool) -> StudyClaim:
    """A claim completed from the study and the handbook.

    screens: whether the study screens factors, whose claims compare with no other arm.
    """
    compared = spec.arm is not None and spec.expect != "stalls" and not screens
    against = (spec.against or baseline) if compared else None
    entry = handbook().get(spec.claim or "")
    published = {name: getattr(spec, name) or getattr(entry or spec, name) for name in PUBLISHED}
    return StudyClaim(**{**spec.model_dump(), **published, "against": against, "planned": planned})


def with_dates(study: StudyDocument, before: StudyDocument | None, had_result: Callable[[str], bool]) -> StudyDocument:
    """The document, with claims dated as in `before`, the document that it replaces.

    A claim new to it is `edited` if results could have suggested it: any run of `before` had a result, or every arm
    that the claim names did.

    had_result: whether the run of a digest had a result before the present planning.
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
    """The judged content of a claim; a change of its handbook entry or source alone does not make another claim."""
    return claim.model_dump_json(exclude={"planned", "edited", "claim", *PUBLISHED})
