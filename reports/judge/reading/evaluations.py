"""Evaluation results as frames, with the columns that lead all of them: scores, and the items that they sum up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from store import Store
from store.documents import EvalsDocument, JsonObject, SampleRecord, Section, StudyDocument, TaskGroup
from store.tables import Row, Schema

KEYS: Schema = {"arm": pl.String, "seed": pl.Int64, "digest": pl.String}


class RunKey(NamedTuple):
    """A run of an arm. Two arms may share a run."""

    arm: str
    seed: int
    digest: str

    def row(self, values: Mapping[str, object]) -> Row:
        """One row of a frame: the key, then the values."""
        return {**self._asdict(), **values}


def keys_of(study: StudyDocument) -> list[RunKey]:
    return [RunKey(arm.name, run.seed, run.digest) for arm in study.arms for run in arm.runs]


def keyed(frame: pl.DataFrame, key: RunKey, schema: Schema) -> pl.DataFrame:
    """A run's log with the key prepended to each row."""
    known = key._asdict()
    # Column by column: for thousands of small frames, planning a query takes longer than the query.
    keys = {name: pl.Series(name, [known[name]], schema[name]).new_from_index(0, frame.height) for name in known}
    return pl.DataFrame([keys[name] if name in keys else frame[name].cast(kind) for name, kind in schema.items()])


SCORES = KEYS | {
    "task": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "stderr": pl.Float64,
    "higher_is_better": pl.Boolean,
    "chance": pl.Float64,
}
ITEMS = KEYS | {
    "task": pl.String,
    "metric": pl.String,
    "item": pl.String,
    "cluster": pl.String,
    "value": pl.Float64,
    "weight": pl.Float64,
}
"""A score is Σ value / Σ weight over the items. Items of one cluster come from one document."""
NATS_PER_BIT = math.log(2)
PERPLEXITIES = ("byte_perplexity", "word_perplexity")
"""Metrics that are no sums over items; where they occur, `bits_per_byte` carries the same information."""


class EvaluatedRun(NamedTuple):
    """An evaluated run, its evaluation document, and the records of its items."""

    key: RunKey
    document: EvalsDocument
    records: list[SampleRecord]

    def rows(self, name: str) -> Iterator[tuple[Section, JsonObject]]:
        """The rows of a section, each paired with the section."""
        section = self.document.sections.get(name, Section(rows=()))
        yield from ((section, row) for row in section.rows)


def read(store: Store, study: StudyDocument, keys: Iterable[RunKey]) -> Iterator[EvaluatedRun]:
    """Stored evaluation results of the study's runs."""
    if study.evals is None:
        return
    for key in keys:
        document = store.read_evals(key.digest, study.evals)
        if document is not None:
            yield EvaluatedRun(key, document, store.read_samples(key.digest, study.evals) or [])


def scores(evaluated: list[EvaluatedRun]) -> pl.DataFrame:
    rows = [
        run.key.row({"task": task, "metric": metric, **score.model_dump(exclude={"items"})})
        for run in evaluated
        for task, metrics in run.document.scores.items()
        for metric, score in metrics.items()
    ]
    return pl.DataFrame(rows, schema=SCORES)


def items(evaluated: list[EvaluatedRun]) -> pl.DataFrame:
    """One row per item and metric, repeated under each task group that contains the item's task. A group's mean weighs
    its tasks equally, or its items equally for metrics in `by_size`."""
    rows = [run.key.row(row) for run in evaluated for record in run.records for row in _item_values(record)]
    samples, each = pl.DataFrame(rows, schema=ITEMS), ["arm", "seed", "task", "metric"]
    parts = [samples]
    for name, group in _groups(evaluated).items():
        own = samples.filter(pl.col("task").is_in(group.tasks))
        metric = pl.col("metric").str.split(",").list.first()
        share = pl.when(metric.is_in(group.by_size)).then(1.0).otherwise(1 / pl.col("weight").sum().over(each))
        named = [pl.concat_str("task", column, separator=" ").alias(column) for column in ("item", "cluster")]
        scaled = [(pl.col(column) * share).alias(column) for column in ("value", "weight")]
        parts.append(own.with_columns(*named, *scaled).with_columns(pl.lit(name).alias("task")))
    return pl.concat(parts)


def grouped(evaluated: list[EvaluatedRun]) -> frozenset[str]:
    """Tasks and groups contained in a larger group; figures draw only the larger one."""
    groups = _groups(evaluated)
    inner = {name for name, own in groups.items() for other in groups.values() if set(own.tasks) < set(other.tasks)}
    return frozenset(inner.union(*(group.tasks for group in groups.values())))


def _groups(evaluated: list[EvaluatedRun]) -> dict[str, TaskGroup]:
    """Task groups by name; all runs of a study evaluate the same ones."""
    return {name: group for run in evaluated for name, group in run.document.groups.items()}


def _item_values(sample: SampleRecord) -> Iterator[Row]:
    """One row per metric of an item that is a sum over items, named as in the evals document."""
    item = f"{sample.doc_id} {sample.doc_hash}"
    cluster = item if sample.document is None else f"document {sample.document}"
    shared = {"task": sample.task, "item": item, "cluster": cluster}
    for metric in sample.metrics.keys() - set(PERPLEXITIES):
        name = metric if sample.filter == "none" else f"{metric},{sample.filter}"
        value, weight = _value_and_weight(metric, sample.metrics[metric])
        yield {**shared, "metric": name, "value": value, "weight": weight}


def _value_and_weight(metric: str, score: Any) -> tuple[float | None, float | None]:
    """(value, weight) of one score. A sum over tokens carries its own weight; `bits_per_byte` of a text is a pair
    (log-likelihood in nats, bytes). (None, None) if the score is not a number."""
    if isinstance(score, dict):
        return score["sum"], score["weight"]
    if metric == "bits_per_byte" and isinstance(score, list) and None not in score:
        return -score[0] / NATS_PER_BIT, score[1]
    return (float(score), 1.0) if isinstance(score, int | float) else (None, None)
