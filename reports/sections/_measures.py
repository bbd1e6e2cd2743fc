"""What can be weighed against what: every number that a study has of its runs, by arm and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from reports.reading.collected import Collected
from reports.wording.measures import MIB, RUN_MEASURES, Better

Values = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Measure:
    """One number of each finished run: `values[arm][seed]`. `label` has the unit; seeds without a value are absent.

    A number that the architecture declares is the same for every seed of an arm.
    """

    key: str
    label: str
    better: Better
    values: Values


def run_measures(data: Collected) -> tuple[Measure, ...]:
    """All measures that any run has, the loss first."""
    found = (*_of_runs(data), *_declared(data), *_decoding(data), *_scores(data))
    return tuple(measure for measure in found if any(measure.values.values()))


def _of_runs(data: Collected) -> Iterator[Measure]:
    finished = data.runs.filter(status="finished")
    yield Measure(
        "loss", f"validation loss (nats/{data.study.per})", "low", _values(finished.select("arm", "seed", value="loss"))
    )
    for each in RUN_MEASURES:
        yield Measure(each.key, each.label, each.better, _values(finished.select("arm", "seed", value=each.value)))


def _values(rows: pl.DataFrame) -> Values:
    """From columns arm, seed and value."""
    values: Values = {}
    for arm, seed, value in rows.drop_nulls("value").sort("seed").iter_rows():
        values.setdefault(arm, {})[seed] = value
    return values


def _declared(data: Collected) -> Iterator[Measure]:
    arms = data.study.arms
    yield _same(data, "parameters", "parameters", {arm.name: arm.parameters for arm in arms})
    yield _same(data, "flops-per-token", "FLOPs per token", {arm.name: arm.flops_per_token for arm in arms})
    caches: dict[int, dict[str, float]] = {}
    for arm in arms:
        for point in arm.cache_bytes:
            caches.setdefault(point.context, {})[arm.name] = point.bytes / MIB
    for context, sizes in sorted(caches.items()):
        yield _same(data, f"kv-{context}", f"KV cache at {context:,} tokens (MiB)", sizes)


def _same(data: Collected, key: str, label: str, by_arm: Mapping[str, float]) -> Measure:
    finished = data.runs.filter(status="finished").select("arm", "seed").sort("seed")
    values: Values = {}
    for arm, seed in finished.iter_rows():
        if arm in by_arm:
            values.setdefault(arm, {})[seed] = float(by_arm[arm])
    return Measure(key, label, "low", values)


def _decoding(data: Collected) -> Iterator[Measure]:
    """Time for one more token of every sequence of the batch."""
    rows = data.frames["measures"].filter(kind="decode").drop_nulls("median")
    for context, batch in rows.select("context", "batch").unique().sort("context", "batch").iter_rows():
        latency = (1000 * pl.col("batch") / pl.col("median")).alias("value")
        found = rows.filter(context=context, batch=batch).select("arm", "seed", latency)
        label = f"decode latency at {context:,} tokens, batch {batch} (ms)"
        yield Measure(f"decode-{context}-{batch}", label, "low", _values(found))


def _scores(data: Collected) -> Iterator[Measure]:
    """Evaluation scores of which it is known which way is better."""
    rows = data.scores.drop_nulls("higher_is_better").filter(~pl.col("task").is_in(list(data.grouped)))
    known = rows.select("task", "metric", "higher_is_better").unique(maintain_order=True)
    for number, (task, metric, higher) in enumerate(known.iter_rows()):
        found = rows.filter(task=task, metric=metric).select("arm", "seed", "value")
        yield Measure(f"score-{number}", f"{task}: {metric}", "high" if higher else "low", _values(found))
