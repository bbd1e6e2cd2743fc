"""The factorial design of a study, part of its `study.json`."""

from __future__ import annotations

from typing import Literal

from store.documents._document import Part


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
