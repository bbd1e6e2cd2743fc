"""What must not be judged yet, whatever its runs say so far, and why. Pure.

Who looks at results as they come in, and stops when they please, finds differences that are not there.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from reports.reading.collected import Collected
from reports.reading.outcomes import UNJUDGED

REPEATED = (
    "some of these seeds were judged before: adding seeds until a difference appears inflates false positives. "
    "Let the study add them (seeds: auto), or judge fresh seeds"
)


def waiting(data: Collected, arms: Collection[str]) -> str | None:
    """Why a comparison of these arms is not judged; None where it may be."""
    if data.study.scale in UNJUDGED:
        return f"the scale {data.study.scale} shows that a study runs, not what it finds"
    runs = data.runs.filter(pl.col("arm").is_in(list(arms)))
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this comparison have not ended" if missing else None
