"""`campaigns/<name>.ndjson`: proposals to change a base, in order, and what was decided. Lines are only ever added.

A proposal has a line when it begins, and another with its outcome: one without an outcome goes on where it stopped.
"""

from __future__ import annotations

from typing import Literal

from ablate.store.documents._document import JsonObject, Part

Decision = Literal["keep", "discard", "undecided"]


class ProposalTest(Part):
    """Change against base at one scale, on seeds that nothing else used."""

    scale: str
    """The scale of the study."""
    study: str
    """The study's name in the store."""
    seeds: tuple[int, ...]
    """Paired seeds."""
    difference: float | None
    """Loss of the change minus that of the base, in nats; null where nothing could be compared."""
    low: float | None
    """Low end of its 95 % interval; null where it has none."""
    high: float | None
    """High end."""
    p: float | None
    """p-value of the one-sided test that the change is no better."""
    verdict: str
    """The verdict that a report would have of this comparison alone."""
    untold: str | None = None
    """Why its interval has no end on either side: what the tuning did not find out; null where it has one."""


class ProposalOutcome(Part):
    """Decision on a proposal, and its reason."""

    decision: Decision
    """Keep, discard, or undecided."""
    reason: str
    """The reason, in a sentence."""
    test: ProposalTest
    """The comparison."""
    level: float
    """Level that p was held against, given all proposals before."""
    confirmed: ProposalTest | None
    """The comparison at a second scale, if it was asked for and the first one was passed."""
    costs: JsonObject
    """Costs of the change as ratios to those of the base: `parameters`, `flops_per_token`, `kv_bytes_per_token`."""
    spent_seconds: float
    """Wall time of its runs."""


class ProposalRecord(Part):
    """One line: a proposal as it was begun, or with its outcome."""

    at: str
    """When (ISO 8601)."""
    number: int
    """Place in the campaign, from 1."""
    name: str
    """Name of the proposal."""
    scale: str
    """The scale at which it is judged."""
    edits: JsonObject
    """Edits of the base, by dotted path."""
    alpha: float
    """Share of the campaign's kept changes that may be none, in expectation."""
    base: str
    """Digest of the base that it is compared with: model, training and data."""
    outcome: ProposalOutcome | None = None
    """The decision; null where it was only begun."""
