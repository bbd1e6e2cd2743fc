"""A published table beside the study's results, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reports.judge.claims.replication import ReplicatedRow
from reports.page.wording import claim_words
from store.documents import StudyPublished, StudyPublishedRow

HEADER = ("row", "published", "their difference", "ours", "", "power", "why")
FOUND = {"better": "better", "worse": "worse", "same": "no difference", "stalls": "does not train"}
NONE = "–"


def table(rows: Sequence[ReplicatedRow]) -> tuple[tuple[str, ...], ...]:
    """Rows of text, header first."""
    return (HEADER, *map(_row, rows))


def _row(found: ReplicatedRow) -> tuple[str, ...]:
    row = found.row
    power = NONE if found.power is None else f"{100 * found.power:.0f} %"
    return (
        row.label + "*" * row.unchecked,
        NONE if row.figure is None else f"{row.figure:g}",
        theirs(row),
        claim_words.measured(found.judged) or NONE,
        found.outcome,
        power,
        "; ".join(filter(None, (claim_words.could_see(found.judged), found.judged.reason))),
    )


def theirs(row: StudyPublishedRow) -> str:
    """`−0.041 against relu: better`."""
    against = f" against {row.against}" if row.against else ""
    known = "" if row.difference is None else f"{row.difference:+.3g}".replace("-", "−")
    return f"{known}{against}: {FOUND[row.expect]}".removeprefix(" ").removeprefix(": ")


def notes(table: StudyPublished, rows: Sequence[ReplicatedRow]) -> list[str]:
    """Lines below the table: source and conditions, counts of outcomes, and the meaning of marks."""
    counts = Counter(row.outcome for row in rows)
    said = ", ".join(f"{outcome}: {counts[outcome]}" for outcome in ("agrees", "disagrees", "cannot tell"))
    found = [
        f"{table.source}: {table.measure}" + (f" ({table.where})." if table.where else "."),
        f"Rows by outcome: {said}. They apply to this size and these data only; “cannot tell” contradicts nothing.",
    ]
    if any(row.power is not None for row in rows):
        found.append("power: the probability that this study finds a difference as large as the published one.")
    if any(row.row.unchecked for row in rows):
        found.append("* quoted from memory, not compared with the paper.")
    return found
