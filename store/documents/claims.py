"""Claims of a study: expectations of its author or of a paper about arms, stated before it runs."""

from __future__ import annotations

import operator
from typing import Literal, TypeAlias

from pydantic import Field

from store.documents._document import Part, is_none

Expectation: TypeAlias = Literal["better", "worse", "same", "stalls"]
LOSS = "loss"
ACCURACY = "accuracy"
COSTS = ("kv_bytes", "decode_time", "train_time", "memory", "parameters")
"""Measures that are compared as a ratio; lower is better."""
MEASURES = (LOSS, *COSTS, ACCURACY)
"""All measures but the scores of evaluations, which are named `task/metric`."""


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


WORDS = {
    LOSS: ("lower loss", "higher loss", "the same loss"),
    "kv_bytes": ("smaller KV cache", "larger KV cache", "the same KV cache"),
    "decode_time": ("faster decoding", "slower decoding", "the same decoding time"),
    "train_time": ("faster training", "slower training", "the same training time"),
    "memory": ("less peak memory", "more peak memory", "the same peak memory"),
    "parameters": ("fewer parameters", "more parameters", "the same number of parameters"),
}
"""Words for better, worse and the same, by measure; a score is called better, worse or the same."""


def statement(claim: StudyClaim) -> str:
    """`double: lower loss than pre, by 0.02 nats`, `the lowest loss first: swiglu, geglu, relu`."""
    if claim.order:
        what = "lowest loss" if claim.measure == LOSS else f"best {claim.measure}"
        return f"{what} first: {', '.join(claim.order)}"
    if claim.expect == "stalls":
        return f"{claim.arm}: every seed fails to train"
    name = claim.measure.replace("/", " ")
    better, worse, same = WORDS.get(claim.measure, (f"better {name}", f"worse {name}", f"the same {name}"))
    said = {"better": better, "worse": worse, "same": same}[str(claim.expect)]
    linked = "as" if claim.expect == "same" else "than"
    other = f" {linked} {claim.against}" if claim.against else ""
    bound = "within" if claim.expect == "same" else "by"
    return f"{claim.arm}: {said}{other}" + (f", {bound} {size(claim)}" if claim.by else "")


def size(claim: StudyClaim) -> str:
    """The claimed size of a difference: `0.02 nats`, `a factor of 8`, or the bare number of a score."""
    if claim.measure in COSTS:
        return f"a factor of {claim.by:g}"
    return f"{claim.by:g} nats" if claim.measure == LOSS else f"{claim.by:g}"


def origin(claim: StudyClaim) -> str:
    """`arXiv:2408.00118, 1 to 27 B parameters`; empty without a source."""
    return ", ".join(filter(None, (claim.source, claim.where)))
