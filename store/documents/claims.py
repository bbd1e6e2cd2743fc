"""Claims of a study: expectations of its author or of a paper about arms, stated before it runs."""

from __future__ import annotations

import operator
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PositiveFloat

from store.documents._document import Part, is_none

Expectation: TypeAlias = Literal["better", "worse", "same", "stalls"]
LOSS = "loss"
ACCURACY = "accuracy"
COSTS = ("kv_bytes", "decode_time", "train_time", "memory", "parameters")
"""Measures that are compared as a ratio; lower is better."""
MEASURES = (LOSS, *COSTS, ACCURACY)
"""All measures but the scores of evaluations, which are named `task/metric`."""


Sizes: TypeAlias = Annotated[
    tuple[PositiveFloat, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, int | float) else value),
    Field(strict=False),
]
"""Model sizes in parameters, one or more, as the source counts them: `2.2e8` or `[8e9, 5.4e11]`."""


class StudyClaim(Part):
    """One claim: an arm against another, or an order of arms."""

    claim: str | None = Field(default=None, exclude_if=is_none)
    """Id of the claim in the handbook of claims."""
    arm: str | None = Field(default=None, exclude_if=is_none)
    """The arm, or the factor of a design; null for an order."""
    against: str | None = Field(default=None, exclude_if=is_none)
    """The arm that `arm` is compared with; null for an order, a factor, and an arm that is expected to stall."""
    expect: Expectation | None = Field(default=None, exclude_if=is_none)
    """Expected outcome of `arm`; `better` is a lower loss, a lower cost or a better score."""
    order: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Arms from the best to the worst."""
    measure: str = LOSS
    """`loss`, `kv_bytes`, `decode_time`, `train_time`, `memory`, `parameters`, `accuracy`, or `task/metric`."""
    by: float | None = Field(default=None, exclude_if=is_none)
    """Expected size of the difference: nats for the loss, a factor for costs, the score's own unit for scores. With
    `same`, the largest difference that still counts as none."""
    source: str | None = Field(default=None, exclude_if=is_none)
    """Publication that states it."""
    where: str | None = Field(default=None, exclude_if=is_none)
    """Sizes, data or other conditions under which it was published."""
    sizes: Sizes = Field(default=(), exclude_if=operator.not_)
    """Model sizes at which it was published, in parameters; empty if unknown."""
    planned: str
    """Date on which the claim in this form was first planned (ISO 8601)."""
    edited: bool = False
    """Whether it appeared or changed after a run of the study had a result."""

    @property
    def pairs(self) -> tuple[tuple[str, str | None], ...]:
        """(arm, arm it is compared with); for an order, adjacent arms, the better one first."""
        if self.order:
            return tuple(zip(self.order, self.order[1:], strict=False))
        return ((self.arm, self.against),) if self.arm is not None else ()
