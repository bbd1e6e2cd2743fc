"""`ledger/<study>.ndjson`: every comparison that was ever judged for a question. Append-only.

`judged.json` beside a study's page records the last ledger line that the page depends on, so that an emptied, truncated
or removed ledger is noticed.
"""

from __future__ import annotations

import operator

from pydantic import Field

from store.documents._document import Document, Part, Time

LOSS = "loss"


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
    measure: str = Field(default="loss", exclude_if=lambda measure: measure == LOSS)
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
