"""`ablate.replicate`: a paper's table, with ours beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ablate.api.planning import StudyPlan
from ablate.api.result import StudyResult
from ablate.api.running import run
from ablate.errors import ArgumentError
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.store.documents import JsonObject, StudyPublished
from ablate.study.written import SHIPPED, Sets, read_study
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
    return {path.stem: _table(path)["source"] for path in sorted(FOLDER.glob("*.yaml"))}


def find_paper(paper: str | Path) -> Path:
    """The study file of a paper. Raises ArgumentError."""
    path, number = Path(paper), ARXIV.fullmatch(str(paper))
    if path.suffix in (".yaml", ".yml"):
        _table(path)
        return path
    sources = papers()
    found = [name for name, source in sources.items() if name == str(paper) or (number and number[1] in source)]
    if not found:
        near = did_you_mean(str(paper), sources) or f"; shipped: {', '.join(sources)}"
        raise ArgumentError("paper", f"no paper of that name or number ships{near}", str(paper))
    return FOLDER / f"{found[0]}.yaml"


def _table(path: Path) -> Any:
    """The section `published` of a study file, as it is written. Raises ArgumentError where there is none."""
    found = read_study(path).document.data.get("published")
    if found is None:
        raise ArgumentError("paper", "the study has no section `published`: there is no table to replicate", str(path))
    return found


def foretold(plan: StudyPlan) -> Iterator[str]:
    """Lines on what a plan could tell of its table: of the published differences, those that it will probably find."""
    table = plan.study.sections.published
    if table is None:
        return
    rows = table.published(plan.study.baseline).rows
    sizes = [abs(row.difference) for row in rows if row.difference is not None and row.expect in ("better", "worse")]
    if not table.nats or not sizes or plan.detectable is None:
        yield f"{table.source}: {len(rows)} rows to compare; the paper has no differences in nats"
        return
    seen = sum(size >= plan.detectable for size in sizes)
    shown = " to ".join(dict.fromkeys(f"{size:.3g}" for size in (min(sizes), max(sizes))))
    yield f"{table.source}: {len(rows)} rows to compare, of which {len(sizes)} differ, by {shown} nats"
    yield f"{seen} of these {len(sizes)} differences are as large as what will probably be detected"
