"""What a study asks of claims: that they name its arms, and measures that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.data.identity import MadeSource
from ablate.study.arms import Arm, ArmBuilder
from ablate.study.complaints import Problem
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.wings.science.claim_spec import ClaimKeys, ClaimSpec
from store.documents.claims import ACCURACY, MEASURES
from zoo.errors import did_you_mean

IN_A_DESIGN = "in a design, `arm` must be a factor and `expect` better, worse or same, without `against` or `order`"


def problems(
    reader: RungReader, builder: ArmBuilder, sections: StudySections, arms: Sequence[Arm], factors: Sequence[str]
) -> Iterator[Problem]:
    """Problems of claims, which name the factors of a design, or else arms, and of the published table."""
    assert isinstance(sections, ClaimKeys)
    origins, names = builder.origins, [arm.name for arm in arms]
    for place, claim in enumerate(sections.claims):
        for setting, reason in _of_claim(sections, claim, names, factors):
            yield origins.problem(("claims", str(place), *setting), reason)
    table = sections.published
    if table is not None and factors:
        yield origins.problem(("published",), "cannot be combined with `design`: a published table needs arms")
        return
    for place, row in enumerate(table.rows if table else ()):
        for key, arm in (("arm", row.arm), ("against", row.against)):
            if arm is not None and arm not in names:
                reason = f"unknown arm '{arm}'" + did_you_mean(arm, names)
                yield origins.problem(("published", "rows", str(place), key), reason)


def _of_claim(
    sections: StudySections, claim: ClaimSpec, arms: Sequence[str], factors: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    known, noun = (factors, "factor") if factors else (arms, "arm")
    for setting, name in claim.named:
        if name not in known:
            yield setting, f"unknown {noun} '{name}'" + did_you_mean(name, known)
    if factors and (claim.order or claim.against is not None or claim.expect == "stalls"):
        yield (), IN_A_DESIGN
    elif not factors and claim.expect != "stalls" and claim.arm == (claim.against or sections.baseline):
        yield (), f"compares {claim.arm} with itself"
    if reason := _unmeasured(sections, claim.measure):
        yield ("measure",), reason


def _unmeasured(sections: StudySections, measure: str) -> str | None:
    """Why no scale of the study has this measure; None if one may: scales can leave evaluations out."""
    is_made = isinstance(sections.data, MadeSource)
    if measure == ACCURACY and not is_made:
        return "text has no answers: there is no accuracy"
    task = measure.rpartition("/")[0]
    if measure in MEASURES or sections.evals is None:
        return None
    tasks = (*sections.evals.scored(), *([sections.data.source] if is_made else []))
    if not tasks or task.startswith(tasks):  # a group has tasks that begin with its name
        return None
    return f"the study does not evaluate '{task}'" + (did_you_mean(task, tasks) or f": one of {', '.join(tasks)}")
