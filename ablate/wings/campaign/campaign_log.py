"""`campaigns/<name>.ndjson`: proposals to change a base, in order, and the decisions on them. Append-only.

A proposal has a line when it begins, and another with its outcome. One without an outcome resumes where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from store import Store
from store.documents import JsonObject, Part, StudyDocument
from store.documents._document import Time
from store.files import StoreError
from store.folders import StudyFolder
from store.logs import LogFile

FOLDER = "campaigns"
STUDY = re.compile(r"judge-(.+)-\d+")
"""Pattern of the names that `study_of` makes."""

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
    """Digest of the campaign's base before any change was kept: model, training and data."""
    charged: float | None = None
    """Seconds that count against the total budget under which it is judged: all of its budget while it runs, then the
    time that it took, of all attempts; null without such a budget."""
    outcome: ProposalOutcome | None = None
    """The decision; null on the line that begins the proposal."""


def study_of(campaign: str, number: int) -> str:
    """Name of the study that judges a campaign's proposal."""
    return f"judge-{campaign}-{number}"


def log_path(store: Store, name: str) -> Path:
    """The file with the proposals of a campaign."""
    return store.root / FOLDER / f"{quote(name, safe='')}.ndjson"


def total_lock(store: Store) -> Path:
    """Held while a proposal is charged to what all of them may take."""
    return store.root / FOLDER / "total.budget.lock"


def log_of(store: Store, name: str) -> LogFile[ProposalRecord]:
    remedy = "restore the file, since decisions account for earlier proposals"
    return LogFile(log_path(store, name), name, remedy, ProposalRecord)


def campaigns(store: Store) -> list[str]:
    """Names of the campaigns, sorted. Raises OSError if their folder may not be read."""
    return store.logs_in(FOLDER)


def read(store: Store, name: str) -> tuple[ProposalRecord, ...]:
    """Lines of a campaign, the oldest first. Raises StoreError if the line of a judged proposal is missing."""
    log = log_of(store, name)
    found = tuple(log.records())
    known = {study_of(name, record.number) for record in found}
    for campaign, study, folder in _judged(store):
        if campaign == name and study.name not in known:
            number = study.name.rpartition("-")[2]
            raise StoreError(f"{log.path} lacks proposal {number}, whose study is {folder.path}: {log.remedy}")
    return found


def _judged(store: Store) -> Iterator[tuple[str, StudyDocument, StudyFolder]]:
    """Studies that judge proposals, with the campaign of each."""
    for path in sorted(store.root.glob("studies/judge-*")):
        study = StudyFolder(path).read()
        if study is not None and (found := STUDY.fullmatch(study.name)):
            yield found[1], study, StudyFolder(path)


# Campaigns in archives, and in `ablate check`.


def listings(store: Store) -> tuple[Callable[[], list[str]], ...]:
    """Functions that name the campaigns: by their logs, and by the studies that judge their proposals."""
    return partial(campaigns, store), lambda: [name for name, _, _ in _judged(store)]


def unpackable(study: StudyDocument) -> str | None:
    """Why a study cannot be packed; None if it can."""
    return "is a proposal of a campaign" if STUDY.fullmatch(study.name) else None
