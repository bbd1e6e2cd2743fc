"""`campaigns/<name>.ndjson`: proposals to change a base, in order, and the decisions on them. Append-only.

A proposal has a line when it begins, and another with its outcome. One without an outcome resumes where it stopped.
"""

from __future__ import annotations

from typing import Literal

from store.documents._document import JsonObject, Part, Time

Decision = Literal["keep", "discard", "undecided"]


class ProposalTest(Part):
    """Comparison of change and base at one scale, on seeds that nothing else used."""

    scale: str
    """The scale of the study."""
    study: str
    """The study's name in the store."""
    seeds: tuple[int, ...]
    """Paired seeds."""
    difference: float | None
    """Loss of the change minus that of the base, in nats; null if they could not be compared."""
    low: float | None
    """Lower bound of its 95 % interval; null if unbounded."""
    high: float | None
    """Upper bound; null if unbounded."""
    p: float | None
    """p-value of the one-sided test that the change is no better."""
    verdict: str
    """Verdict of a report on this comparison alone."""
    untold: str | None = None
    """Why its interval is unbounded on both sides: questions that the tuning left open; null if there are none."""


class ProposalOutcome(Part):
    """Decision on a proposal, and its reason."""

    decision: Decision
    """Keep, discard, or undecided."""
    reason: str
    """The reason, in a sentence."""
    test: ProposalTest
    """The comparison."""
    level: float
    """Significance level for p, given all earlier proposals."""
    confirmed: ProposalTest | None
    """The comparison at a second scale, if one was requested and the first was passed."""
    costs: JsonObject
    """Costs of the change as ratios to those of the base: `parameters`, `flops_per_token`, `kv_bytes_per_token`."""
    spent_seconds: float
    """Wall time of its runs."""


class ProposalRecord(Part):
    """One line: a proposal as it was begun, or with its outcome."""

    at: Time
    """Time of the line (ISO 8601)."""
    number: int
    """Position in the campaign, from 1."""
    name: str
    """Name of the proposal."""
    scale: str
    """The scale at which it is judged."""
    edits: JsonObject
    """Edits of the base, by dotted path."""
    alpha: float
    """Bound on the expected share of the campaign's kept changes that are no improvement (false discovery rate)."""
    base: str
    """Digest of the base that it is compared with: model, training and data."""
    charged: float | None = None
    """Seconds that count against the total budget under which it is judged: all of its budget while it runs, then the
    time that it took, of all attempts; null without such a budget."""
    outcome: ProposalOutcome | None = None
    """The decision; null on the line that begins the proposal."""
