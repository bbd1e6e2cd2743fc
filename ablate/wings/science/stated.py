"""Claims in plans and in a study's document: the date each was stated, and whether results were known by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ablate.wings.science.claim_spec import PUBLISHED, claims_of, published_table
from store.documents import JsonObject, StudyClaim, StudyDocument

if TYPE_CHECKING:
    from ablate.planning.plan import Plan
    from ablate.study.study import Study
from store.documents.claims import COSTS, LOSS

WORDS = {
    LOSS: ("lower loss", "higher loss", "the same loss"),
    "kv_bytes": ("smaller KV cache", "larger KV cache", "the same KV cache"),
    "decode_time": ("faster decoding", "slower decoding", "the same decoding time"),
    "train_time": ("faster training", "slower training", "the same training time"),
    "memory": ("less peak memory", "more peak memory", "the same peak memory"),
    "parameters": ("fewer parameters", "more parameters", "the same number of parameters"),
}
"""Words for better, worse and the same, by measure; a score is called better, worse or the same."""


def statement(claim: StudyClaim) -> str:
    """`double: lower loss than pre, by 0.02 nats`, `the lowest loss first: swiglu, geglu, relu`."""
    if claim.order:
        what = "lowest loss" if claim.measure == LOSS else f"best {claim.measure}"
        return f"{what} first: {', '.join(claim.order)}"
    if claim.expect == "stalls":
        return f"{claim.arm}: every seed fails to train"
    name = claim.measure.replace("/", " ")
    better, worse, same = WORDS.get(claim.measure, (f"better {name}", f"worse {name}", f"the same {name}"))
    said = {"better": better, "worse": worse, "same": same}[str(claim.expect)]
    linked = "as" if claim.expect == "same" else "than"
    other = f" {linked} {claim.against}" if claim.against else ""
    bound = "within" if claim.expect == "same" else "by"
    return f"{claim.arm}: {said}{other}" + (f", {bound} {size(claim)}" if claim.by else "")


def size(claim: StudyClaim) -> str:
    """The claimed size of a difference: `0.02 nats`, `a factor of 8`, or the bare number of a score."""
    if claim.measure in COSTS:
        return f"a factor of {claim.by:g}"
    return f"{claim.by:g} nats" if claim.measure == LOSS else f"{claim.by:g}"


def origin(claim: StudyClaim) -> str:
    """`arXiv:2408.00118, 1 to 27 B parameters`; empty without a source."""
    return ", ".join(filter(None, (claim.source, claim.where)))


def study_claims(study: Study, planned: str) -> tuple[StudyClaim, ...]:
    """The claims of a study first planned on the date `planned`."""
    screens = bool(study.factors)
    return tuple(
        each.stated(study.baseline, planned, screens=screens) for each in claims_of(study.sections, study.baseline)
    )


def fields(study: Study, document: StudyDocument) -> Mapping[str, object]:
    """Fields of the study's document."""
    table = published_table(study.sections)
    published = table.published(study.baseline) if table else None
    return {"claims": study_claims(study, document.created[:10]), "published": published}


def plan_json(plan: Plan) -> JsonObject:
    """Fields of `ablate plan --json`."""
    return {
        "claims": [each.model_dump(mode="json", exclude={"planned", "edited"}) for each in study_claims(plan.study, "")]
    }


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table."""
    for claim in study_claims(study, ""):
        source = f" ({origin(claim)})" if origin(claim) else ""
        yield f"claim: {statement(claim)}{source}"


def foretold(study: Study, detectable: float | None) -> Iterator[str]:
    """Lines on a study's power for its table: how many of the published differences it will probably detect.

    detectable: the difference that it detects with 80 % probability; None if unknown.
    """
    table = published_table(study.sections)
    if table is None:
        return
    rows = table.published(study.baseline).rows
    sizes = [abs(row.difference) for row in rows if row.difference is not None and row.expect in ("better", "worse")]
    if not table.nats or not sizes:
        yield f"{table.source}: {len(rows)} rows to compare; the paper has no differences in nats"
        return
    shown = " to ".join(dict.fromkeys(f"{size:.3g}" for size in (min(sizes), max(sizes))))
    yield f"{table.source}: {len(rows)} rows to compare, of which {len(sizes)} differ, by {shown} nats"
    if detectable is not None:
        seen = sum(size >= detectable for size in sizes)
        yield f"{seen} of these {len(sizes)} differences will probably be detected (80 % power)"


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
