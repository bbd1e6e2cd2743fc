"""A study's registration in words: whether it preceded the first run, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar, Self

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.page.sections import Section
from reports.page.wording.words import moment

MOST = 5
"""Most changes listed."""


class Registered(Section):
    """Registration of the study."""

    place: ClassVar[int] = 0

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls() if data.study.registrations else None

    def notes(self, summary: StudySummary) -> Iterator[str]:
        yield line(summary)


def line(summary: StudySummary) -> str:
    """`Registered on 2026-11-26 10:50 UTC, before its first run, and unchanged since (SHA-256 3f2a…).`"""
    known = summary.study.registrations
    if not known:
        return ""
    began = summary.began and datetime.fromisoformat(summary.began)
    before = [each for each in known if not began or datetime.fromisoformat(each.at) <= began]
    chosen = before[-1] if before else known[0]
    order = "before its first run" if before else f"after its first run, which began on {moment(str(summary.began))}"
    found = chosen.changes
    more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
    since = f"; changed since: {'; '.join(found[:MOST])}{more}" if found else ", and unchanged since"
    return f"Registered on {moment(chosen.at)}, {order}{since} (SHA-256 {chosen.sha256})."
