"""The page of a campaign: its proposals in order, the changes kept, and the improvement of the base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ablate.wings.campaign import campaign_log
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalRecord
from ablate.wings.campaign.proposals import kept, latest
from reports.judge.statistics.estimates import Estimate
from reports.judge.verdicts import Verdict
from reports.page.html.ranked import Axis, RankedRow
from reports.page.html.templating import render_plain
from reports.page.wording import words
from store import Store
from store.files import write_text


@dataclass(frozen=True)
class CampaignStep:
    """The base after a proposal: its improvement since the start of the campaign, with its interval, in nats."""

    number: int
    mean: float
    low: float
    high: float


def render_campaign(store: Store, name: str) -> Path:
    """Write the page beside the campaign's file, and return its path."""
    records = latest(campaign_log.read(store, name))
    path = campaign_log.log_path(store, name).with_suffix(".html")
    return write_text(path, campaign_page(name, records))


def campaign_page(name: str, records: Sequence[ProposalRecord]) -> str:
    """The page as HTML text."""
    decided = [record for record in records if record.outcome is not None]
    rows = [_row(record) for record in decided]
    path = steps(decided)
    return render_plain(
        "campaign.html.j2",
        ("campaign.css",),
        own=Path(__file__).parent,
        name=name,
        alpha=records[0].alpha if records else None,
        headline=headline(decided),
        items=list(zip(decided, rows, strict=True)),
        waiting=[record for record in records if record.outcome is None],
        axis=Axis.of(rows),
        steps=path,
        drawing=_drawing(path),
        words=words,
    )


def headline(decided: Sequence[ProposalRecord]) -> str:
    """The campaign in a sentence or two."""
    count, found = len(decided), kept(decided)
    if not count:
        return "No proposal has been decided yet."
    proposals = f"{count} proposal{'s' * (count != 1)}"
    if not found:
        return f"None of {proposals} was kept."
    last = steps(decided)[-1]
    gained = f"{last.mean:.3f} nats better ({last.low:.3f} to {last.high:.3f})"
    return f"{len(found)} of {proposals} kept: the base is {gained}."


def steps(decided: Sequence[ProposalRecord]) -> list[CampaignStep]:
    """Total improvement after each proposal. Each proposal has its own seeds, so squared half widths add up."""
    gains = [_gain(record) for record in decided]
    totals = accumulate(gains, lambda a, b: (a[0] + b[0], math.hypot(a[1], b[1])), initial=(0.0, 0.0))
    return [CampaignStep(place, mean, mean - half, mean + half) for place, (mean, half) in enumerate(totals)]


def _gain(record: ProposalRecord) -> tuple[float, float]:
    """Improvement of the base by a proposal, and the half width of its interval; zero if it was not kept."""
    outcome = record.outcome
    if outcome is None or outcome.decision != "keep" or outcome.test.difference is None:
        return 0.0, 0.0
    test = outcome.test
    ends = [abs(end - outcome.test.difference) for end in (test.low, test.high) if end is not None]
    return -outcome.test.difference, max(ends, default=0.0)


def _row(record: ProposalRecord) -> RankedRow:
    outcome = record.outcome
    assert outcome is not None
    test, difference, said = outcome.test, None, words.NONE
    if test.difference is not None:
        bounded = test.low is not None and test.high is not None
        low, high = (test.low, test.high) if bounded else (None, None)
        difference = Estimate(test.difference, low, high, None, ())
        ends = [words.signed(end, 3) if end is not None else "∞" for end in (test.low, test.high)]
        said = f"{words.signed(test.difference, 3)} ({ends[0]} to {ends[1]})"
    return RankedRow(
        name=record.name,
        label=record.name,
        gloss="",
        verdict=_mark(outcome),
        difference=difference,
        said=said,
        note=outcome.reason,
        costs={},
    )


def _mark(outcome: ProposalOutcome) -> Verdict:
    """The verdict nearest to the decision, for its mark and colour."""
    if outcome.decision == "keep":
        return "better"
    if outcome.decision == "undecided":
        return "inconclusive"
    return "worse" if outcome.test.verdict == "worse" else "no difference"


@dataclass(frozen=True)
class CampaignDrawing:
    """The improvement as SVG paths in a box of 100 by 100: the line, and its band."""

    line: str
    band: str
    top: float
    bottom: float


def _drawing(path: Sequence[CampaignStep]) -> CampaignDrawing | None:
    if len(path) < 2 or path[-1].mean == 0:
        return None
    top, bottom = max(step.high for step in path), min(0.0, *(step.low for step in path))
    across = [100 * step.number / (len(path) - 1) for step in path]

    def up(value: float) -> float:
        return round(100 * (top - value) / (top - bottom), 2)

    def stairs(values: Sequence[float]) -> list[tuple[float, float]]:
        """Points of a step function, flat until the next proposal."""
        points = [(0.0, up(values[0]))]
        for i in range(1, len(values)):
            points += [(across[i], up(values[i - 1])), (across[i], up(values[i]))]
        return points

    line = stairs([step.mean for step in path])
    band = [*stairs([step.high for step in path]), *reversed(stairs([step.low for step in path]))]
    joined = ("L".join(f"{x:.2f},{y:.2f}" for x, y in points) for points in (line, band))
    first, second = joined
    return CampaignDrawing(f"M{first}", f"M{second}Z", top, bottom)
