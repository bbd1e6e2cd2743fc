"""Comparisons that must not be judged yet, whatever their runs show so far, and why. Pure.

Who looks at results as they come in, and stops when they please, finds differences that are not there.
"""

from __future__ import annotations

import polars as pl

from ablate.store.documents import StudyDocument
from ablate.store.documents.length import LIMITS
from ablate.store.documents.study import all_undertrained
from reports.reading.outcomes import UNJUDGED

PILOT = "a pilot has estimates and spends nothing of the 5 %: judge the question on other seeds, without `pilot: true`"
UNDERTRAINED = (
    f"all arms are undertrained (fewer than {LIMITS}): estimates, which spend nothing of the 5 %. Train for longer, or "
    "judge them as they are with `pilot: false`"
)

REPEATED = (
    "some of these seeds were judged before, in another set, for another question or with the noise of tuning: judging "
    "them again until a difference appears inflates false positives. Let the study add seeds (seeds: auto), or judge "
    "fresh ones"
)


def waiting(study: StudyDocument, runs: pl.DataFrame, of: str = "study") -> str | None:
    """Why nothing is judged that rests on these runs, all of one study or `of` a part of it; None where it may be.

    Noise is pooled over a study, so that it is judged when all of its runs have ended.
    """
    if study.scale in UNJUDGED:
        return f"the scale {study.scale} shows that a study runs, not what it finds"
    if study.pilot:
        return UNDERTRAINED if all_undertrained(study.arms) else PILOT
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this {of} have not ended" if missing else None
