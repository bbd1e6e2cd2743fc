"""`ablate.replicate`: a paper's table, with ours beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ablate.api.planning import StudyPlan
from ablate.api.result import StudyResult
from ablate.api.running import run
from ablate.errors import ArgumentError
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.store.documents import JsonObject, StudyPublished
from ablate.study.reading import load_study
from ablate.study.written import SHIPPED, Sets
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    from reports.findings.replication import ReplicatedRow

FOLDER = SHIPPED / "papers"
ARXIV = re.compile(r"(?:arXiv:)?(\d{4}\.\d{4,5})(?:v\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Replication:
    """A published table beside what a study found.

    Attributes:
        result: the study's result, with its report.
        table: the published table.
        rows: an object for each row: what was published, the study's judgement of it, and the power that it had.
    """

    result: StudyResult
    table: StudyPublished | None
    rows: tuple[ReplicatedRow, ...]

    @cached_property
    def text(self) -> tuple[tuple[str, ...], ...]:
        """The table as rows of text, the header first; empty if nothing was compared, since runs failed."""
        from reports.wording import replication_words  # noqa: PLC0415 (as the other words of a report)

        return replication_words.table(self.rows) if self.rows else ()

    def notes(self) -> list[str]:
        """Lines below the table: source and conditions, how many rows agree, what marks mean."""
        from reports.wording import replication_words  # noqa: PLC0415 (as above)

        return replication_words.notes(self.table, self.rows) if self.table and self.rows else []

    def document(self) -> JsonObject:
        """The same as `ablate replicate --json` prints it."""
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
        "outcome": found.outcome,
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
    """Replicate a paper's table at a scale that is at hand: each row agrees, disagrees, or cannot be told.

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
    import reports  # noqa: PLC0415 (a plan needs no statistics)

    path = find_paper(paper)
    result = run(path, scale=scale, sets=sets, store=store, progress=progress, trackers=trackers, **options)
    if result.summary is None:
        return Replication(result, None, ())
    return Replication(result, result.summary.study.published, reports.replicated(result.summary))


def papers() -> dict[str, str]:
    """Source of the table of each paper that ships, by name."""
    studies = {path.stem: load_study(path, "smoke") for path in sorted(FOLDER.glob("*.yaml"))}
    return {name: study.sections.published.source for name, study in studies.items() if study.sections.published}


def find_paper(paper: str | Path) -> Path:
    """The study file of a paper. Raises ArgumentError."""
    path, number = Path(paper), ARXIV.fullmatch(str(paper))
    if path.suffix in (".yaml", ".yml"):
        if load_study(path, "smoke").sections.published is None:
            raise ArgumentError(
                "paper", "the study has no section `published`, so there is no table to replicate", path
            )
        return path
    known = {each.stem: each for each in sorted(FOLDER.glob("*.yaml"))}
    if number is not None:
        found = [each for each in known.values() if f"arXiv:{number[1]}" in each.read_text(encoding="utf-8")]
        if found:
            return found[0]
    if str(paper) in known:
        return known[str(paper)]
    near = did_you_mean(str(paper), known) or f"; shipped: {', '.join(known)}"
    raise ArgumentError("paper", f"no paper of that name or number ships{near}", str(paper))


def foretold(plan: StudyPlan) -> Iterator[str]:
    """Lines on what a plan could tell of its table: of the published differences, those that it will probably find."""
    table = plan.study.sections.published
    if table is None:
        return
    rows = table.published(plan.study.baseline).rows
    yield f"{table.source}: {len(rows)} rows"
    sizes = [abs(row.difference) for row in rows if row.difference is not None and row.expect in ("better", "worse")]
    if table.nats and sizes and plan.detectable is not None:
        seen = sum(size >= plan.detectable for size in sizes)
        span = f"{min(sizes):.3g} to {max(sizes):.3g}" if len(sizes) > 1 else f"{sizes[0]:.3g}"
        yield (
            f"of the {len(sizes)} published differences, {span} nats, {seen} are as large as what will probably be"
            f" detected"
        )
