"""The factorial design of a study: in its document, and in words for `ablate plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.store.documents import StudyArm, StudyDesign, StudyEffect
from ablate.store.documents.design import structure
from ablate.study.design_spec import Screen, named
from ablate.study.factorial import Effect
from zoo.settings.identity import digest_of


def design_document(screen: Screen, arms: Sequence[StudyArm]) -> StudyDesign:
    """Design for reports, whose runs are these arms."""
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
    """Identity of several arms, in any order: as long as theirs, by which an earlier version's ledger knows them."""
    return digest_of(sorted(arm.identity for arm in arms), max(len(arm.identity) for arm in arms))


def design_lines(screen: Screen, *, tuned: bool) -> Iterator[str]:
    """Effects that are estimated, and those that the runs cannot tell apart."""
    yield f"Design. {structure(len(screen.factors), len(screen.runs), screen.design.resolution)}"
    yield f"Effects, judged together: {', '.join(map(named, screen.effects))}."
    if aliased := screen.design.alias_text():
        yield f"Aliased: {'; '.join(aliased)}."
    if tuned:
        yield f"Error of effects: from the {screen.spare} contrasts that no effect takes, because each run is tuned."
