"""Runs of every rung of a ladder, as one frame."""

from __future__ import annotations

import polars as pl

from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.keys import KEYS, RunKey
from reports.judge.reading.outcomes import outcomes

RUNGS = KEYS | {
    "rung": pl.String,
    "axis": pl.String,
    "status": pl.String,
    "parameters": pl.Int64,
    "flops": pl.Float64,
    "loss": pl.Float64,
    "accuracy": pl.Float64,
    "chance": pl.Float64,
}


def rung_runs(documents: StudyDocuments) -> pl.DataFrame:
    """A row per run of every rung. The loss of an absent run is null, as is the loss of one that diverged without a
    finite loss."""
    rows = []
    for rung in documents.study.ladder:
        keys = [(arm, RunKey(arm.name, run.seed, run.digest)) for arm in rung.arms for run in arm.runs]
        results = {key.digest: documents.store.read_result(key.digest) for _, key in keys}
        known = outcomes(documents.study, rung.arms, results, documents.corpora, documents.validations)
        for arm, key in keys:
            result = results[key.digest]
            rows.append(
                {
                    "rung": rung.name,
                    "axis": rung.axis,
                    **key._asdict(),
                    "status": known.get(key.digest, {}).get("status", documents.store.status(key.digest)),
                    "parameters": arm.parameters,
                    "flops": arm.flops,
                    "loss": result.loss if result else None,
                    "accuracy": result.accuracy if result else None,
                    "chance": documents.chances.get(arm.data),
                }
            )
    return pl.DataFrame(rows, schema=RUNGS)
