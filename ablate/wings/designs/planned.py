"""A design in plans and in a study's document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ablate.planning.plan import Plan
from ablate.planning.study_document import study_arm
from ablate.study.study import Study
from ablate.wings.designs.design_spec import DesignKeys, Screen, named, screen
from ablate.wings.designs.factorial import Effect, structure
from store.documents import JsonObject, StudyArm, StudyDesign, StudyDocument, StudyEffect
from zoo.settings.identity import digest_of

UNSAID = {"identity", "other_identity"}
"""Fields of an effect that `ablate plan --json` omits."""


def screen_of(study: Study) -> Screen | None:
    """The design whose runs are the study's arms; None if there is none."""
    sections = study.sections
    design = sections.design if isinstance(sections, DesignKeys) else None
    return None if design is None else screen(design, study.factors)


def fields(study: Study, document: StudyDocument) -> Mapping[str, object]:
    """Fields of the study's document."""
    chosen = screen_of(study)
    return {} if chosen is None else {"design": design_document(chosen, document.arms)}


def plan_json(plan: Plan) -> JsonObject:
    """Fields of `ablate plan --json`."""
    chosen = screen_of(plan.study)
    if chosen is None:
        return {"design": None}
    found = design_document(chosen, [study_arm(arm) for arm in plan.arms])
    return {"design": found.model_dump(mode="json", exclude={"effects": {"__all__": UNSAID}})}


def remarks(study: Study) -> Iterator[str]:
    """Remarks below a plan's table."""
    if chosen := screen_of(study):
        yield from design_lines(chosen, tuned=study.tune is not None)


def design_lines(screen: Screen, *, tuned: bool) -> Iterator[str]:
    """Lines on the design: the estimated effects, and those that are aliased."""
    yield f"Design. {structure(len(screen.factors), len(screen.runs), screen.design.resolution)}"
    yield f"Effects, judged together: {', '.join(map(named, screen.effects))}."
    if aliased := screen.design.alias_text():
        yield f"Aliased: {'; '.join(aliased)}."
    if tuned:
        yield f"Error of effects: from the {screen.spare} contrasts without an effect, because each run is tuned."


def design_document(screen: Screen, arms: Sequence[StudyArm]) -> StudyDesign:
    """The factorial design in the study's document. arms: one per run of the design."""
    return StudyDesign(
        factors=screen.factors,
        resolution=screen.design.resolution,
        correction=screen.correction,
        effects=tuple(_effect(screen, effect, arms) for effect in screen.effects),
    )


def _effect(screen: Screen, effect: Effect, arms: Sequence[StudyArm]) -> StudyEffect:
    levels = screen.design.contrast(effect)
    high = [arm for arm, level in zip(arms, levels, strict=True) if level > 0]
    low = [arm for arm, level in zip(arms, levels, strict=True) if level < 0]
    return StudyEffect(
        factors=effect,
        aliases=screen.aliases(effect),
        arms=tuple(arm.name for arm in high),
        identity=_identity(high),
        other_identity=_identity(low),
    )


def _identity(arms: Sequence[StudyArm]) -> str:
    """Order-independent identity of several arms; as long as theirs, so as to match an earlier version's ledger."""
    return digest_of(sorted(arm.identity for arm in arms), max(len(arm.identity) for arm in arms))
