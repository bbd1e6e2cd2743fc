"""What must not be judged yet, whatever its runs say so far, and why. Pure.

Who looks at results as they come in, and stops when they please, finds differences that are not there.
"""

from __future__ import annotations

import polars as pl

from reports.reading.outcomes import UNJUDGED

REPEATED = (
    "some of these seeds were judged before: adding seeds until a difference appears inflates false positives. "
    "Let the study add them (seeds: auto), or judge fresh seeds"
)


def waiting(scale: str, runs: pl.DataFrame) -> str | None:
    """Why a comparison of these runs is not judged; None where it may be."""
    if scale in UNJUDGED:
        return f"the scale {scale} shows that a study runs, not what it finds"
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this comparison have not ended" if missing else None
