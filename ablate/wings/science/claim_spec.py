"""Claims of a study file: expected outcomes of arms, with their sources; and a published table that it replicates.

The table has figures, and claims follow from them. With the claims that the file states itself, they are the study's
expectations of its arms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

from ablate.study.layers import LayerRule, replaced
from ablate.wings.science.handbook import handbook
from store.documents import StudyClaim, StudyPublished, StudyPublishedRow
from store.documents.claims import COSTS, LOSS, MEASURES, Expectation, Sizes
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec, is_off

Name = Annotated[str, Field(min_length=1)]

PUBLISHED = ("source", "where", "sizes")
"""Fields that a claim takes from the handbook unless the study sets them, or names a source that is not there."""


class ClaimSpec(Spec):
    """A claim that the study tests: an arm is better, worse, the same or stalls, or arms stand in an order."""

    claim: Name | None = Field(default=None, json_schema_extra=lambda schema: schema.update(enum=[*handbook(), None]))
    """Its id in the handbook (`ablate claims`), which supplies a source and conditions that are not given here."""
    arm: Name | None = None
    """The arm, or the factor of a design, that the claim is about."""
    against: Name | None = None
    """The arm that `arm` is compared with; null for the baseline."""
    expect: Expectation | None = None
    """`better` is a lower loss, a lower cost or a better score. `stalls`: all seeds of the arm fail to train."""
    order: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Instead of an arm: arms from the best to the worst."""
    measure: Name = LOSS
    """`loss`, `kv_bytes`, `decode_time`, `train_time`, `memory`, `parameters`, `accuracy`, or a score as
    `task/metric`."""
    by: PositiveFloat | None = None
    """Published size of the difference: nats for the loss, a factor above 1 for costs, the score's own unit for scores.
    With `same`, the largest difference that still counts as none."""
    source: Name | None = None
    """Publication that states it."""
    where: Name | None = None
    """Sizes, data or other conditions under which it was published."""
    sizes: Sizes = Field(default=(), exclude_if=is_off)
    """Model sizes at which it was published, in parameters: one, or several. Within a factor of four of them a result
    can contradict the claim."""

    @field_validator("claim")
    @classmethod
    def _in_the_handbook(cls, claim: str | None) -> str | None:
        if claim is not None and claim not in handbook():
            near = did_you_mean(claim, handbook()) or ": see `ablate claims`"
            raise ValueError(f"unknown handbook claim '{claim}'{near}")
        return claim

    @field_validator("measure")
    @classmethod
    def _known(cls, measure: str) -> str:
        task, slash, metric = measure.partition("/")
        if measure not in MEASURES and not (task and slash and metric):
            near = did_you_mean(measure, MEASURES) or f": one of {', '.join(MEASURES)}, or a score as task/metric"
            raise ValueError(f"unknown measure '{measure}'{near}")
        return measure

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.order:
            beside = [name for name in ("arm", "against", "expect", "by") if getattr(self, name) is not None]
            if beside:
                raise ValueError(f"`order` cannot be combined with {' or '.join(beside)}")
            if len(set(self.order)) < max(2, len(self.order)):
                raise ValueError("`order` needs two or more arms, each only once")
            return self
        if self.by is not None and self.expect is None:
            raise ValueError("`by` needs `expect: better`, `worse` or `same`")
        if self.arm is None or self.expect is None:
            raise ValueError("needs `arm` and `expect`, or `order`")
        if self.expect == "stalls" and (self.by is not None or self.against is not None or self.measure != LOSS):
            raise ValueError("`expect: stalls` compares nothing: leave out by, against and measure")
        if self.by is not None and self.expect == "same" and self.measure == LOSS:
            raise ValueError("the study's margin decides which losses are the same: leave out by")
        if self.by is not None and self.by <= 1 and self.measure in COSTS:
            raise ValueError(f"`by` is a factor for {self.measure}, and must be above 1, not {self.by:g}")
        return self

    @property
    def named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """(path of a setting, arm or factor named there), for each that it names."""
        for setting in ("arm", "against"):
            name = getattr(self, setting)
            if name is not None:
                yield (setting,), name
        for place, name in enumerate(self.order):
            yield ("order", str(place)), name

    def stated(self, baseline: str, planned: str, *, screens: bool) -> StudyClaim:
        """The claim, completed from the study and the handbook.

        screens: whether the study screens factors, whose claims compare with no other arm.
        """
        compared = self.arm is not None and self.expect != "stalls" and not screens
        against = (self.against or baseline) if compared else None
        entry = handbook().get(self.claim or "")
        is_its = not self.source or self.source.rpartition(", ")[-1] in str(entry and entry.source)
        published = {name: getattr(self, name) or getattr((is_its and entry) or self, name) for name in PUBLISHED}
        return StudyClaim(**{**self.model_dump(), **published, "against": against, "planned": planned})


NonEmpty = Annotated[str, Field(min_length=1)]


class PublishedRow(Spec):
    """A row of a published table: an arm with its figure, or with the paper's finding."""

    arm: NonEmpty
    """Arm of the study that stands for the row."""
    figure: float | None = None
    """Published figure, in the measure of the table."""
    expect: Expectation | None = None
    """Finding of the paper, if it gives no figure."""
    against: NonEmpty | None = None
    """Arm that it is compared with; null for the baseline."""
    label: NonEmpty | None = None
    """Name in the paper, if it has another there."""
    unchecked: bool = False
    """Whether the figure is quoted from memory, not compared with the paper."""


class PublishedTable(Spec):
    """A published table that the study replicates. Each row but the baseline's is a claim of the study.

    A row whose figure differs by at most `tie` is expected to be the same; otherwise better or worse, by the published
    difference if that is in nats.
    """

    source: NonEmpty
    """Paper, with its arXiv identifier, and table."""
    measure: NonEmpty
    """Quantity of the figures, in words, with the length of training."""
    where: NonEmpty | None = None
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
