"""Read what a study's runs left in the store into frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ablate.store import Store
from ablate.store.documents.costs import CROWDED
from reports.reading import evaluations
from reports.reading.collected import Collected
from reports.reading.columns import RESULT, result_row
from reports.reading.documents import StudyDocuments
from reports.reading.inputs import Inputs
from reports.reading.keys import KEYS, Row, RunKey, Schema
from reports.sections import sections

RUNS: Schema = (
    KEYS
    | RESULT
    | dict.fromkeys(("uniform", "chance", "decode_tokens_per_second"), pl.Float64())
    | dict.fromkeys(("data", "dtype", "matmul"), pl.String())
)
"""A result's own numbers; `uniform`, the loss of guessing every token of that text alike, or `chance`, the accuracy of
guessing in that task; and how fast the model decodes at the longest context and the smallest batch that were measured,
if it was measured alone."""
CURVES = KEYS | {
    "step": pl.Int64,
    "tokens": pl.Int64,
    "seconds": pl.Float64,
    "loss": pl.Float64,
    "validation_loss": pl.Float64,
    "accuracy": pl.Float64,
}

LOSSES = KEYS | {"item": pl.Int64, "nats": pl.Float64, "weight": pl.Float64}
"""A loss is Σ nats / Σ weight over the held-out documents, or over examples."""
ReadMany = Callable[[Sequence[str], Sequence[str]], tuple[pl.DataFrame, list[int]]]
"""Digests and columns → the records of these runs below each other, and how many each has."""


def collect(study_dir: Path | str, store: Store | None = None) -> Collected:
    """Read a study's folder and the runs it names. Raises ReportError without a study there."""
    documents = StudyDocuments.of(study_dir, store)
    store, keys = documents.store, documents.keys
    return Collected(
        study=documents.study,
        runs=pl.DataFrame([_run_row(documents, key) for key in keys], schema=RUNS),
        curves=_logged(store.read_many_metrics, keys, CURVES),
        scores=evaluations.scores(documents.evaluated),
        items=evaluations.items(documents.evaluated),
        grouped=evaluations.grouped(documents.evaluated),
        environments={digest: result.environment for digest, result in documents.results.items() if result},
        losses=_losses(documents),
        gpus={digest: result.gpu for digest, result in documents.results.items() if result and result.gpu},
        ledger=store.read_ledger(documents.study.name),
        elsewhere=tuple(store.read_ledger(other) for other in store.ledgers() if other != documents.study.name),
        inputs=Inputs.of(documents),
        costs=documents.costs,
        began=documents.began,
        frames={name: frame for each in sections().values() for name, frame in each.collect(documents).items()},
    )


def _run_row(documents: StudyDocuments, key: RunKey) -> Row:
    run, result = documents.store.read_run(key.digest), documents.results[key.digest]
    known = result_row(result) if result else {"status": "absent" if run is None else "partial"}
    known |= documents.outcomes.get(key.digest, {})
    known |= _decoding(documents, key)
    if run:
        known |= {"chance": documents.chances.get(run.data.digest)}
        known |= {"data": run.data.digest, "dtype": run.numerics.dtype, "matmul": run.numerics.matmul}
    return key.row(known)


def _decoding(documents: StudyDocuments, key: RunKey) -> Row:
    measured = documents.measurements.get(key.digest)
    longest = measured.longest_decoding if measured else None
    if measured is None or longest is None or longest.tokens_per_second is None or (measured.waiting or 0.0) >= CROWDED:
        return {}
    return {"decode_tokens_per_second": longest.tokens_per_second.median}


def _losses(documents: StudyDocuments) -> pl.DataFrame:
    """The final loss of every run by document: of text that arms split in tokens of their own, by bytes."""
    per = "bytes" if documents.study.per == "byte" else "targets"
    return _logged(documents.store.read_many_losses, documents.keys, LOSSES, {"weight": per})


def _logged(
    read: ReadMany, keys: Sequence[RunKey], schema: Schema, names: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Logs of all runs below each other, each record after its run. names: of columns that logs call otherwise."""
    if not keys:
        return pl.DataFrame(schema=schema)
    known = names or {}
    columns = {name: known.get(name, name) for name in schema if name not in KEYS}
    logged, counts = read([key.digest for key in keys], list(columns.values()))
    run_of_each = np.repeat(np.arange(len(keys)), counts)
    keyed = pl.DataFrame(keys, schema=KEYS, orient="row")[run_of_each]
    renamed = logged.rename({stored: name for name, stored in columns.items()})
    return pl.concat([keyed, renamed], how="horizontal").cast(pl.Schema(schema))
