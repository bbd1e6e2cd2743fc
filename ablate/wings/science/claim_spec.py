"""Claims of a study file: expected outcomes of arms, and their sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from ablate.wings.science.handbook import handbook
from store.documents import StudyClaim
from store.documents.claims import COSTS, LOSS, MEASURES, Expectation, Sizes
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec, is_off

Name = Annotated[str, Field(min_length=1)]

PUBLISHED = ("source", "where", "sizes")
"""Fields that a claim takes from the handbook unless the study sets them."""


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
        published = {name: getattr(self, name) or getattr(entry or self, name) for name in PUBLISHED}
        return StudyClaim(**{**self.model_dump(), **published, "against": against, "planned": planned})
