"""Evaluation results as frames: scores, and the items that they are sums over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import polars as pl

from ablate.store import Store
from ablate.store.documents import EvalsDocument, JsonObject, SampleRecord, Section, StudyDocument, TaskGroup
from ablate.store.result_columns import Row
from reports.reading.keys import KEYS, RunKey

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
"""A score is Σ value / Σ weight over the items; items of one cluster are from one document."""
NATS_PER_BIT = math.log(2)
PERPLEXITIES = ("byte_perplexity", "word_perplexity")
"""Not sums over items; where they are, bits_per_byte says the same."""


class EvaluatedRun(NamedTuple):
    """A run that was evaluated, what was found, and the items' records."""

    key: RunKey
    document: EvalsDocument
    records: list[SampleRecord]

    def rows(self, name: str) -> Iterator[tuple[Section, JsonObject]]:
        """The rows of a section, with the section."""
        section = self.document.sections.get(name, Section(rows=()))
        yield from ((section, row) for row in section.rows)


def read(store: Store, study: StudyDocument, keys: Iterable[RunKey]) -> Iterator[EvaluatedRun]:
    """Stored results of the study's evaluation."""
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
    """The items, and again as those of the groups that their tasks are in."""
    rows = [run.key.row(row) for run in evaluated for record in run.records for row in _item_values(record)]
    return with_groups(pl.DataFrame(rows, schema=ITEMS), _groups(evaluated))


def grouped(evaluated: list[EvaluatedRun]) -> frozenset[str]:
    """The tasks and groups that are in a group: figures draw that alone."""
    groups = _groups(evaluated)
    inner = {name for name, own in groups.items() for other in groups.values() if set(own.tasks) < set(other.tasks)}
    return frozenset(inner.union(*(group.tasks for group in groups.values())))


def _groups(evaluated: list[EvaluatedRun]) -> dict[str, TaskGroup]:
    """Task groups by name; all runs of a study evaluate the same ones."""
    return {name: group for run in evaluated for name, group in run.document.groups.items()}


def with_groups(samples: pl.DataFrame, groups: dict[str, TaskGroup]) -> pl.DataFrame:
    """Add groups, whose means weigh all tasks alike, of any number of items, or, for `by_size`, all items alike."""
    each = ["arm", "seed", "task", "metric"]
    parts = [samples]
    for name, group in groups.items():
        own = samples.filter(pl.col("task").is_in(group.tasks))
        metric = pl.col("metric").str.split(",").list.first()
        share = pl.when(metric.is_in(group.by_size)).then(1.0).otherwise(1 / pl.col("weight").sum().over(each))
        named = [pl.concat_str("task", column, separator=" ").alias(column) for column in ("item", "cluster")]
        scaled = [(pl.col(column) * share).alias(column) for column in ("value", "weight")]
        parts.append(own.with_columns(*named, *scaled).with_columns(pl.lit(name).alias("task")))
    return pl.concat(parts)


def _item_values(sample: SampleRecord) -> Iterator[Row]:
    """Values of one item for each metric that is a sum over items. Named as in the evals document."""
    item = f"{sample.doc_id} {sample.doc_hash}"
    cluster = item if sample.document is None else f"document {sample.document}"
    shared = {"task": sample.task, "item": item, "cluster": cluster}
    for metric in sample.metrics.keys() - set(PERPLEXITIES):
        name = metric if sample.filter == "none" else f"{metric},{sample.filter}"
        value, weight = _value_and_weight(metric, sample.metrics[metric])
        yield {**shared, "metric": name, "value": value, "weight": weight}


def _value_and_weight(metric: str, score: Any) -> tuple[float | None, float | None]:
    """None for what is not a number. A likelihood of a whole text is its log and its bytes, what is a sum over tokens
    says over how many."""
    if isinstance(score, dict):
        return score["sum"], score["weight"]
    if metric == "bits_per_byte" and isinstance(score, list) and None not in score:
        return -score[0] / NATS_PER_BIT, score[1]
    return (float(score), 1.0) if isinstance(score, int | float) else (None, None)
