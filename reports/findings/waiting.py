"""What must not be judged yet, whatever its runs say so far, and why. Pure.

Who looks at results as they come in, and stops when they please, finds differences that are not there.
"""

from __future__ import annotations

import polars as pl

from reports.reading.outcomes import UNJUDGED

REPEATED = (
    "some of these seeds were judged before, in another set, for another question or with the noise of tuning: judging "
    "them again until a difference appears inflates false positives. Let the study add seeds (seeds: auto), or judge "
    "fresh ones"
)


def waiting(scale: str, runs: pl.DataFrame, of: str = "study") -> str | None:
    """Why nothing is judged that rests on these runs, all of one study or `of` a part of it; None where it may be.

    Noise is pooled over a study, so that it is judged when all of its runs have ended.
    """
    if scale in UNJUDGED:
        return f"the scale {scale} shows that a study runs, not what it finds"
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this {of} have not ended" if missing else None
