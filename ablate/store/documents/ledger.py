"""`ledger/<study>.ndjson`: every comparison that was ever judged for a question. Lines are only ever added.

`judged.json` beside a study's page says which line of it the page rests on, so that a ledger that was emptied, cut or
removed is noticed.
"""

from __future__ import annotations

import operator

from pydantic import Field

from ablate.store.documents._document import Document, Part

LOSS = "loss"


class LedgerTest(Part):
    """A comparison of two arms, with the p-values that it had by itself."""

    arm: str
    """The arm's name."""
    baseline: str
    """The name of the arm that it was compared with."""
    arm_identity: str
    """Digest of all that decides the arm's losses but the seeds."""
    baseline_identity: str
    """The baseline's."""
    measure: str = Field(default="loss", exclude_if=lambda measure: measure == LOSS)
    """The score that is compared: `loss`, or a task and its metric."""
    question: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Digests of the arms compared, at whatever learning rate: tests that have one in common are of one question, and
    share 5 %. None in stores from before, where all tests of a name are of one question."""
    seeds: tuple[int, ...] | None
    """The seeds compared; null where seeds are added in planned looks, for which `p` is corrected."""
    looks: tuple[int, ...]
    """Numbers of seeds at which it may be judged; empty where the number is fixed."""
    margin: float | None
    """The study's margin, in nats per token."""
    tuned: bool = False
    """Whether the study tuned these arms, so that `p` allows for the noise of that."""
    at: int = 0
    """Number of seeds that `p` is of. The first p on so many stands; 0 in stores from before noise was pooled over a
    study, whose p-values are computed anew."""
    freedom: int | None = Field(default=None, exclude_if=lambda freedom: freedom is None)
    """Degrees of freedom of the noise that `p` rests on, if it is the study's pooled noise and all `seeds` trained in
    both arms: tests of arms against one baseline are then judged by their joint distribution."""
    beyond: float = Field(default=0.0, exclude_if=operator.not_)
    """Variance of the difference that more seeds do not reduce, such as that of documents, over that of this noise."""
    p: float | None
    """p-value of the test for a difference; null where there is none yet."""
    p_tie: float | None
    """p-value of the test for no difference as large as the margin; null where there is none yet, or no margin."""

    @property
    def seen(self) -> tuple[int, ...]:
        """The seeds compared; those that were added in planned looks are counted from 0."""
        return tuple(range(self.at)) if self.seeds is None else self.seeds


class LedgerRecord(Part):
    """One judgement of a study."""

    judged: str
    """When (ISO 8601)."""
    scale: str
    """The study's scale."""
    tests: tuple[LedgerTest, ...]
    """One for every arm but the baseline."""


class JudgedDocument(Document):
    """`judged.json`: the last judgement that the page of a study rests on."""

    study: str
    """The study's name, which is the ledger's."""
    seal: str
    """Seal of that line of the ledger."""
