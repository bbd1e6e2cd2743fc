"""The factorial design of a study, part of its `study.json`."""

from __future__ import annotations

from typing import Literal

from store.documents._document import Part

ALIASING = {
    3: "main effects are aliased with two-factor interactions",
    4: "main effects are clear of two-factor interactions, which are aliased with each other",
}
CLEAR = "main effects and two-factor interactions are clear of each other"
ROMAN = {3: "III", 4: "IV", 5: "V", 6: "VI", 7: "VII", 8: "VIII"}


def structure(factors: int, runs: int, resolution: int | None) -> str:
    """`A fraction of resolution IV, 16 of 64 combinations of 6 factors: main effects are clear of …`."""
    if resolution is None:
        return f"All {runs} combinations of {factors} factors: no effects are aliased."
    size = f"{runs} of {2**factors} combinations of {factors} factors"
    return f"A fraction of resolution {ROMAN.get(resolution, resolution)}, {size}: {ALIASING.get(resolution, CLEAR)}."


class StudyEffect(Part):
    """An effect that a design estimates: the mean loss of half of its runs minus that of the other half."""

    factors: tuple[str, ...]
    """One factor for a main effect, two for their interaction."""
    aliases: tuple[tuple[str, ...], ...]
    """Other effects of at most two factors that the runs cannot tell from it. The estimate is the sum of both; their
    difference if one has one factor and the other two."""
    arms: tuple[str, ...]
    """The half of the runs whose mean counts positive: for a main effect, those with the factor."""
    identity: str
    """Digest of everything but the seeds that determines the losses of these runs."""
    other_identity: str
    """The same digest for the other half."""

    @property
    def name(self) -> str:
        """`gated × qk_norm`."""
        return " × ".join(self.factors)


class StudyDesign(Part):
    """A two-level design, whose runs are the arms of the study; its first run, the baseline, has no factor."""

    factors: tuple[str, ...]
    """Names of the factors."""
    resolution: int | None
    """3: main effects are aliased with interactions of two factors; 4: only these interactions, with each other; null
    if all combinations are trained."""
    correction: Literal["holm", "benjamini_hochberg"]
    """Correction of the effects' p-values for multiple tests."""
    effects: tuple[StudyEffect, ...]
    """Effects that are judged: every main effect, then the chosen interactions."""
