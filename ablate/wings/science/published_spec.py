"""A published table in a study file: the figures that the study replicates, and the claims that follow from them.

With the claims that the file states itself, they are the study's expectations of its arms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from ablate.study.layering import LayerRule, replaced
from ablate.wings.science.claim_spec import ClaimSpec
from store.documents import StudyPublished, StudyPublishedRow
from store.documents.claims import Expectation, Sizes
from zoo.settings.axis import Spec, is_off

Name = Annotated[str, Field(min_length=1)]


class PublishedRow(Spec):
    """A row of a published table: an arm with its figure, or with the paper's finding."""

    arm: Name
    """Arm of the study that stands for the row."""
    figure: float | None = None
    """Published figure, in the measure of the table."""
    expect: Expectation | None = None
    """Finding of the paper, if it gives no figure."""
    against: Name | None = None
    """Arm that it is compared with; null for the baseline."""
    label: Name | None = None
    """Name in the paper, if it has another there."""
    unchecked: bool = False
    """Whether the figure is quoted from memory, not compared with the paper."""


class PublishedTable(Spec):
    """A published table that the study replicates. Each row but the baseline's is a claim of the study.

    A row whose figure differs by at most `tie` is expected to be the same; otherwise better or worse, by the published
    difference if that is in nats.
    """

    source: Name
    """Paper, with its arXiv identifier, and table."""
    measure: Name
    """Quantity of the figures, in words, with the length of training."""
    where: Name | None = None
    """Sizes and data of the paper."""
    sizes: Sizes = Field(default=(), exclude_if=is_off)
    """Model sizes of the paper, in parameters."""
    better: Literal["lower", "higher"] = "lower"
    """Direction in which a figure is better."""
    nats: bool = False
    """Whether differences of figures are in nats per token, so that their size can be compared with the study's."""
    tie: NonNegativeFloat = 0.0
    """Largest published difference that counts as none."""
    rows: Annotated[tuple[PublishedRow, ...], Field(strict=False, min_length=1)]
    """Rows of the table for which the study has arms."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        names = [row.arm for row in self.rows]
        for row in self.rows:
            if row.against is not None and row.figure is not None and row.against not in names:
                raise ValueError(f"{row.arm} is compared with {row.against}, which is not among the rows")
            if row.figure is None and row.expect is None:
                raise ValueError(f"{row.arm} needs `figure` or `expect`")
        return self

    def published(self, baseline: str) -> StudyPublished:
        """The table, with its finding on each arm."""
        return StudyPublished(
            source=self.source,
            measure=self.measure,
            where=self.where,
            nats=self.nats,
            rows=tuple(self._rows(baseline)),
        )

    def claims(self, baseline: str) -> tuple[ClaimSpec, ...]:
        """A claim for each row."""
        found = []
        for row in self._rows(baseline):
            sized = self.nats and row.expect in ("better", "worse") and row.difference is not None
            by = round(abs(row.difference), 6) if sized and row.difference is not None else None
            claim = ClaimSpec(
                arm=row.arm,
                against=row.against,
                expect=row.expect,
                by=by,
                source=self.source,
                where=self.where,
                sizes=self.sizes,
            )
            found.append(claim)
        return tuple(found)

    def _rows(self, baseline: str) -> Iterator[StudyPublishedRow]:
        figures = {row.arm: row for row in self.rows}
        for row in self.rows:
            if row.arm == baseline and row.against is None and row.expect != "stalls":
                continue  # the other rows are compared with it
            against = None if row.expect == "stalls" else row.against or baseline
            other = figures.get(against) if against is not None and row.figure is not None else None
            found = StudyPublishedRow(
                arm=row.arm,
                against=against,
                label=row.label or row.arm,
                figure=row.figure,
                other=other.figure if other else None,
                expect=row.expect or "same",
                unchecked=row.unchecked or (other is not None and other.unchecked),
            )
            yield found if row.expect else found.model_copy(update={"expect": self._expected(found.difference)})

    def _expected(self, difference: float | None) -> Expectation:
        """Finding that a difference of figures implies. The 1e-9 allows for rounding in their subtraction."""
        if difference is None or abs(difference) <= self.tie + 1e-9:
            return "same"
        return "better" if (difference < 0) == (self.better == "lower") else "worse"


class ClaimKeys(Spec):
    """Keys of a study."""

    claims: Annotated[tuple[ClaimSpec, ...], Field(strict=False)] = Field(default=(), exclude_if=is_off)
    """Expected outcomes of the arms, with their sources: the report says which of them hold."""
    published: Annotated[PublishedTable | None, LayerRule(replaced)] = Field(default=None, exclude_if=is_off)
    """A published table that the study replicates: figures of its arms, each of which is a claim."""


KEYS = ClaimKeys


def published_table(sections: object) -> PublishedTable | None:
    """The published table that a study with these sections replicates."""
    return sections.published if isinstance(sections, ClaimKeys) else None


def claims_of(sections: object, baseline: str) -> tuple[ClaimSpec, ...]:
    """Expectations of the arms: the claims of the study, then the rows of its published table."""
    if not isinstance(sections, ClaimKeys):
        return ()
    return (*sections.claims, *(sections.published.claims(baseline) if sections.published else ()))
