"""Problems of claims that are each valid: arms that are not there, and measures that the study's data do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.data.sources._synthetic import SyntheticSource
from ablate.store.documents.claims import ACCURACY, MEASURES
from ablate.study.claim_spec import ClaimSpec
from ablate.study.layers import Target
from ablate.study.sections import StudySections
from zoo.errors import did_you_mean

Complaint = tuple[Target, str]
"""A setting inside `claims`, and what is wrong with it."""


def claim_problems(sections: StudySections, arms: Sequence[str]) -> Iterator[Complaint]:
    """Claims of a design name its factors, all others `arms`."""
    for place, claim in enumerate(sections.claims):
        for setting, reason in _problems(sections, claim, arms):
            yield ("claims", str(place), *setting), reason
    table = sections.published
    if table is not None and sections.design:
        yield ("published",), "a design estimates effects of factors: a published table needs arms"
        return
    for place, row in enumerate(table.rows if table else ()):
        for key, arm in (("arm", row.arm), ("against", row.against)):
            if arm is not None and arm not in arms:
                yield ("published", "rows", str(place), key), f"there is no arm '{arm}'" + did_you_mean(arm, arms)


def _problems(sections: StudySections, claim: ClaimSpec, arms: Sequence[str]) -> Iterator[Complaint]:
    known, noun = (tuple(sections.factors), "factor") if sections.design else (arms, "arm")
    for setting, name in claim.named:
        if name not in known:
            yield setting, f"there is no {noun} '{name}'" + did_you_mean(name, known)
    if sections.design and (claim.order or claim.against is not None or claim.expect == "stalls"):
        yield (), "a design estimates effects of factors: name one as arm, and expect better, worse or same"
    elif not sections.design and claim.expect != "stalls" and claim.arm == (claim.against or sections.baseline):
        yield (), f"compares {claim.arm} with itself"
    if reason := _unmeasured(sections, claim.measure):
        yield ("measure",), reason


def _unmeasured(sections: StudySections, measure: str) -> str | None:
    """Why the study never has this measure. A scale that leaves out evaluations has it elsewhere."""
    is_made = isinstance(sections.data, SyntheticSource)
    if measure == ACCURACY and not is_made:
        return "text has no answers: there is no accuracy"
    task = measure.rpartition("/")[0]
    if measure in MEASURES or sections.evals is None:
        return None
    tasks = (*sections.evals.scored(), *([sections.data.source] if is_made else []))
    if not tasks or task.startswith(tasks):  # a group has tasks that begin with its name
        return None
    return f"the study does not evaluate '{task}'" + (did_you_mean(task, tasks) or f": {', '.join(tasks)}")
