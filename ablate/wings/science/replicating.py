"""`ablate.replicate`: a paper's table with our results beside it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Unpack

from ablate.api.result import StudyResult
from ablate.api.running import run
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.study.written import Sets
from ablate.wings.science import judging_claims
from ablate.wings.science.judging_claims import JudgedClaim
from ablate.wings.science.sections.claims import outcomes
from ablate.wings.science.sources import find_paper
from reports.judge.findings.study_summary import StudySummary
from reports.judge.noise.power import power_at
from store.documents import JsonObject, StudyPublished, StudyPublishedRow

HEADER = ("row", "published", "their difference", "ours", "", "power", "why")
FOUND = {"better": "better", "worse": "worse", "same": "no difference", "stalls": "does not train"}
NONE = "–"


def row_as_text(found: ReplicatedRow) -> tuple[str, ...]:
    row = found.row
    power = NONE if found.power is None else f"{100 * found.power:.0f} %"
    return (
        row.label + "*" * row.unchecked,
        NONE if row.figure is None else f"{row.figure:g}",
        theirs(row),
        judging_claims.measured(found.judged) or NONE,
        found.judged.told,
        power,
        "; ".join(filter(None, (judging_claims.could_see(found.judged), found.judged.reason))),
    )


def theirs(row: StudyPublishedRow) -> str:
    """`−0.041 against relu: better`."""
    against = f" against {row.against}" if row.against else ""
    known = "" if row.difference is None else f"{row.difference:+.3g}".replace("-", "−")
    return f"{known}{against}: {FOUND[row.expect]}".removeprefix(" ").removeprefix(": ")


def notes_below(table: StudyPublished, rows: Sequence[ReplicatedRow]) -> list[str]:
    """Lines below the table: source and conditions, counts of outcomes, and the meaning of marks."""
    counts = Counter(row.judged.outcome for row in rows)
    said = ", ".join(f"{outcome}: {count}" for outcome, count in counts.most_common())
    found = [
        f"{table.source}: {table.measure}" + (f" ({table.where})." if table.where else "."),
        f"Rows by outcome: {said}. “Cannot tell” contradicts nothing.",
    ]
    if any(row.power is not None for row in rows):
        found.append("power: the probability that this study finds a difference as large as the published one.")
    if any(row.row.unchecked for row in rows):
        found.append("* quoted from memory, not compared with the paper.")
    return found


@dataclass(frozen=True)
class ReplicatedRow:
    """A published row and the study's judgement of it. `power` is the probability that the study finds a difference as
    large as the published one; None if none was published in nats, or nothing was judged."""

    row: StudyPublishedRow
    judged: JudgedClaim
    power: float | None


def replicated(summary: StudySummary) -> tuple[ReplicatedRow, ...]:
    """Rows of the published table; empty if the study replicates none."""
    table = summary.study.published
    if table is None:
        return ()
    judged = outcomes(summary)[len(outcomes(summary)) - len(table.rows) :]
    pairs = zip(table.rows, judged, strict=True)
    return tuple(ReplicatedRow(row, each, _power(summary, row, each) if table.nats else None) for row, each in pairs)


def _power(summary: StudySummary, row: StudyPublishedRow, judged: JudgedClaim) -> float | None:
    """Power of a row; None if the noise, or the uncertainty of tuning, is unknown."""
    pair = {row.arm, row.against}
    found = next((each.comparison for each in summary.judgements if {each.arm, each.base} == pair), None)
    sized = row.expect in ("better", "worse") and judged.outcome != "not tested"
    if not found or row.difference is None or not sized:
        return None
    gap, known = found.gap, found.detectable
    if gap is None or known is None or not math.isfinite(known.value):
        return None
    return power_at(row.difference, known.value, math.hypot(gap.error, gap.shared), gap.freedom, found.tuning_room)


@dataclass(frozen=True)
class Replication:
    """A published table beside the results of a study.

    Attributes:
        result: the study's result, with its report.
        table: the published table.
        rows: an object for each row: the published values, the study's judgement of them, and its power.
    """

    result: StudyResult
    table: StudyPublished | None
    rows: tuple[ReplicatedRow, ...]

    @cached_property
    def text(self) -> tuple[tuple[str, ...], ...]:
        """The table as rows of text, the header first; empty if failed runs left nothing to compare."""
        return (HEADER, *map(row_as_text, self.rows)) if self.rows else ()

    def notes(self) -> list[str]:
        """Lines below the table: source and conditions, number of rows that agree, meaning of the marks."""
        return notes_below(self.table, self.rows) if self.table and self.rows else []

    def document(self) -> JsonObject:
        """The document that `ablate replicate --json` prints."""
        return {
            "study": self.result.name,
            "scale": self.result.scale,
            "source": self.table.source if self.table else None,
            "rows": [_document(row) for row in self.rows],
            "report": str(self.result.report) if self.result.report else None,
            "failed": len(self.result.failed),
        }


def _document(found: ReplicatedRow) -> JsonObject:
    row, effect = found.row, found.judged.effect
    return {
        **{
            name: getattr(row, name)
            for name in ("arm", "against", "label", "figure", "difference", "expect", "unchecked")
        },
        "ours": effect.mean if effect else None,
        "low": effect.low if effect else None,
        "high": effect.high if effect else None,
        "outcome": found.judged.outcome,
        "power": found.power,
        "seen": found.judged.seen,
        "reason": found.judged.reason,
    }


@documented(RunOptions.__annotations__)
def replicate(
    paper: str | Path,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    progress: Wanted = True,
    trackers: Sequence[str] = (),
    **options: Unpack[RunOptions],
) -> Replication:
    """Replicate a paper's table at an affordable scale: each row agrees, differs, or cannot be told.

    Args:
        paper: a study file with a section `published`, the name of one that ships, or its arXiv number: `2002.05202`.
        scale, sets, store, progress, trackers: as in `ablate.run`.
        options: see `ablate.running.options`.

    Returns:
        The table, with our differences beside the published ones, and the study's result.

    Raises:
        ArgumentError: no such paper ships, or the study has no published table.
        StudyError, EngineError, StoreError: as in `ablate.run`.

    Example:
        >>> ablate.replicate("2002.05202", scale="smoke").text
    """
    path = find_paper(paper)
    result = run(path, scale=scale, sets=sets, store=store, progress=progress, trackers=trackers, **options)
    if result.summary is None:
        return Replication(result, None, ())
    return Replication(result, result.summary.study.published, replicated(result.summary))
