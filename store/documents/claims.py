"""Claims of a study, stated before it runs, and the ledger of all comparisons that were ever judged.

Claims are expectations of a study's author or of a paper about arms. A published table that a study replicates has
figures and findings with their source. A registered plan is a line of `studies/<name>-<scale>/registered.ndjson`, for
publication before the study runs.

`ledger/<study>.ndjson` has every comparison that was ever judged for a question, and is append-only. `judged.json`
beside a study's page records the last ledger line that the page depends on, so that an emptied, truncated or removed
ledger is noticed.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PositiveFloat

from store.documents._document import Document, JsonObject, Part, Time, is_none

Expectation: TypeAlias = Literal["better", "worse", "same", "stalls"]
LOSS = "loss"
ACCURACY = "accuracy"
COSTS = ("kv_bytes", "decode_time", "train_time", "memory", "parameters")
"""Measures that are compared as a ratio; lower is better."""
MEASURES = (LOSS, *COSTS, ACCURACY)
"""All measures but the scores of evaluations, which are named `task/metric`."""


Sizes: TypeAlias = Annotated[
    tuple[PositiveFloat, ...],
    BeforeValidator(
        lambda value: (value,) if isinstance(value, int | float) else value,
        json_schema_input_type=PositiveFloat | tuple[PositiveFloat, ...],
    ),
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


class StudyPublishedRow(Part):
    """A row: a published comparison of two arms."""

    arm: str
    """The study's arm."""
    against: str | None
    """The arm that it is compared with; null for an arm that is expected to stall."""
    label: str
    """The arm's name in the paper."""
    figure: float | None = Field(default=None, exclude_if=is_none)
    """Published figure of the arm."""
    other: float | None = Field(default=None, exclude_if=is_none)
    """Published figure of the arm that it is compared with."""
    expect: Expectation
    """Finding of the paper."""
    unchecked: bool
    """Whether a figure is quoted from memory."""

    @property
    def difference(self) -> float | None:
        """Published figure of the arm minus that of the other; None if either is missing."""
        return None if self.figure is None or self.other is None else self.figure - self.other


class StudyPublished(Part):
    """A published table. Its n rows are, in order, the study's last n claims."""

    source: str
    """Paper and table."""
    measure: str
    """Quantity of the figures, in words."""
    where: str | None
    """Sizes, data and lengths of the paper."""
    nats: bool
    """Whether differences of the figures are in nats per token, as the study's are."""
    rows: tuple[StudyPublishedRow, ...]
    """Rows in the order of the study."""


class RegistrationRecord(Part):
    """A registered plan. Append-only."""

    at: Time
    """Time of the registration (ISO 8601), by the clock of the machine."""
    sha256: str
    """Checksum of `content` as JSON with sorted keys and without spaces: the number to publish."""
    content: JsonObject
    """Question, arms, claims, margin, seeds, budget, tuning, data, and the rules for verdicts."""


class StudyRegistration(Part):
    """A registration of a study, and the differences of the study from it."""

    at: Time
    """Time of the registration (ISO 8601)."""
    sha256: str
    """Checksum of the registered plan."""
    changes: tuple[str, ...]
    """A line for each setting that has changed since: `margin: 0.02, now 0.05`."""


def hashed_text(content: JsonObject) -> str:
    """Canonical JSON of a plan: the text that is hashed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def checksum_of(content: JsonObject) -> str:
    return hashlib.sha256(hashed_text(content).encode()).hexdigest()


class LedgerTest(Part):
    """A comparison of two arms, with its p-values before correction for multiple tests."""

    arm: str
    """The arm's name."""
    baseline: str
    """Name of the arm that it was compared with."""
    arm_identity: str
    """Digest of everything but the seeds that determines the arm's losses."""
    baseline_identity: str
    """The same digest for the baseline."""
    measure: str = Field(default=LOSS, exclude_if=lambda measure: measure == LOSS)
    """The score compared: `loss`, or a task and its metric."""
    question: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Digests of the arms compared, whatever their learning rates. Tests with a digest in common belong to one question
    and share its 5 %. Empty in older stores, where all tests of a name belong to one question."""
    seeds: tuple[int, ...] | None
    """The seeds compared; null if seeds are added in planned looks, for which `p` is corrected."""
    looks: tuple[int, ...]
    """Numbers of seeds at which it may be judged; empty if the number is fixed."""
    margin: float | None
    """The study's margin, in nats per token."""
    tuned: bool = False
    """Whether the study tuned these arms, so that `p` allows for the noise of tuning."""
    at: int = 0
    """Number of seeds behind `p`. The first p at a number of seeds stands. 0 in stores from before noise was pooled
    over a study, whose p-values are recomputed."""
    freedom: int | None = Field(default=None, exclude_if=lambda freedom: freedom is None)
    """Written by versions that pooled noise; not used."""
    beyond: float = Field(default=0.0, exclude_if=operator.not_)
    """As `freedom`."""
    p: float | None
    """p-value of the test for a difference; null if there is none yet."""
    p_tie: float | None
    """p-value of the equivalence test, for a difference smaller than the margin; null if none yet, or no margin."""

    @property
    def seen(self) -> tuple[int, ...]:
        """The seeds compared; seeds of planned looks are numbered from 0."""
        return tuple(range(self.at)) if self.seeds is None else self.seeds


class LedgerRecord(Part):
    """One judgement of a study."""

    judged: Time
    """Time of the judgement (ISO 8601)."""
    scale: str
    """The study's scale."""
    tests: tuple[LedgerTest, ...]
    """One test for every arm but the baseline."""


class JudgedDocument(Document):
    """`judged.json`: the last judgement that a study's page depends on."""

    study: str
    """Name of the study, and of its ledger."""
    seal: str
    """Seal of that judgement's line in the ledger."""
