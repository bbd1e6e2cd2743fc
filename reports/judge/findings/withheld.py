"""Reasons for withholding a verdict, whatever the runs show so far. Pure.

Looking at results as they come in, and stopping at will, finds differences that do not exist.
"""

from __future__ import annotations

import polars as pl

from store.documents import StudyDocument
from store.documents.length import LIMITS
from store.documents.study import UNJUDGED
from store.documents.study_arm import all_undertrained

PILOT = (
    "a pilot only estimates and spends none of the 5 % error rate: judge the question on other seeds, without "
    "`pilot: true`"
)
UNDERTRAINED = (
    f"all arms are undertrained (fewer than {LIMITS}): estimates only, which spend none of the 5 % error rate. Train "
    "for longer, or judge them as they are with `pilot: false`"
)

REPEATED = (
    "results of some of these seeds were shown before, in another set of seeds, for another question or with the "
    "noise of tuning: judging seeds again until a difference appears inflates false positives. Let the study add seeds "
    "(seeds: auto), or judge fresh ones"
)
UNLEARNT = "no arm learned the task, so losses only compare guesses: train for longer, or use an easier task"
LEARNT = 0.05
"""A task counts as learnt from an accuracy this share of the way up from guessing to 1."""


def guesses(runs: pl.DataFrame) -> bool:
    """Whether runs on a synthetic task have finished and none is better than guessing."""
    ended = runs.filter(status="finished").drop_nulls(("accuracy", "chance"))
    learnt = ended.filter(pl.col("accuracy") > pl.col("chance") + LEARNT * (1 - pl.col("chance")))
    return not ended.is_empty() and learnt.is_empty()


def why_withheld(study: StudyDocument, runs: pl.DataFrame, of: str = "study") -> str | None:
    """Reason why nothing that rests on these runs may be judged; None if it may. of: the part of the study that they
    are.

    Noise is pooled over a study, so it is judged once all of its runs have ended.
    """
    if study.scale in UNJUDGED:
        return f"the scale {study.scale} shows that a study runs, not what it finds"
    if study.pilot:
        return UNDERTRAINED if all_undertrained(study.arms) else PILOT
    if guesses(runs):
        return UNLEARNT
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this {of} have not ended" if missing else None
